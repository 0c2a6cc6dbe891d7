#include "lab/eval.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spa {
namespace {

namespace fs = std::filesystem;

// A folder that lives as long as the test.
class EvalTest : public testing::Test {
 protected:
  EvalTest()
      : folder_(fs::temp_directory_path() /
                (std::string("spa-eval-") + std::to_string(getpid()) + "-" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
  }
  ~EvalTest() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string Read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string MessageOf(const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

Sample MakeSample(const std::string& id, bool correct) {
  Sample sample;
  sample.id = id;
  sample.stats.prompt_tokens = 11;
  sample.stats.generated_tokens = 7;
  sample.text = "a \"quoted\" line\nand \xC3\xA9";
  sample.answer = "x";
  sample.expected = "y";
  sample.correct = correct;
  sample.stats.steps = 9;
  sample.stats.seconds = 0.125;
  sample.stats.first_step_seconds = 0.5;
  sample.stats.engine_seconds = 0.25;
  sample.stats.rows_computed = 1234567890123;
  sample.stats.rows_total = 2234567890123;
  sample.stats.cache_bytes = 77;
  sample.ids = {1, -2, 3};
  return sample;
}

TEST(StandardError, EqualsPublishedValues) {
  EXPECT_NEAR(100.0 * StandardError(0.7862, 1319), 1.13, 0.005);
  EXPECT_NEAR(100.0 * StandardError(0.2991, 448), 2.17, 0.005);
  EXPECT_EQ(StandardError(1.0, 1), 0.0);
}

TEST(TotalScore, PoolsTheSets) {
  std::vector<Sample> samples;
  std::vector<Score> scores;
  for (const auto& [name, correct, count] : {std::tuple{"a", 30, 40}, std::tuple{"b", 10, 20}}) {
    std::vector<Sample> set;
    for (int i = 0; i < count; ++i) set.push_back(MakeSample(name, i < correct));
    scores.push_back(ScoreSamples(name, set));
    samples.insert(samples.end(), set.begin(), set.end());
  }
  const Score total = TotalScore(scores, samples);
  EXPECT_EQ(total.correct, 40u);
  EXPECT_NEAR(total.accuracy, 40.0 / 60.0, 1e-12);
  // sqrt((n1 p1 q1 + n2 p2 q2) / (N - k) / N)
  EXPECT_NEAR(total.standard_error, std::sqrt((40 * 0.75 * 0.25 + 20 * 0.25) / 58.0 / 60.0), 1e-12);
  EXPECT_NEAR(total.tokens_per_second, 7 / 0.25, 1e-9);
}

TEST(Grader, FindsTheLastAnswer) {
  const Grader bbh(TaskOptions{});
  EXPECT_EQ(bbh.Extract("Answer: no, wait. Answer:  ( A )\n"), "( A )");
  EXPECT_EQ(bbh.Extract("I do not know"), std::nullopt);
  const Grader pattern(TaskOptions{.extract = "answer is ([^.]*)\\."});
  EXPECT_EQ(pattern.Extract("The answer is 4. No, the answer is  5 ."), "5");
  const Grader number(TaskOptions{.kind = TaskKind::kGsm8k, .extract = {}});
  EXPECT_EQ(number.Extract("She has 3 + 4 = 7 and pays $1,200.50."), "1200.50");
  EXPECT_EQ(number.Extract("minus -3"), "-3");
  EXPECT_EQ(number.Extract("none"), std::nullopt);
  const Grader whole(TaskOptions{.kind = TaskKind::kJsonl, .extract = {}});
  EXPECT_EQ(whole.Extract("  Paris\n"), "Paris");
  EXPECT_THROW(Grader(TaskOptions{.extract = "(unclosed"}), Error);
}

TEST(Grader, ComparesExactlyAfterCollapsingSpaces) {
  const Grader bbh(TaskOptions{});
  EXPECT_TRUE(bbh.Correct(" ] \n  ] ", "] ]"));
  EXPECT_FALSE(bbh.Correct("true", "True"));
  EXPECT_TRUE(bbh.Correct("(B) Lolita", "(B)"));
  EXPECT_FALSE(bbh.Correct("(B)", "(A)"));
  EXPECT_FALSE(bbh.Correct("", "(A)"));
  EXPECT_FALSE(bbh.Correct("18.0", "18"));
  const Grader number(TaskOptions{.kind = TaskKind::kGsm8k, .extract = {}});
  EXPECT_TRUE(number.Correct("18.00", "18"));
  EXPECT_FALSE(number.Correct("19", "18"));
}

TEST_F(EvalTest, ReadsTheTaskForms) {
  const auto bbh = ReadQuestions(
      Write("navigate.json", R"({"canary": "", "examples": [{"input": "Go?", "target": " No "}]})"),
      TaskOptions{});
  EXPECT_EQ(bbh.name, "navigate");
  ASSERT_EQ(bbh.questions.size(), 1u);
  EXPECT_EQ(bbh.questions[0].id, "navigate/0");
  EXPECT_EQ(bbh.questions[0].expected, "No");
  EXPECT_EQ(bbh.questions[0].worked, "Answer: No");
  const auto gsm = ReadQuestions(
      Write("g.jsonl", "{\"question\": \"q\", \"answer\": \"so 2\\n#### 1,002\"}\n\n"),
      TaskOptions{.kind = TaskKind::kGsm8k, .extract = {}});
  EXPECT_EQ(gsm.questions.at(0).expected, "1002");
  const auto lines = ReadQuestions(Write("l.jsonl", R"({"ask": "q", "solution": 4})"),
                                   TaskOptions{.kind = TaskKind::kJsonl,
                                               .extract = {},
                                               .question_field = "ask",
                                               .answer_field = "solution"});
  EXPECT_EQ(lines.questions.at(0).expected, "4");
}

TEST_F(EvalTest, SaysWhereDataIsWrong) {
  const TaskOptions lines{.kind = TaskKind::kJsonl, .extract = {}};
  EXPECT_THROW(ReadQuestions(folder_ / "missing.json", {}), Error);
  EXPECT_THROW(ReadQuestions(Write("a.json", "[1, 2]"), {}), Error);
  EXPECT_THROW(ReadQuestions(Write("b.json", "{\"examples\": []}"), {}), Error);
  EXPECT_NE(MessageOf([&] { ReadQuestions(Write("c.jsonl", "{}\n"), lines); }).find("'question'"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              ReadQuestions(Write("d.jsonl", "{\"question\":\"\",\"answer\":\"\"}\n{oh\n"), lines);
            }).find("line 2"),
            std::string::npos);
}

TEST_F(EvalTest, SampleSurvivesItsRecord) {
  const Sample sample = MakeSample("navigate/3", true);
  const Sample read = SampleFromJson(SampleToJson(sample));
  EXPECT_EQ(SampleToJson(read), SampleToJson(sample));
  EXPECT_EQ(read.ids, sample.ids);
  EXPECT_EQ(read.stats.rows_computed, sample.stats.rows_computed);
  EXPECT_EQ(read.stats.engine_seconds, sample.stats.engine_seconds);
}

TEST_F(EvalTest, NumbersThatNoRunWritesAreNoSample) {
  const std::string good = SampleToJson(MakeSample("navigate/3", true));
  for (const char* key : {"steps", "rows_total", "ids"}) {
    for (const char* value : {"-1", "1e300", "1.5", "[1e300]", "[4294967296]"}) {
      auto json = nlohmann::ordered_json::parse(good);
      json[key] = nlohmann::ordered_json::parse(value);
      EXPECT_THROW(SampleFromJson(json.dump()), Error) << key << " " << value;
    }
  }
}

TEST_F(EvalTest, RecordsAreReadBackAndATornLineIsDropped) {
  const fs::path path = folder_ / "samples.jsonl";
  const std::string settings = R"({"steps": 64})";
  {
    SampleFile file(path, settings);
    EXPECT_TRUE(file.finished().empty());
    file.Append(MakeSample("a/0", true));
    file.Append(MakeSample("a/1", false));
  }
  const std::string whole = Read(path);
  // Killed in the middle of a line, wherever that was.
  const std::string next = SampleToJson(MakeSample("a/2", true)) + "\n";
  for (size_t cut = 1; cut < next.size(); cut += 7) {
    Write("samples.jsonl", whole + next.substr(0, cut));
    {
      SampleFile file(path, settings);
      ASSERT_EQ(file.finished().size(), 2u);
      EXPECT_EQ(file.finished()[1].id, "a/1");
    }
    ASSERT_EQ(Read(path), whole);
  }
  {
    SampleFile file(path, settings);
    file.Append(MakeSample("a/2", true));
  }
  EXPECT_EQ(Read(path), whole + next);
  // Killed while the settings were written.
  Write("samples.jsonl", "{\"settin");
  EXPECT_TRUE(SampleFile(path, settings).finished().empty());
  EXPECT_EQ(Read(path), whole.substr(0, whole.find('\n') + 1));
}

TEST_F(EvalTest, RefusesOtherSettingsAndOtherFiles) {
  const fs::path path = folder_ / "samples.jsonl";
  { SampleFile file(path, R"({"decode": {"steps": 64}, "cache": "spa"})"); }
  const std::string before = Read(path);
  const std::string message =
      MessageOf([&] { SampleFile(path, R"({"decode": {"steps": 32}, "cache": "spa"})"); });
  EXPECT_NE(message.find("decode.steps is 64 there and 32 here"), std::string::npos) << message;
  EXPECT_EQ(Read(path), before);
  const fs::path other = Write("notes.txt", "my notes\nline two\n");
  EXPECT_THROW(SampleFile(other, "{}"), Error);
  EXPECT_EQ(Read(other), "my notes\nline two\n");
  const fs::path damaged = Write(
      "damaged.jsonl", "{\"settings\":{}}\n{oops\n" + SampleToJson(MakeSample("a", true)) + "\n");
  EXPECT_NE(MessageOf([&] { SampleFile(damaged, "{}"); }).find("line 2"), std::string::npos);
  // Printing such settings would overflow the stack.
  const fs::path deep = Write("deep.jsonl", "{\"settings\":{\"cache\":" + std::string(300000, '[') +
                                                std::string(300000, ']') + "}}\n");
  EXPECT_NE(MessageOf([&] { SampleFile(deep, R"({"cache": "spa"})"); }).find("nested"),
            std::string::npos);
}

TEST_F(EvalTest, OneRunWritesAtATime) {
  const fs::path path = folder_ / "samples.jsonl";
  SampleFile file(path, "{}");
  EXPECT_THROW(SampleFile(path, "{}"), Error);
}

// The embedded model on two questions: records make a second run free, and the batch changes
// nothing.
TEST_F(EvalTest, ResumedRunRepeatsNothing) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  const auto data = Write("boolean.json",
                          R"({"examples": [{"input": "not ( True ) is", "target": "False"},
                       {"input": "True and not False is", "target": "True"},
                       {"input": "False or False is", "target": "False"}]})");
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  EvalOptions options;
  options.data = {data};
  options.limit = 2;
  options.batch = 2;
  options.decode = engine.DefaultDecodeOptions();
  options.decode.gen_length = options.decode.steps = 32;
  options.samples = folder_ / "samples.jsonl";
  const EvalResult first = Evaluate(engine, options);
  EXPECT_EQ(first.resumed, 0u);
  EXPECT_EQ(first.total.count, 2u);
  const std::string records = Read(options.samples);
  const EvalResult second = Evaluate(engine, options);
  EXPECT_EQ(second.resumed, 2u);
  EXPECT_EQ(Read(options.samples), records);
  EXPECT_EQ(second.total.correct, first.total.correct);
  EXPECT_DOUBLE_EQ(second.total.tokens_per_second, first.total.tokens_per_second);
  // A longer run resumes from the shorter one.
  options.limit = 0;
  const EvalResult third = Evaluate(engine, options);
  EXPECT_EQ(third.resumed, 2u);
  EXPECT_EQ(third.total.count, 3u);

