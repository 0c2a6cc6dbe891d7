// The tokenizer in a published folder: tokenizer.json, or vocab.json with merges.txt, and the small
// files around them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "file/quoted.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"

namespace spa {
namespace {

using Json = nlohmann::json;

bool IsFile(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// An object from a JSON file; empty if the file is absent.
Json LoadObject(const std::filesystem::path& path) {
  if (!IsFile(path)) return Json::object();
  const MappedFile file(path);
  Json document = LoadTokenizerJson(file.text(), path.string(), JsonLayout::kPlain, nullptr);
  if (!document.is_object()) throw Error("{} is not a JSON object", path.string());
  return document;
}

// nullptr if absent or null.
const Json* Member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The string, or a description of what is there instead.
std::string StringOr(const Json* value, const char* otherwise) {
  if (value == nullptr) return otherwise;
  return value->is_string() ? value->get<std::string>() : std::string(value->type_name());
}

bool IsTrue(const Json& object, const char* key) {
  const Json* value = Member(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

int64_t TokenIdFrom(const Json& value, const std::string& what) {
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX));
  }
  if (!value.is_number_integer()) throw Error("{} has an id that is not an integer", what);
  return value.get<int64_t>();
}

void AddToken(const Json& token, int64_t id, const std::string& name, TokenizerParts* parts) {
  const Json* content = Member(token, "content");
  if (content == nullptr || !content->is_string()) {
    throw Error("{}: added token {} has no content", name, id);
  }
  const std::string& text = content->get_ref<const std::string&>();
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    if (IsTrue(token, flag)) {
      throw Error("{}: added token {} asks for {}, which is not implemented", name, Quoted(text),
                  flag);
    }
  }
  // "normalized" is not asked: it matters only for tokens whose own characters NFC changes.
  parts->added.push_back({id, text, IsTrue(token, "special")});
}

void ReadNormalizer(const Json* normalizer, const std::string& name, TokenizerParts* parts) {
  if (normalizer == nullptr) return;
  const std::string type = StringOr(Member(*normalizer, "type"), "without a type");
  if (type == "NFC") {
    parts->nfc = true;
  } else if (const Json* steps = Member(*normalizer, "normalizers");
             type == "Sequence" && steps != nullptr && steps->is_array()) {
    for (const Json& step : *steps) ReadNormalizer(&step, name, parts);
  } else {
    throw Error("{}: normalizer {} is not implemented (only NFC)", name, Quoted(type));
  }
}

void ReadPreTokenizer(const Json* pre_tokenizer, const std::string& name, TokenizerParts* parts) {
  // Exactly: split by a known pattern, then spell each word in the byte-level alphabet.
  static const Json no_steps = Json::array();
  const Json* steps = pre_tokenizer == nullptr ? nullptr : Member(*pre_tokenizer, "pretokenizers");
  if (steps == nullptr || !steps->is_array()) steps = &no_steps;
  const auto type = [&](size_t k) { return StringOr(Member((*steps)[k], "type"), ""); };
  if (steps->size() != 2 || type(0) != "Split" || type(1) != "ByteLevel") {
    std::string found = pre_tokenizer == nullptr
                            ? "none"
                            : StringOr(Member(*pre_tokenizer, "type"), "without a type");
    for (size_t k = 0; k < std::min<size_t>(steps->size(), 8); ++k) {
      found += ' ';
      found += type(k);
    }
    throw Error("{}: pre-tokenizer {} is not implemented (only Split and ByteLevel in sequence)",
                name, Quoted(found));
  }
  const Json& split = (*steps)[0];
  const Json* pattern = Member(split, "pattern");
  const std::string regex =
      StringOr(pattern == nullptr ? nullptr : Member(*pattern, "Regex"), "none");
  const std::optional<size_t> max_digits = MaxDigitsOfPattern(regex);
  if (!max_digits) {
    // Shown whole, as the file spells it: it is what a report about it needs.
    throw Error("{}: the split pattern {} is not implemented", name,
                Json(regex.substr(0, 1000)).dump(-1, ' ', true, Json::error_handler_t::replace));
  }
  if (StringOr(Member(split, "behavior"), "") != "Isolated" || IsTrue(split, "invert")) {
    throw Error("{}: only Split with behavior Isolated, not inverted, is implemented", name);
  }
  const Json& byte_level = (*steps)[1];
  // The two flags are on unless the file says false.
  for (const char* flag : {"add_prefix_space", "use_regex"}) {
    const Json* value = Member(byte_level, flag);
    if (value == nullptr || !value->is_boolean() || value->get<bool>()) {
      throw Error("{}: ByteLevel with {} is not implemented", name, flag);
    }
  }
  parts->max_digits = *max_digits;
}

void ReadModel(const Json* model, const std::string& name, TokenizerParts* parts) {
  if (model == nullptr) throw Error("{} has no model", name);
  const std::string type = StringOr(Member(*model, "type"), "BPE");  // old files do not say it
  if (type != "BPE") throw Error("{}: model {} is not implemented (only BPE)", name, Quoted(type));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!StringOr(Member(*model, key), "").empty()) {
      throw Error("{}: a BPE model with {} is not implemented", name, key);
    }
  }
  if (const Json* dropout = Member(*model, "dropout"); dropout != nullptr && *dropout != 0) {
    throw Error("{}: a BPE model with dropout is not implemented", name);
  }
  if (IsTrue(*model, "byte_fallback")) {
    throw Error("{}: a BPE model with byte_fallback is not implemented", name);
  }
  parts->ignore_merges = IsTrue(*model, "ignore_merges");
}

