// Caches side by side on the same prompts and settings, so two rows differ only in the method.
// Every round of prompts visits every cache, so if the machine slows down, all are affected.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode_choices.h"
#include "engine/engine.h"
#include "lab/eval.h"
#include "lab/statistics.h"

namespace spa {

struct CompareEntry {
  CacheSpec cache;
  std::string group;  // heading in the table; empty: none
  std::string label;  // what the row is called
};

// All registered caches that fit the model, with their defaults.
std::vector<CompareEntry> AllCaches(Engine& engine);
// Controls that can refute SPA-Cache's choice of rows: the same budget spent on rows chosen by
// whether their input changed, at random, by age, and by distance to the block.
std::vector<CompareEntry> Controls(const CacheSpec& spa);
std::vector<CompareEntry> Entries(std::span<const CacheSpec> caches);

// The rows of the paper's ablation, as changes of one SPA setting: identifiers, ranks, a uniform
// budget against the adaptive one at the same mean, the cached update against the cached output.
std::vector<CompareEntry> AblationEntries(Engine& engine, const CacheSpec& base);

// A way to decode: what decides how many positions a step settles, and which rows take part.
struct CompareRule {
  std::string label = "plain";
  DecodeOptions decode;
};

// Throws Error if exact decoding was asked for, which uses no cache.
void CheckComparable(const DecodeChoices& given);

// A rule is `plain`, the options given, or those and others: threshold=0.9:credit=0.7.
CompareRule ParseRule(const std::string& label, DecodeChoices given, const Engine& engine);

// The rules to run where none are named: `plain`, and blocks of 16 for a model that decodes token
// by token, where caches that refresh with every block compute every row in every step. A threshold
// adds one rule more.
std::vector<std::string> DefaultRules(const DecodeChoices& given, const Engine& engine,
                                      std::optional<double> threshold = {});

struct CompareOptions {
  std::vector<CompareEntry> entries;  // `none` is put first if it is missing
  std::vector<CompareRule> rules;     // every cache runs with each
  size_t batch = 1;
  TaskOptions task;  // how answers are found
};

struct CompareRow {
  std::string group, cache, rule;
  double tokens_per_second = 0.0;
  double speedup = 0.0;  // against the first row: `none` with the first rule
  double ttft_ms = 0.0;
  double steps = 0.0;  // mean
  double rows_fraction = 0.0;
  double tokens_per_step = 0.0;
  double rows_per_token = 0.0;  // after the first step
  // Accuracy under parallelism of this cache's rules of the same kind, up to this row's tokens per
  // step.
  std::optional<double> aup;
  double agreement = 0.0;                          // with `none` under the same decoding
  std::optional<double> accuracy, standard_error;  // if the questions carry answers
  // Likewise: questions that only this row, or only another one, got right, under the same
  // decoding.
  std::optional<Pairs> against_none, against_fast_dual;
  size_t memory_bytes = 0;
};

// `progress` gets the current cache and the share of all work done.
std::vector<CompareRow> CompareCaches(Engine& engine, const CompareOptions& options,
                                      std::span<const Question> questions,
                                      const Progress& progress = {});

// How many tokens of `none`, up to and including its first stop token, the other canvas shares.
struct Agreement {
  size_t equal = 0, total = 0;
};
Agreement CountAgreement(std::span<const TokenId> exact, std::span<const TokenId> other,
                         std::span<const TokenId> stop_ids);

// One HTML page with plots of quality against speed.
std::string CompareReport(std::span<const CompareRow> rows, const std::string& model,
                          size_t num_questions);

}  // namespace spa
