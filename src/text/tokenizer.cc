#include "text/tokenizer.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "file/quoted.h"
#include "text/added_token_finder.h"
#include "text/byte_pair_encoder.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace spa {

namespace {

// What LLaDA and Dream call these tokens, for files that do not say.
constexpr std::string_view kMaskTexts[] = {"<|mdm_mask|>", "<|mask|>", "<|MASK|>", "|<MASK>|"};
constexpr std::string_view kEndOfTurnTexts[] = {"<|eot_id|>", "<|im_end|>", "<|role_end|>"};

Vocabulary MakeVocabulary(const TokenizerParts& parts,
                          const std::unordered_map<std::string_view, TokenId>& added_ids) {
  Vocabulary vocabulary(parts.vocab.size() + parts.added.size());
  // In the order of the list, so that of two equal entries the first gives the flags.
  for (const auto& token : parts.added) {
    const auto id = static_cast<TokenId>(token.id);  // in range: MakeAddedIds has looked
    const bool known =
        vocabulary.kind(id) != TokenKind::kNone && vocabulary.Bytes(id) == token.content;
    if (!known) vocabulary.AddAdded(token.id, token.content, token.control);
  }
  for (const auto& token : parts.vocab) {
    if (const auto added = added_ids.find(token.text);
        added != added_ids.end() && added->second != token.id) {
      throw Error("the added token {} has the id {}, but {} in the vocabulary", Quoted(token.text),
                  added->second, token.id);
    }
    vocabulary.AddNormal(token.id, token.text);
  }
  return vocabulary;
}

std::unordered_map<std::string_view, TokenId> MakeAddedIds(const TokenizerParts& parts) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (const auto& token : parts.added) {
    if (token.id < 0 || token.id > kMaxTokenId) {
      throw Error("the added token {} has the impossible id {}", Quoted(token.content), token.id);
    }
    const auto [entry, inserted] = ids.emplace(token.content, static_cast<TokenId>(token.id));
    if (!inserted && entry->second != token.id) {
      throw Error("the added token {} has two ids, {} and {}", Quoted(token.content), entry->second,
                  token.id);
    }
  }
  return ids;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const TokenizerParts& parts) : Impl(parts, MakeAddedIds(parts)) {}

  Impl(const TokenizerParts& parts, const std::unordered_map<std::string_view, TokenId>& ids)
      : encoder(MakeVocabulary(parts, ids), parts.merges, parts.ignore_merges),
        max_digits(parts.max_digits),
        nfc(parts.nfc),
        chat_template(parts.chat_template) {
    for (const auto& [text, id] : ids) added_ids.emplace(text, id);
    bos = CheckId(parts.bos, "bos");
    eos = CheckId(parts.eos, "eos");
    pad = CheckId(parts.pad, "pad");
    mask = CheckId(parts.mask, "mask");
    if (!mask) mask = FindAdded(kMaskTexts);
    end_of_turn = CheckId(parts.end_of_turn, "eot");
    if (!end_of_turn) end_of_turn = FindAdded(kEndOfTurnTexts);
    for (const auto& [text, id] : added_ids) {
      // Nobody may type a mask into a prompt: it would be filled in like the answer.
      const bool is_mask = id == mask || std::find(std::begin(kMaskTexts), std::end(kMaskTexts),
                                                   text) != std::end(kMaskTexts);
      if (!is_mask) finder.Add(text, id);
    }
  }

  const Vocabulary& vocabulary() const { return encoder.vocabulary(); }

  std::optional<TokenId> CheckId(std::optional<int64_t> id, const char* name) const {
    if (!id) return std::nullopt;
    if (*id < 0 || *id > kMaxTokenId ||
        vocabulary().kind(static_cast<TokenId>(*id)) == TokenKind::kNone) {
      throw Error("the {} token id {} names no token; the vocabulary has {}", name, *id,
                  vocabulary().size());
    }
    return static_cast<TokenId>(*id);
  }

  std::optional<TokenId> FindAdded(std::span<const std::string_view> texts) const {
    for (const std::string_view text : texts) {
      if (const auto found = added_ids.find(std::string(text)); found != added_ids.end()) {
        return found->second;
      }
    }
    return std::nullopt;
  }

  // Appends the ids of plain, valid UTF-8.
  void EncodePiece(std::string_view text, std::vector<TokenId>* out) const {
    std::string composed;
    if (nfc) {
      composed = ToNfc(text);
      text = composed;
    }
    const CharTable& table = CharTable::Get();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = WordEnd(text, begin, max_digits, table);
      encoder.EncodeWord(text.substr(begin, end - begin), out);
      begin = end;
    }
  }

  BytePairEncoder encoder;
  size_t max_digits;
  bool nfc;
  std::string chat_template;
  std::unordered_map<std::string, TokenId> added_ids;
  AddedTokenFinder finder;  // all added tokens but the mask
  std::optional<TokenId> bos, eos, pad, mask, end_of_turn;
};

