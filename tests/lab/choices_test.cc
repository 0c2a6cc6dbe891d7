// Multiple choice: what files mean, what is asked, what is counted.
#include "lab/choices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "lab/samples.h"

namespace spa {
namespace {

namespace fs = std::filesystem;

class ChoicesTest : public testing::Test {
 protected:
  ChoicesTest()
      : folder_(fs::temp_directory_path() /
                (std::string("spa-choices-") + std::to_string(getpid()) + "-" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
  }
  ~ChoicesTest() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static Engine& engine() {
    static Engine engine({.model = SPA_TEST_DATA "/mini.gguf",
                          .threads = 2,
                          .kv_type = KvType::kF32,
                          .progress = {}});
    return engine;
  }

  fs::path folder_;
};

TEST_F(ChoicesTest, ReadsTheFormsBenchmarksHave) {
  // MMLU, ARC, HellaSwag; an answer given as text.
  const fs::path lines = Write("lines.jsonl",
                               R"({"question": "a", "choices": ["x", "y"], "answer": 1}
{"question": "b", "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answer": "3"}
{"question": "c", "choices": ["x", "y"], "answer": "B"}

{"question": "d", "choices": ["1", "0"], "answer": "0"}
{"question": "e", "choices": ["x", "y", "z"], "answer": "2"})");
  const ChoiceSet set = ReadChoices(lines, {});
  ASSERT_EQ(set.questions.size(), 5u);
  EXPECT_EQ(set.questions[0].answer, 1u);
  EXPECT_EQ(set.questions[1].answer, 2u);
  EXPECT_EQ(set.questions[2].answer, 1u);
  EXPECT_EQ(set.questions[3].answer, 1u) << "the text of a choice comes before its number";
  EXPECT_EQ(set.questions[4].answer, 2u);
  EXPECT_EQ(set.questions[4].id, "lines/4");

  const fs::path bbh = Write("bbh.json", R"json({"examples": [
      {"input": "Who?\nOptions:\n(A) red\n(B) blue", "target": "(B)"},
      {"input": "Back?\nOptions:\n- Yes\n- No", "target": "No"}]})json");
  const ChoiceSet listed = ReadChoices(bbh, {});
  EXPECT_EQ(listed.questions[0].choices, (std::vector<std::string>{"(A)", "(B)"}));
  EXPECT_EQ(listed.questions[0].answer, 1u);
  EXPECT_EQ(listed.questions[1].choices, (std::vector<std::string>{"Yes", "No"}));
  const ChoiceSet unlisted = ReadChoices(
      Write(
          "bool.json",
          R"({"examples": [{"input": "a", "target": "True"}, {"input": "b", "target": "False"}]})"),
      {});
  EXPECT_EQ(unlisted.questions[0].choices, (std::vector<std::string>{"False", "True"}));
  EXPECT_EQ(unlisted.questions[0].answer, 1u);
}

TEST_F(ChoicesTest, SaysWhereAFileIsWrong) {
  const auto message = [&](const std::string& text) {
    try {
      ReadChoices(Write("wrong.jsonl", text), {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("{\"question\": \"a\"}").find("line 1 has no field 'choices'"),
            std::string::npos);
  EXPECT_NE(message("\n{").find("line 2 is not JSON"), std::string::npos);
  EXPECT_NE(
      message(R"({"question": "a", "choices": ["x", "y"], "answer": 2})").find("none of the 2"),
      std::string::npos);
  EXPECT_NE(message(R"({"question": "a", "choices": ["x"], "answer": 0})").find("two choices"),
            std::string::npos);
  EXPECT_NE(message("").find("holds no questions"), std::string::npos);
}

// The mini model was trained on such questions: it must beat guessing by far, and a resumed run
// must give the same numbers without computing anything.
TEST_F(ChoicesTest, TheMiniModelChoosesAndARunResumes) {
  std::string examples;
  const auto add = [&](const char* question, const char* answer) {
    examples += std::string(examples.empty() ? "" : ",") + "{\"input\": \"" + question +
                "\", \"target\": \"" + answer + "\"}";
  };
  add("not ( True ) is", "False");
  add("not ( False ) is", "True");
  add("True and False is", "False");
  add("True or False is", "True");
  add("not not True is", "True");
  add("False and not False is", "False");
  add("( True and True ) is", "True");
  add("( False or False ) is", "False");
  ChoiceEvalOptions options;
  options.data = {Write("bool.json", "{\"examples\": [" + examples + "]}")};
  options.samples = folder_ / "samples.jsonl";
  const ChoiceResult first = EvaluateChoices(engine(), options);
  EXPECT_EQ(first.total.count, 8u);
  EXPECT_GE(first.total.accuracy, 0.75);
  EXPECT_EQ(first.total.noise, 0.0) << "short answers are scored without draws";
  const ChoiceResult again = EvaluateChoices(engine(), options);
  EXPECT_EQ(again.resumed, 8u);
  EXPECT_EQ(again.total.accuracy, first.total.accuracy);
  EXPECT_EQ(again.total.normalised, first.total.normalised);
  options.likelihood.estimator = Estimator::kChain;
  EXPECT_THROW(EvaluateChoices(engine(), options), Error) << "other settings, other records";
}

TEST_F(ChoicesTest, AsksAsTheHarnessDoes) {
  const ChoiceQuestion example{.id = {}, .text = "A?", .choices = {"x", "y"}, .answer = 1};
  const ChoiceQuestion question{.id = {}, .text = "B?", .choices = {"no", "yes"}, .answer = 0};
  const auto requests = ChoiceRequests(engine(), {&example, 1}, question, true);
  ASSERT_EQ(requests.size(), 2u);
  const auto text = [](const std::vector<TokenId>& ids) {
    return engine().tokenizer().Decode(ids);
  };
  EXPECT_EQ(text(requests[1].prompt), "A?\nAnswer: y\n\nB?\nAnswer:");
  EXPECT_EQ(text(requests[1].target), " yes");
}

}  // namespace
}  // namespace spa
