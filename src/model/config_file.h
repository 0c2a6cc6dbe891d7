// A config.json and GGUF metadata, read by key with checks that name the file and the key; and the
// readers that most families share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "file/gguf.h"
#include "model/config.h"

namespace spa {

class JsonConfig {
 public:
  // Throws Error if the file is missing or no JSON object.
  explicit JsonConfig(const std::filesystem::path& path);

  // A key that is null counts as absent. `alias` is another spelling of it.
  bool Has(const char* key) const { return Find(key, nullptr) != nullptr; }
  std::optional<uint64_t> Uint(const char* key, const char* alias = nullptr) const;
  uint64_t RequiredUint(const char* key, const char* alias = nullptr) const;
  std::optional<double> Number(const char* key) const;
  double RequiredNumber(const char* key) const;
  std::optional<std::vector<double>> Numbers(const char* key) const;
  bool Bool(const char* key, bool absent, const char* alias = nullptr) const;
  std::string String(const char* key) const;                // empty if absent or another type
  std::vector<std::string> Strings(const char* key) const;  // likewise
  // One id or a list of them. A negative id counts as none.
  std::vector<TokenId> Tokens(const char* key) const;
  std::optional<TokenId> Token(const char* key) const;

  // An object within; nothing if absent or another type.
  std::optional<JsonConfig> Object(const char* key) const;

  // Throws Error unless the key is absent or has the only value this engine computes.
  void Expect(const char* key, bool value) const;
  void Expect(const char* key, const char* value) const;
  void Expect(const char* key, uint64_t value) const;
  void ExpectAbsent(const char* key) const;

  const std::string& where() const { return where_; }

 private:
  JsonConfig(std::shared_ptr<const nlohmann::json> document, std::string where)
      : document_(std::move(document)), where_(std::move(where)) {}
  const nlohmann::json* Find(const char* key, const char* alias) const;
  [[noreturn]] void Refuse(const char* key, const std::string& wanted) const;

  std::shared_ptr<const nlohmann::json> document_;
  std::string where_;
};

class GgufConfig {
 public:
  // `architecture`: what the keys begin with.
  GgufConfig(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  // Keys of the architecture.
  std::optional<uint64_t> Uint(const char* key) const { return file_.FindUint(prefix_ + key); }
  uint64_t RequiredUint(const char* key) const;
  std::optional<double> Number(const char* key) const { return file_.FindFloat(prefix_ + key); }
  double RequiredNumber(const char* key) const;
  std::optional<bool> Bool(const char* key) const { return file_.FindBool(prefix_ + key); }
  // A list of whole numbers or of booleans; Error if it is another type. Empty if absent.
  std::vector<uint64_t> Uints(const char* key) const;

  const GgufFile& file() const { return file_; }
  const std::string& prefix() const { return prefix_; }  // "llada."

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// The dimensions as Qwen's descendants name them; refuses scaled RoPE, sliding windows and biases
// of the output projection.
void ReadQwenFolder(const JsonConfig& json, ModelConfig& config);
// The experts of Qwen3-MoE's descendants, in every layer.
void ReadQwenExperts(const JsonConfig& json, ModelConfig& config);
// The dimensions as llama.cpp names them, experts and diffusion keys included.
void ReadLlamaGguf(const GgufConfig& gguf, ModelConfig& config);

}  // namespace spa