  EvalOptions alone = options;
  alone.batch = 1;
  alone.samples = folder_ / "alone.jsonl";
  Evaluate(engine, alone);
  const SampleFile a(options.samples, third.settings);
  const SampleFile b(alone.samples, Evaluate(engine, alone).settings);
  ASSERT_EQ(a.finished().size(), 3u);
  ASSERT_EQ(b.finished().size(), 3u);
  for (const Sample& x : a.finished()) {
    const auto same = std::ranges::find(b.finished(), x.id, &Sample::id);
    ASSERT_NE(same, b.finished().end()) << x.id;
    EXPECT_EQ(x.ids.size(), 32u);
    EXPECT_EQ(x.ids, same->ids);
  }
}

// A shared prefix is computed once, and batching changes nothing.
TEST_F(EvalTest, AWarmStartComputesSharedExamplesOnce) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  EvalOptions options;
  options.data = {Write("boolean.json",
                        R"({"examples": [{"input": "not ( True ) is", "target": "False"},
                       {"input": "True and not False is", "target": "True"},
                       {"input": "False or False is", "target": "False"},
                       {"input": "not ( False ) is", "target": "True"}]})")};
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  options.few_shot = 1;
  options.decode = engine.DefaultDecodeOptions();
  options.decode.gen_length = options.decode.steps = 32;
  options.cache = {.name = "spa", .options = {}};
  const double cold = Evaluate(engine, options).total.rows_fraction;
  options.warm = true;
  std::vector<std::vector<Sample>> runs;
  for (const size_t batch : {1, 3}) {
    options.batch = batch;
    options.samples = folder_ / std::to_string(batch);
    const EvalResult warm = Evaluate(engine, options);
    EXPECT_LT(warm.total.rows_fraction, cold);
    runs.push_back(SampleFile(options.samples, warm.settings).finished());
  }
  ASSERT_EQ(runs[0].size(), 3u);
  for (const Sample& x : runs[0]) {
    const auto same = std::ranges::find(runs[1], x.id, &Sample::id);
    ASSERT_NE(same, runs[1].end());
    EXPECT_EQ(x.ids, same->ids);
  }
  options.cache = {.name = "none", .options = {}};
  options.samples.clear();
  EXPECT_EQ(MessageOf([&] { Evaluate(engine, options); }),
            "the cache none cannot start warm: use --cache spa, or leave --warm out");
}

}  // namespace
}  // namespace spa
