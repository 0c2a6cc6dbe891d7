#include "text/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "file/quoted.h"
#include "text/pre_tokenizer.h"

namespace spa {

namespace {

using Json = nlohmann::json;

// Where a tokenizer's long lists are in a JSON file.
enum class JsonLayout {
  kPlain,          // none: everything is wanted as a document
  kTokenizerJson,  // /model/vocab and /model/merges
  kVocabJson,      // the whole file is the vocabulary
};

// Builds a document from SAX events, except for the vocabulary and the merges: a document of
// several hundred thousand small strings would take longer to build than the tokenizer itself.
class JsonLoader : public nlohmann::json_sax<Json> {
 public:
  // `parts` receives vocabulary and merges; its storage must have room for them without moving.
  JsonLoader(JsonLayout layout, const std::string& name, TokenizerParts* parts)
      : layout_(layout), name_(name), parts_(parts) {}

  Json Take() { return std::move(root_); }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override {
    return list_ == List::kVocab ? AddToken(value) : Value(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ != List::kVocab) return Value(value);
    return AddToken(static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)));
  }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool string(string_t& value) override {
    if (list_ == List::kMerges) {
      const size_t space = value.find(' ');
      if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
        throw Error("{}: merge {} is {}, not two tokens with a space between", name_,
                    parts_->merges.size(), Quoted(value));
      }
      parts_->merges.emplace_back(Store(std::string_view(value).substr(0, space)),
                                  Store(std::string_view(value).substr(space + 1)));
      return true;
    }
    if (list_ == List::kMergePair) {
      if (pair_length_ < pair_.size()) pair_[pair_length_] = Store(value);
      ++pair_length_;
      return true;
    }
    return Value(std::move(value));
  }
  bool binary(binary_t&) override { return Value(nullptr); }  // not in JSON text

  bool start_object(size_t) override {
    const bool is_vocab = (layout_ == JsonLayout::kVocabJson && open_.empty()) ||
                          (in_model_ && open_.size() == 2 && key_ == "vocab");
    if (is_vocab && list_ == List::kNone) {
      list_ = List::kVocab;
      return true;
    }
    if (layout_ == JsonLayout::kTokenizerJson && open_.size() == 1 && key_ == "model") {
      in_model_ = true;
    }
    return Open(Json::object());
  }
  bool key(string_t& value) override {
    if (list_ == List::kVocab) {
      vocab_text_ = Store(value);
    } else {
      key_ = std::move(value);
    }
    return true;
  }
  bool end_object() override {
    if (list_ == List::kVocab) {
      list_ = List::kNone;
      return true;
    }
    open_.pop_back();
    if (open_.size() < 2) in_model_ = false;
    return true;
  }
  bool start_array(size_t) override {
    if (in_model_ && open_.size() == 2 && key_ == "merges" && list_ == List::kNone) {
      list_ = List::kMerges;
      return true;
    }
    if (list_ == List::kMerges) {
      list_ = List::kMergePair;
      pair_length_ = 0;
      return true;
    }
    return Open(Json::array());
  }
  bool end_array() override {
    if (list_ == List::kMerges) {
      list_ = List::kNone;
    } else if (list_ == List::kMergePair) {
      if (pair_length_ != pair_.size()) {
        throw Error("{}: merge {} has {} tokens instead of 2", name_, parts_->merges.size(),
                    pair_length_);
      }
      parts_->merges.emplace_back(pair_[0], pair_[1]);
      list_ = List::kMerges;
    } else {
      open_.pop_back();
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    throw Error("{}: damaged JSON at byte {}", name_, position);
  }

 private:
  enum class List { kNone, kVocab, kMerges, kMergePair };

  std::string_view Store(std::string_view text) {
    std::string& storage = parts_->storage;
    SPA_CHECK(storage.size() + text.size() <= storage.capacity());
    const size_t begin = storage.size();
    storage += text;
    return std::string_view(storage).substr(begin);
  }
  bool AddToken(int64_t id) {
    parts_->vocab.push_back({id, vocab_text_});
    return true;
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
  bool Value(Json value) {
    Insert(std::move(value));
    return true;
  }
  bool Open(Json container) {
    constexpr size_t kDeepest = 64;  // tokenizer files nest less than 10 deep
    if (open_.size() >= kDeepest) throw Error("{}: JSON nested too deeply", name_);
    open_.push_back(Insert(std::move(container)));
    return true;
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

Json LoadJson(std::string_view text, const std::string& name, JsonLayout layout,
              TokenizerParts* parts) {
  if (layout != JsonLayout::kPlain) {
    // Strings in JSON are never shorter than what they stand for, so nothing moves.
    parts->storage.reserve(parts->storage.size() + text.size());
  }
  JsonLoader loader(layout, name, parts);
  Json::sax_parse(text.begin(), text.end(), &loader);
  return loader.Take();
}

std::string_view View(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

bool IsFile(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// An object from a JSON file; empty if the file is absent.
Json LoadObject(const std::filesystem::path& path) {
  if (!IsFile(path)) return Json::object();
  const MappedFile file(path);
  Json document = LoadJson(View(file), path.string(), JsonLayout::kPlain, nullptr);
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
  static const Json kNoSteps = Json::array();
  const Json* steps = pre_tokenizer == nullptr ? nullptr : Member(*pre_tokenizer, "pretokenizers");
  if (steps == nullptr || !steps->is_array()) steps = &kNoSteps;
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
  const Json document = LoadJson(text, name, JsonLayout::kTokenizerJson, parts);
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
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      throw Error("{}: {} is not two tokens with a space between", name, Quoted(line));
    }
    parts->merges.emplace_back(line.substr(0, space), line.substr(space + 1));
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
    const int64_t id = TokenIdFrom(*value, name + ": " + key);
    if (id >= 0) return id;  // some configurations write -1 for none
  }
  return std::nullopt;
}

// Whatever the files say of its kind, the mask is a control token: nothing typed becomes it, and
// it is never shown.
void MakeMaskControl(TokenizerParts* parts) {
  if (!parts->mask) return;
  for (auto& token : parts->added) {
    if (token.id != *parts->mask) continue;
    token.control = true;
    return;
  }
  const auto entry = std::find_if(parts->vocab.begin(), parts->vocab.end(),
                                  [&](const auto& token) { return token.id == *parts->mask; });
  if (entry == parts->vocab.end()) return;
  parts->added.push_back({entry->id, std::string(entry->text), true});
  parts->vocab.erase(entry);
}

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
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      throw Error("{}: merge {} is {}, not two tokens with a space between", file.name(),
                  parts.merges.size(), Quoted(merge));
    }
    parts.merges.emplace_back(std::string_view(merge).substr(0, space),
                              std::string_view(merge).substr(space + 1));
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
    ReadTokenizerJson(View(file), json_path.string(), &parts);
  } else if (IsFile(vocab_path) && IsFile(merges_path)) {
    // These files do not say how text is split; the class that reads them does.
    const std::string type = StringOr(Member(config, "tokenizer_class"), "none");
    if (type != "DreamTokenizer" && type != "Qwen2Tokenizer" && type != "Qwen2TokenizerFast") {
      throw Error("{}: tokenizer class {} is not implemented without a tokenizer.json",
                  folder.string(), Quoted(type));
    }
    parts.nfc = true;
    const MappedFile vocab(vocab_path);
    if (!LoadJson(View(vocab), vocab_path.string(), JsonLayout::kVocabJson, &parts).is_null()) {
      throw Error("{} is not a JSON object", vocab_path.string());
    }
    parts.mapped = std::make_unique<MappedFile>(merges_path);
    ReadMergesText(View(*parts.mapped), merges_path.string(), &parts);
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
    parts.chat_template = View(MappedFile(jinja_path));
  }
  MakeMaskControl(&parts);
  return parts;
}

}  // namespace spa
