// spa.cpp for C++ programs, in one header over the stable C interface (spa_c.h).
//
//   spa::Result<spa::Model> model = spa::Model::Load();           // or Load("model.gguf")
//   spa::Result<spa::Answer> answer = model->Ask("not ( True ) is");
//   if (!answer) { puts(answer.error().c_str()); return 1; }
//   puts(answer->text.c_str());
//
// Errors are values: a Result holds the value or a one-line error message. A model may be used by
// one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spa/spa_c.h"

namespace spa {

template <typename T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  static Result Failed(std::string error) {
    Result result;
    result.error_ = std::move(error);
    return result;
  }

  explicit operator bool() const { return value_.has_value(); }
  const std::string& error() const { return error_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return &*value_; }

 private:
  Result() = default;
  std::optional<T> value_;
  std::string error_;
};

struct Answer {
  std::string text;
  std::vector<int32_t> ids;  // the whole canvas
  size_t steps = 0;
  double seconds = 0.0;
  double rows_fraction = 0.0;  // share of rows that were computed
};

// The canvas after a step.
struct Frame {
  size_t step = 0;
  std::vector<int32_t> ids;
  std::vector<bool> settled;
  std::string text;  // the settled beginning of the answer
};

struct GenerateOptions {
  std::string options = {};            // "threshold=0.9 gen-length=64": see `spa options`
  std::string cache = {};              // "spa:rank=64"; empty: the model's default
  const spa_policy* policy = nullptr;  // your own cache instead
  std::function<bool(const Frame&)> on_step = {};  // false stops
};

class Model {
 public:
  // A GGUF file or a Hugging Face folder; empty: the embedded model.
  static Result<Model> Load(const std::string& path = "", size_t threads = 0) {
    spa_model* model = nullptr;
    const spa_status status =
        spa_model_load(path.empty() ? nullptr : path.c_str(), threads, &model);
    if (status != SPA_OK) return Result<Model>::Failed(spa_last_error());
    return Model(model);
  }

  // A question in the model's chat template.
  Result<Answer> Ask(const std::string& question, const GenerateOptions& options = {}) {
    Result<std::vector<int32_t>> ids = Ids(spa_tokenize_chat, question);
    if (!ids) return Result<Answer>::Failed(ids.error());
    return Generate(*ids, options);
  }

  Result<std::vector<int32_t>> Tokenize(const std::string& text) { return Ids(spa_tokenize, text); }

  Result<Answer> Generate(const std::vector<int32_t>& prompt, const GenerateOptions& options = {}) {
    spa_generate_options c = {};
    c.size = sizeof(c);
    c.options = options.options.empty() ? nullptr : options.options.c_str();
    c.cache = options.cache.empty() ? nullptr : options.cache.c_str();
    c.policy = options.policy;
    if (options.on_step) {
      c.user = const_cast<GenerateOptions*>(&options);
      c.on_step = [](void* user, const spa_frame* frame) {
        const Frame copy{frame->step, std::vector<int32_t>(frame->ids, frame->ids + frame->num_ids),
                         std::vector<bool>(frame->settled, frame->settled + frame->num_ids),
                         frame->text};
        return static_cast<GenerateOptions*>(user)->on_step(copy) ? 0 : 1;
      };
    }
    spa_result* made = nullptr;
    if (spa_generate(model_.get(), prompt.data(), prompt.size(), &c, &made) != SPA_OK) {
      return Result<Answer>::Failed(spa_last_error());
    }
    const std::unique_ptr<spa_result, decltype(&spa_result_free)> result(made, spa_result_free);
    size_t count = 0;
    const int32_t* ids = spa_result_ids(made, &count);
    return Answer{spa_result_text(made),
                  {ids, ids + count},
                  spa_result_steps(made),
                  spa_result_seconds(made),
                  spa_result_rows_fraction(made)};
  }

  // Logits of one dense pass, row by row: [ids.size(), vocab_size()].
  Result<std::vector<float>> Logits(const std::vector<int32_t>& ids) {
    std::vector<float> logits(ids.size() * vocab_size());
    if (spa_logits(model_.get(), ids.data(), ids.size(), logits.data()) != SPA_OK) {
      return Result<std::vector<float>>::Failed(spa_last_error());
    }
    return logits;
  }

  size_t vocab_size() const { return spa_model_vocab_size(model_.get()); }
  size_t num_layers() const { return spa_model_num_layers(model_.get()); }
  int32_t mask_id() const { return spa_model_mask_id(model_.get()); }

 private:
  explicit Model(spa_model* model) : model_(model, spa_model_free) {}

  template <typename Tokenizer>
  Result<std::vector<int32_t>> Ids(Tokenizer tokenize, const std::string& text) {
    std::vector<int32_t> ids(text.size() + 256);
    for (size_t count = 0;; ids.resize(count)) {
      if (tokenize(model_.get(), text.c_str(), ids.data(), ids.size(), &count) != SPA_OK) {
        return Result<std::vector<int32_t>>::Failed(spa_last_error());
      }
      if (count <= ids.size()) {
        ids.resize(count);
        return ids;
      }
    }
  }

  std::unique_ptr<spa_model, decltype(&spa_model_free)> model_;
};

}  // namespace spa
