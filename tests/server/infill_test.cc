// Texts with gaps over HTTP.
#include <gtest/gtest.h>

#include "tests/server/test_server.h"

namespace spa {
namespace {

Json Complete(const Server& server, const Json& body, int status = 200) {
  const auto result = Post(server, "/v1/completions", body.dump());
  EXPECT_TRUE(result);
  EXPECT_EQ(result->status, status) << result->body;
  return Json::parse(result->body);
}

// The texts of a stream, and its last `dlm`.
struct Streamed {
  std::string text;
  std::vector<std::string> pieces;
  Json dlm, frame;
};
Streamed Stream(const Server& server, const std::string& path, Json body) {
  body["stream"] = true;
  Streamed streamed;
  const auto result = Post(server, path, body.dump());
  std::istringstream lines(result->body);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const Json chunk = Json::parse(line.substr(6));
    if (chunk.contains("dlm")) {
      if (chunk["dlm"].contains("frame")) {
        streamed.frame = chunk["dlm"]["frame"];
      } else {
        streamed.dlm = chunk["dlm"];
      }
    }
    for (const Json& choice : chunk["choices"]) {
      const Json& from = choice.contains("delta") ? choice["delta"] : choice;
      const std::string text = from.value(choice.contains("delta") ? "content" : "text", "");
      streamed.text += text;
      if (!text.empty()) streamed.pieces.push_back(text);
    }
  }
  return streamed;
}

TEST(Infill, ASuffixIsFilledUpTo) {
  const Server server(TestEngine(), TestOptions());
  const Json body = {
      {"prompt", "not ( True ) is =>"}, {"suffix", ". Answer: False"}, {"max_tokens", 3}};
  const Json answer = Complete(server, body);
  const std::string text = answer["choices"][0]["text"];
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["dlm"]["gaps"], Json::parse(Json::array({Json::array({text})}).dump()));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
  EXPECT_EQ(Stream(server, "/v1/completions", body).text, text);
  // Without a length it is 16 tokens, as in the OpenAI API.
  EXPECT_EQ(Complete(server, {{"prompt", "a"}, {"suffix", "b"}})["usage"]["completion_tokens"], 16);
}

TEST(Infill, ATemplateIsAnsweredWholeAndStreamedInOrder) {
  const Server server(TestEngine(), TestOptions());
  const std::string text = "( {{mask:2}} ) is => {{mask:3}}. Answer: False\n";
  const Json answer = Complete(server, {{"template", text}});
  const std::string whole = answer["choices"][0]["text"];
  const Json gaps = answer["dlm"]["gaps"][0];
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(whole, "(" + gaps[0].get<std::string>() + " ) is =>" + gaps[1].get<std::string>() +
                       ". Answer: False\n");
  const Streamed streamed = Stream(server, "/v1/completions", {{"template", text}});
  EXPECT_EQ(streamed.text, whole);
  EXPECT_EQ(streamed.pieces.front(), "(") << "what is given comes first";
  EXPECT_EQ(streamed.dlm["gaps"], gaps);
  EXPECT_GE(streamed.pieces.size(), 3u);
}

TEST(Infill, AChatsAnswerMayHaveATemplate) {
  const Server server(TestEngine(), TestOptions());
  Json body =
      Json::parse(ChatBody("not ( True ) is", {{"template", "=> {{mask:2}}. {{mask:1}}: False"}}));
  body.erase("max_tokens");
  const auto result = Ask(server, body.dump());
  const std::string content = Content(result);
  EXPECT_TRUE(content.starts_with("=> ")) << content;
  EXPECT_TRUE(content.ends_with(": False")) << content;
  body["stream_diffusion"] = true;
  const Streamed streamed = Stream(server, "/v1/chat/completions", body);
  EXPECT_EQ(streamed.text, content);
  const Json given = streamed.frame.at("given");
  EXPECT_EQ(given.size(), streamed.frame.at("tokens").size());
  EXPECT_EQ(std::ranges::count(given, Json(0)), 3) << given;
}

TEST(Infill, RefusesWhatMakesNoSense) {
  const Server server(TestEngine(), TestOptions());
  const auto param = [&](const Json& body) {
    return Complete(server, body, 400)["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(param({{"template", "no gap"}}), "template");
  EXPECT_EQ(param({{"template", "{{mask:0}}"}}), "template");
  EXPECT_EQ(param({{"template", "a {{mask:4}}"}, {"prompt", "b"}}), "prompt");
  EXPECT_EQ(param({{"template", "a {{mask:4}}"}, {"suffix", "b"}}), "suffix");
  EXPECT_EQ(param({{"template", "a {{mask:4}}"}, {"max_tokens", 4}}), "max_tokens");
  EXPECT_EQ(param({{"template", "a {{mask:9999}}"}}), "template");
  EXPECT_EQ(param({{"prompt", {1, 2}}, {"suffix", "b"}}), "prompt");
  EXPECT_EQ(param({{"prompt", "a"}, {"suffix", "b"}, {"echo", true}}), "echo");
  EXPECT_EQ(param({{"prompt", "a"}, {"suffix", "b"}, {"max_tokens", 0}}), "max_tokens");
}

}  // namespace
}  // namespace spa
