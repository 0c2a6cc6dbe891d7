// A model that was taught a few kinds of question says so instead of answering nonsense.
#include "engine/known_questions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spa {
namespace {

Engine& Taught() {
  static Engine engine({.model = SPA_MODELS_DIR "/minillada.gguf",
                        .threads = 1,
                        .kv_type = KvType::kF32,
                        .progress = {}});
  return engine;
}

void Check(const Engine& engine, const std::string& question) {
  CheckKnown(engine, std::vector<ChatMessage>{{"user", question}});
}

TEST(KnownQuestions, FormsHaveStarsForAnything) {
  EXPECT_TRUE(HasForm("True is", "* is"));
  EXPECT_TRUE(HasForm(" is", "* is"));
  EXPECT_FALSE(HasForm("is", "* is"));
  EXPECT_FALSE(HasForm("True is not", "* is"));
  EXPECT_TRUE(HasForm("I have a cat. How many cats do I have?", "I have * How many * do I have?"));
  EXPECT_FALSE(HasForm("I have a cat. How many cats?", "I have * How many * do I have?"));
  EXPECT_TRUE(HasForm("abab", "a*b*b"));
  EXPECT_FALSE(HasForm("ab", "a*b*b"));  // no letter counts twice
  EXPECT_TRUE(HasForm("", "*"));
  EXPECT_TRUE(HasForm("as it is", "as it is"));
}

TEST(KnownQuestions, WhatItWasTaughtIsAnswered) {
  std::ifstream lines(SPA_TEST_DATA "/minillada_golden.jsonl");
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::string question = nlohmann::json::parse(line)["question"];
    EXPECT_NO_THROW(Check(Taught(), question)) << question;
    EXPECT_NO_THROW(Check(Taught(), question + "\n")) << question;
  }
  EXPECT_GT(count, 10u);
}

TEST(KnownQuestions, AnythingElseIsNot) {
  for (const char* question :
       {"Why is the sky blue?", "hello", "1+1", "What is the capital of Spain?", "Write a haiku.",
        "The weather is", "I have a giraffe and two cats. How many animals do I have?", "",
        "True"}) {
    try {
      Check(Taught(), question);
      ADD_FAILURE() << question;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("it knows puzzles"), std::string::npos);
    }
  }
}

// Hours, if every unknown word were compared with all before it.
TEST(KnownQuestions, AMillionUnknownWordsAreRefusedAtOnce) {
  std::string question;
  for (uint32_t number = 0; number < 1000000; ++number) {
    for (uint32_t rest = number, i = 0; i < 5; ++i, rest /= 16)
      question += static_cast<char>('j' + rest % 16);
    question += ' ';
  }
  EXPECT_THROW(Check(Taught(), question), Error);
}

TEST(KnownQuestions, OnlyTheLastQuestionCounts) {
  const std::vector<ChatMessage> messages = {
      {"system", "hello"}, {"user", "hello"}, {"assistant", "hi"}, {"user", "not True is"}};
  EXPECT_NO_THROW(CheckKnown(Taught(), messages));
}

TEST(KnownQuestions, OtherModelsAreAskedAnything) {
  const Engine engine(
      {.model = SPA_TEST_DATA "/mini.gguf", .threads = 1, .kv_type = KvType::kF32, .progress = {}});
  EXPECT_FALSE(engine.config().single_turn);
  EXPECT_NO_THROW(Check(engine, "Why is the sky blue?"));
}

}  // namespace
}  // namespace spa