namespace {

// The text as valid UTF-8, kept in `storage` if it has to be repaired.
std::string_view Validated(std::string_view text, std::string* storage) {
  constexpr size_t kMaxTextBytes = size_t{1} << 30;  // NFC may triple it; positions have 32 bits
  if (text.size() > kMaxTextBytes) {
    throw Error("a text of {} bytes is too long to encode (limit {})", text.size(), kMaxTextBytes);
  }
  if (IsValidUtf8(text)) return text;
  *storage = ToValidUtf8(text);
  return *storage;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::FromGguf(const GgufFile& file) {
  const TokenizerParts parts = PartsFromGguf(file);
  try {
    return Tokenizer(std::make_unique<Impl>(parts));
  } catch (const Error& error) {
    throw Error("{}: {}", file.name(), error.what());
  }
}

Tokenizer Tokenizer::FromFolder(const std::filesystem::path& folder) {
  const TokenizerParts parts = PartsFromFolder(folder);
  try {
    return Tokenizer(std::make_unique<Impl>(parts));
  } catch (const Error& error) {
    throw Error("{}: {}", folder.string(), error.what());
  }
}

Tokenizer Tokenizer::FromJson(std::string_view tokenizer_json, const std::string& name) {
  const TokenizerParts parts = PartsFromJson(tokenizer_json, name);
  try {
    return Tokenizer(std::make_unique<Impl>(parts));
  } catch (const Error& error) {
    throw Error("{}: {}", name, error.what());
  }
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text) const {
  std::string storage;
  text = Validated(text, &storage);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  impl_->EncodePiece(text, &ids);
  return ids;
}

std::vector<TokenId> Tokenizer::EncodeWithSpecial(std::string_view text) const {
  std::string storage;
  text = Validated(text, &storage);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  for (size_t begin = 0; begin < text.size();) {
    const AddedTokenFinder::Match match = impl_->finder.Find(text, begin);
    impl_->EncodePiece(text.substr(begin, match.begin - begin), &ids);
    if (match.id >= 0) ids.push_back(match.id);
    begin = match.end;
  }
  return ids;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const { return impl_->vocabulary().Bytes(id); }

bool Tokenizer::IsControl(TokenId id) const {
  return impl_->vocabulary().kind(id) == TokenKind::kControl;
}

std::string Tokenizer::Decode(const std::vector<TokenId>& ids) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!IsControl(id)) bytes += TokenBytes(id);
  }
  return ToValidUtf8(bytes);
}

size_t Tokenizer::vocab_size() const { return impl_->vocabulary().size(); }

std::optional<TokenId> Tokenizer::Find(std::string_view token_text) const {
  if (const auto added = impl_->FindAdded({&token_text, 1})) return added;
  return impl_->vocabulary().FindNormal(token_text);
}

std::optional<TokenId> Tokenizer::bos() const { return impl_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->eos; }
std::optional<TokenId> Tokenizer::pad() const { return impl_->pad; }
std::optional<TokenId> Tokenizer::mask() const { return impl_->mask; }
std::optional<TokenId> Tokenizer::end_of_turn() const { return impl_->end_of_turn; }
const std::string& Tokenizer::chat_template() const { return impl_->chat_template; }

Tokenizer::GgufForm Tokenizer::ToGguf(size_t num_rows) const {
  const Vocabulary& vocabulary = impl_->vocabulary();
  if (num_rows < vocabulary.size()) {
    throw Error("the tokenizer has {} tokens, the model only {} rows for them", vocabulary.size(),
                num_rows);
  }
  const auto pre =
      PreTokenizerName(impl_->max_digits, impl_->nfc, impl_->encoder.whole_words_first());
  if (!pre) throw Error("GGUF has no pre-tokenizer name for: {}", Describe());
  GgufForm form;
  form.pre = *pre;
  form.chat_template = impl_->chat_template;
  form.tokens.reserve(num_rows);
  form.types.reserve(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    const auto id = static_cast<TokenId>(row);
    const std::string_view bytes = vocabulary.Bytes(id);
    switch (vocabulary.kind(id)) {
      case TokenKind::kNone:
        form.tokens.push_back(fmt::format("[PAD{}]", row));
        form.types.push_back(5);
        break;
      case TokenKind::kNormal:
        // An entry that merges cannot make is not spelled in the alphabet.
        form.tokens.push_back(vocabulary.FindNormal(bytes) == id ? BytesToAlphabet(bytes)
                                                                 : std::string(bytes));
        form.types.push_back(1);
        break;
      case TokenKind::kUserDefined:
        form.tokens.emplace_back(bytes);
        form.types.push_back(4);
        break;
      case TokenKind::kControl:
        form.tokens.emplace_back(bytes);
        form.types.push_back(3);
        break;
    }
  }
  form.merges.reserve(impl_->encoder.merges().size());
  for (const auto& [left, right] : impl_->encoder.merges()) {
    form.merges.push_back(form.tokens[left] + ' ' + form.tokens[right]);
  }
  return form;
}

std::string Tokenizer::Describe() const {
  const auto show = [&](const char* name, std::optional<TokenId> id) {
    return id ? fmt::format(", {} {} {}", name, *id, Quoted(TokenBytes(*id))) : std::string();
  };
  return fmt::format(
      "byte-level BPE, {} tokens ({} added), {} merges, {}{}{}{}{}{}{}", vocab_size(),
      impl_->added_ids.size(), impl_->encoder.merges().size(),
      impl_->max_digits == 1 ? "single digits" : "digits by threes", impl_->nfc ? ", NFC" : "",
      impl_->encoder.whole_words_first() ? ", whole words first" : "", show("bos", bos()),
      show("eos", eos()), show("mask", mask()), show("end of turn", end_of_turn()));
}

}  // namespace spa