void ReadTokenizerJson(std::string_view text, const std::string& name, TokenizerParts* parts) {
  const Json document = LoadTokenizerJson(text, name, JsonLayout::kTokenizerJson, parts);
  if (!document.is_object()) throw Error("{} is not a JSON object", name);
  ReadModel(Member(document, "model"), name, parts);
  ReadNormalizer(Member(document, "normalizer"), name, parts);
  ReadPreTokenizer(Member(document, "pre_tokenizer"), name, parts);
  if (const Json* decoder = Member(document, "decoder"); decoder != nullptr) {
    const std::string type = StringOr(Member(*decoder, "type"), "without a type");
    if (type != "ByteLevel") throw Error("{}: decoder {} is not implemented", name, Quoted(type));
  }
  // The post-processor is not read: who encodes a prompt says which tokens go around it.
  if (const Json* added = Member(document, "added_tokens"); added != nullptr) {
    if (!added->is_array()) throw Error("{}: added_tokens is not a list", name);
    for (const Json& token : *added) {
      const Json* id = Member(token, "id");
      if (id == nullptr) throw Error("{}: an added token has no id", name);
      AddToken(token, TokenIdFrom(*id, name), name, parts);
    }
  }
}

void ReadMergesText(std::string_view text, const std::string& name, TokenizerParts* parts) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const auto pair = SplitMerge(line);
    if (!pair) throw Error("{}: {} is not two tokens with a space between", name, Quoted(line));
    parts->merges.push_back(*pair);
  }
}

// The id that the first of `objects` to mention it gives to a token, by text ("mask_token", a
// string or an object with content) or by number ("mask_token_id"). Texts are preferred: Dream's
// config.json names another beginning of text than its tokenizer.
std::optional<int64_t> SpecialId(const std::vector<const Json*>& objects, const std::string& key,
                                 const TokenizerParts& parts, const std::string& name) {
  for (const Json* object : objects) {
    const Json* value = Member(*object, key.c_str());
    if (value != nullptr && value->is_object()) value = Member(*value, "content");
    if (value == nullptr || !value->is_string()) continue;
    const std::string& text = value->get_ref<const std::string&>();
    for (const auto& token : parts.added) {
      if (token.content == text) return token.id;
    }
    for (const auto& token : parts.vocab) {
      if (token.text == text) return token.id;
    }
    throw Error("{}: the {} {} is not in the vocabulary", name, key, Quoted(text));
  }
  for (const Json* object : objects) {
    const Json* value = Member(*object, (key + "_id").c_str());
    if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
    if (value == nullptr || !value->is_number()) continue;
    const int64_t id = TokenIdFrom(*value, fmt::format("{}: {}", name, key));
    if (id >= 0) return id;  // some configurations write -1 for none
  }
  return std::nullopt;
}

}  // namespace

