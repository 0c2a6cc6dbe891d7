// The tokenizer in the metadata of a GGUF file.
#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "file/quoted.h"
#include "text/tokenizer_parts.h"

namespace spa {
namespace {

struct PreTokenizer {
  std::string_view name;  // tokenizer.ggml.pre
  size_t max_digits;
  bool nfc;
  bool ignore_merges;
};

// GGUF has no field for the normalizer: the name implies it. Qwen2's and Dream's own tokenizers
// compose (NFC), although llama.cpp does not; LLaDA's family and Llama 3 leave text as it is.
// When settings are turned into a name, the first line that has them wins.
constexpr PreTokenizer kPreTokenizers[] = {
    {"qwen2", 1, true, false},        {"bailingmoe", 1, false, false},
    {"bailingmoe2", 1, false, false}, {"llada-moe", 1, false, false},
    {"llama-bpe", 3, false, true},    {"llama3", 3, false, true},
    {"llama-v3", 3, false, true},
};

}  // namespace

std::optional<std::string> PreTokenizerName(size_t max_digits, bool nfc, bool ignore_merges) {
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (pre.max_digits == max_digits && pre.nfc == nfc && pre.ignore_merges == ignore_merges) {
      return std::string(pre.name);
    }
  }
  return std::nullopt;
}

TokenizerParts PartsFromGguf(const GgufFile& file) {
  TokenizerParts parts;
  const std::string* model = file.FindString("tokenizer.ggml.model");
  if (model == nullptr) throw Error("{} contains no tokenizer", file.name());
  if (*model != "gpt2") {
    throw Error("{}: tokenizer model {} is not implemented (only gpt2, byte-level BPE)",
                file.name(), Quoted(*model));
  }
  const std::string* pre_name = file.FindString("tokenizer.ggml.pre");
  if (pre_name == nullptr) {
    throw Error("{} does not say how its tokenizer splits text (tokenizer.ggml.pre)", file.name());
  }
  const auto* pre =
      std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                   [&](const PreTokenizer& known) { return known.name == *pre_name; });
  if (pre == std::end(kPreTokenizers)) {
    throw Error("{}: pre-tokenizer {} is not implemented", file.name(), Quoted(*pre_name));
  }
  parts.max_digits = pre->max_digits;
  parts.nfc = pre->nfc;
  parts.ignore_merges = pre->ignore_merges;

  const std::vector<std::string>* tokens = file.FindStrings("tokenizer.ggml.tokens");
  const std::vector<std::string>* merges = file.FindStrings("tokenizer.ggml.merges");
  if (tokens == nullptr || merges == nullptr) {
    throw Error("{}: the tokenizer has no {}", file.name(),
                tokens == nullptr ? "tokens" : "merges");
  }
  std::vector<int64_t> types;
  if (const GgufValue* value = file.FindValue("tokenizer.ggml.token_type"); value != nullptr) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(value)) types = *list;
    if (const auto* list = std::get_if<std::vector<uint64_t>>(value)) {
      types.assign(list->begin(), list->end());
    }
  }
  if (types.size() != tokens->size()) {
    throw Error("{}: {} tokens but {} token types", file.name(), tokens->size(), types.size());
  }
  parts.vocab.reserve(tokens->size());
  for (size_t id = 0; id < tokens->size(); ++id) {
    switch (types[id]) {
      case 1:
        parts.vocab.push_back({static_cast<int64_t>(id), (*tokens)[id]});
        break;
      case 2:  // unknown
      case 3:  // control
        parts.added.push_back({static_cast<int64_t>(id), (*tokens)[id], true});
        break;
      case 4:  // user-defined
        parts.added.push_back({static_cast<int64_t>(id), (*tokens)[id], false});
        // Merges may name it too. With whole words first this would let plain text become it.
        if (!parts.ignore_merges) parts.vocab.push_back({static_cast<int64_t>(id), (*tokens)[id]});
        break;
      case 5:  // unused: a row of the embedding that no token has
        break;
      default:
        throw Error("{}: token {} has the unknown type {}", file.name(), id, types[id]);
    }
  }
  parts.merges.reserve(merges->size());
  for (const std::string& merge : *merges) {
    const auto pair = SplitMerge(merge);
    if (!pair) {
      throw Error("{}: merge {} is {}, not two tokens with a space between", file.name(),
                  parts.merges.size(), Quoted(merge));
    }
    parts.merges.push_back(*pair);
  }
  const auto find_id = [&](const char* key) -> std::optional<int64_t> {
    const auto id = file.FindUint(key);
    if (!id) return std::nullopt;
    return static_cast<int64_t>(std::min<uint64_t>(*id, INT64_MAX));
  };
  parts.bos = find_id("tokenizer.ggml.bos_token_id");
  parts.eos = find_id("tokenizer.ggml.eos_token_id");
  parts.pad = find_id("tokenizer.ggml.padding_token_id");
  parts.mask = find_id("tokenizer.ggml.mask_token_id");
  parts.end_of_turn = find_id("tokenizer.ggml.eot_token_id");
  if (const std::string* chat = file.FindString("tokenizer.chat_template")) {
    parts.chat_template = *chat;
  }
  MakeMaskControl(&parts);
  return parts;
}

}  // namespace spa
