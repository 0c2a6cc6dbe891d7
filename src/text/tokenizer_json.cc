#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <variant>

#include "base/error.h"
#include "file/json_events.h"
#include "file/quoted.h"

namespace spa {
namespace {

using Json = nlohmann::json;

class Loader : public JsonHandler {
 public:
  // The storage of `parts` must have room for vocabulary and merges without moving.
  Loader(JsonLayout layout, const std::string& name, TokenizerParts* parts)
      : layout_(layout), name_(name), parts_(parts) {}

  Json Take() { return std::move(root_); }

  bool Open(bool is_object) override {
    if (is_object ? OpensVocab() : OpensMerges()) {
      list_ = is_object ? List::kVocab : List::kMerges;
    } else if (!is_object && list_ == List::kMerges) {
      list_ = List::kMergePair;
      pair_length_ = 0;
    } else {
      if (is_object && layout_ == JsonLayout::kTokenizerJson && open_.size() == 1 &&
          key_ == "model") {
        in_model_ = true;
      }
      open_.push_back(Insert(is_object ? Json::object() : Json::array()));
    }
    return true;
  }

  void Close() override {
    switch (list_) {
      case List::kNone:
        open_.pop_back();
        if (open_.size() < 2) in_model_ = false;
        return;
      case List::kVocab:
      case List::kMerges:
        list_ = List::kNone;
        return;
      case List::kMergePair:
        if (pair_length_ != pair_.size()) {
          throw Error("{}: merge {} has {} tokens instead of 2", name_, parts_->merges.size(),
                      pair_length_);
        }
        parts_->merges.emplace_back(pair_[0], pair_[1]);
        list_ = List::kMerges;
    }
  }

  void Key(std::string_view key) override {
    if (list_ == List::kVocab) {
      vocab_text_ = Store(key);
    } else {
      key_ = key;
    }
  }

  void Scalar(const JsonScalar& value) override {
    if (list_ == List::kVocab) {
      if (const auto* id = std::get_if<int64_t>(&value)) return AddToken(*id);
      if (const auto* id = std::get_if<uint64_t>(&value)) {
        return AddToken(static_cast<int64_t>(std::min<uint64_t>(*id, INT64_MAX)));
      }
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      if (list_ == List::kMerges) return AddMerge(*text);
      if (list_ == List::kMergePair) {
        if (pair_length_ < pair_.size()) pair_[pair_length_] = Store(*text);
        ++pair_length_;
        return;
      }
    }
    Insert(std::visit([](const auto& scalar) { return Json(scalar); }, value));
  }

 private:
  enum class List { kNone, kVocab, kMerges, kMergePair };

  bool OpensVocab() const {
    return list_ == List::kNone && ((layout_ == JsonLayout::kVocabJson && open_.empty()) ||
                                    (in_model_ && open_.size() == 2 && key_ == "vocab"));
  }
  bool OpensMerges() const {
    return list_ == List::kNone && in_model_ && open_.size() == 2 && key_ == "merges";
  }
  std::string_view Store(std::string_view text) {
    std::string& storage = parts_->storage;
    SPA_CHECK(storage.size() + text.size() <= storage.capacity());
    const size_t begin = storage.size();
    storage += text;
    return std::string_view(storage).substr(begin);
  }
  void AddToken(int64_t id) { parts_->vocab.push_back({id, vocab_text_}); }
  void AddMerge(std::string_view text) {
    const auto pair = SplitMerge(text);
    if (!pair) {
      throw Error("{}: merge {} is {}, not two tokens with a space between", name_,
                  parts_->merges.size(), Quoted(text));
    }
    parts_->merges.emplace_back(Store(pair->first), Store(pair->second));
  }
  Json* Insert(Json value) {
    if (list_ == List::kVocab) {
      throw Error("{}: the id of {} is not an integer", name_, Quoted(vocab_text_));
    }
    if (list_ != List::kNone) {
      throw Error("{}: merge {} is not two tokens", name_, parts_->merges.size());
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  const JsonLayout layout_;
  const std::string& name_;
  TokenizerParts* const parts_;
  Json root_;
  std::vector<Json*> open_;  // containers around the current position
  std::string key_;          // of the value that comes next, in the innermost object
  bool in_model_ = false;
  List list_ = List::kNone;
  std::string_view vocab_text_;
  std::array<std::string_view, 2> pair_;
  size_t pair_length_ = 0;
};

}  // namespace

Json LoadTokenizerJson(std::string_view text, const std::string& name, JsonLayout layout,
                       TokenizerParts* parts) {
  if (layout != JsonLayout::kPlain) {
    // Strings in JSON are never shorter than what they stand for, so nothing moves.
    parts->storage.reserve(parts->storage.size() + text.size());
  }
  Loader loader(layout, name, parts);
  ParseJson(std::as_bytes(std::span(text)), name, loader);
  return loader.Take();
}

}  // namespace spa