TokenizerParts PartsFromJson(std::string_view tokenizer_json, const std::string& name) {
  TokenizerParts parts;
  ReadTokenizerJson(tokenizer_json, name, &parts);
  return parts;
}

TokenizerParts PartsFromFolder(const std::filesystem::path& folder) {
  TokenizerParts parts;
  const Json config = LoadObject(folder / "tokenizer_config.json");
  const std::filesystem::path json_path = folder / "tokenizer.json";
  const std::filesystem::path vocab_path = folder / "vocab.json";
  const std::filesystem::path merges_path = folder / "merges.txt";
  if (IsFile(json_path)) {
    const MappedFile file(json_path);
    ReadTokenizerJson(file.text(), json_path.string(), &parts);
  } else if (IsFile(vocab_path) && IsFile(merges_path)) {
    // These files do not say how text is split; the class that reads them does.
    const std::string type = StringOr(Member(config, "tokenizer_class"), "none");
    if (type != "DreamTokenizer" && type != "Qwen2Tokenizer" && type != "Qwen2TokenizerFast") {
      throw Error("{}: tokenizer class {} is not implemented without a tokenizer.json",
                  folder.string(), Quoted(type));
    }
    parts.nfc = true;
    const MappedFile vocab(vocab_path);
    if (!LoadTokenizerJson(vocab.text(), vocab_path.string(), JsonLayout::kVocabJson, &parts)
             .is_null()) {
      throw Error("{} is not a JSON object", vocab_path.string());
    }
    parts.mapped = std::make_unique<MappedFile>(merges_path);
    ReadMergesText(parts.mapped->text(), merges_path.string(), &parts);
  } else {
    throw Error("{} has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt",
                folder.string());
  }

  const std::string config_name = (folder / "tokenizer_config.json").string();
  if (const Json* decoder = Member(config, "added_tokens_decoder"); decoder != nullptr) {
    if (!decoder->is_object()) throw Error("{}: added_tokens_decoder is damaged", config_name);
    for (const auto& [key, token] : decoder->items()) {
      const bool is_number = !key.empty() && key.size() <= 18 &&
                             key.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number) throw Error("{}: {} is not a token id", config_name, Quoted(key));
      AddToken(token, std::stoll(key), config_name, &parts);
    }
  }
  const std::filesystem::path added_path = folder / "added_tokens.json";
  const Json added = LoadObject(added_path);
  for (const auto& [content, id] : added.items()) {
    // This older file has no flags; what only it lists is taken for plain visible text.
    parts.added.push_back({TokenIdFrom(id, added_path.string()), content, false});
  }

  const Json special_map = LoadObject(folder / "special_tokens_map.json");
  const Json model_config = LoadObject(folder / "config.json");
  const std::string name = folder.string();
  const std::vector<const Json*> sources = {&config, &special_map, &model_config};
  parts.bos = SpecialId(sources, "bos_token", parts, name);
  parts.eos = SpecialId(sources, "eos_token", parts, name);
  parts.pad = SpecialId(sources, "pad_token", parts, name);
  parts.mask = SpecialId(sources, "mask_token", parts, name);
  const std::optional<int64_t> model_mask = SpecialId({&model_config}, "mask_token", parts, name);
  if (model_mask && *model_mask != *parts.mask) {
    throw Error("{}: the tokenizer says the mask token is {}, config.json says {}", name,
                *parts.mask, *model_mask);
  }
  const Json* chat = Member(config, "chat_template");
  const std::filesystem::path jinja_path = folder / "chat_template.jinja";
  if (chat != nullptr && chat->is_string()) {
    parts.chat_template = chat->get<std::string>();
  } else if (IsFile(jinja_path)) {
    parts.chat_template = MappedFile(jinja_path).text();
  }
  MakeMaskControl(&parts);
  return parts;
}

}  // namespace spa
