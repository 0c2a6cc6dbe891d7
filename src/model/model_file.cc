#include "model/model_file.h"

#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/random.h"
#include "file/safetensors.h"

namespace spa {
namespace {

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

ModelFile ModelFile::Open(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw Error("no model at {}: give a GGUF file or a Hugging Face folder", path.string());
  }
  ModelFile model;
  model.path_ = path;
  model.where_ = path.string();
  if (std::filesystem::is_directory(status)) {
    model.config_ = ConfigFromFolder(path);
    model.tensors_ = std::make_unique<SafetensorsFolder>(path);
    model.scheme_ =
        model.config_.family == Family::kLlada ? NameScheme::kHfLlada : NameScheme::kHfDream;
  } else {
    auto gguf = std::make_unique<GgufFile>(path);
    model.config_ = ConfigFromGguf(*gguf);
    model.gguf_ = gguf.get();
    model.tensors_ = std::move(gguf);
  }
  model.Check();
  return model;
}

ModelFile ModelFile::FromMemory(std::span<const std::byte> gguf, std::string name) {
  ModelFile model;
  model.where_ = name;
  auto file = std::make_unique<GgufFile>(gguf, std::move(name));
  model.config_ = ConfigFromGguf(*file);
  model.gguf_ = file.get();
  model.tensors_ = std::move(file);
  model.Check();
  return model;
}

void ModelFile::Check() {
  std::unordered_set<std::string> expected_names;
  for (const ExpectedTensor& expected : ExpectedTensors(config_)) {
    const std::string name = TensorName(scheme_, expected.role, expected.layer);
    const Tensor* tensor = tensors_->Find(name);
    if (tensor == nullptr) throw Error("{}: the tensor {} is missing", where_, name);
    if (tensor->shape != expected.shape) {
      throw Error("{}: the tensor {} has the shape {}, expected {}", where_, name,
                  ShapeText(tensor->shape), ShapeText(expected.shape));
    }
    expected_names.insert(name);
  }
  for (const Tensor& tensor : tensors_->tensors()) {
    if (expected_names.contains(tensor.name) || tensor.name.ends_with("rotary_emb.inv_freq")) {
      continue;
    }
    // An ignored bias or scale would give wrong answers without a word.
    throw Error("{}: the tensor {} has no place in a {} model", where_, tensor.name,
                FamilyName(config_.family));
  }
}

uint64_t ModelFile::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_->tensors()) bytes += tensor.bytes.size();
  return bytes;
}

const Tensor& ModelFile::Get(TensorRole role, size_t layer) const {
  if (role == TensorRole::kHead && config_.tied_head) role = TensorRole::kEmbedding;
  const Tensor* tensor = tensors_->Find(TensorName(scheme_, role, layer));
  SPA_CHECK(tensor != nullptr);
  return *tensor;
}

std::vector<uint32_t> ModelFile::HalfSplitRowOrder(TensorRole role) const {
  if (!config_.interleaved_qk || (role != TensorRole::kWq && role != TensorRole::kWk)) return {};
  const size_t heads = role == TensorRole::kWq ? config_.num_heads : config_.num_kv_heads;
  const size_t half = config_.head_dim / 2;
  std::vector<uint32_t> order;
  order.reserve(heads * config_.head_dim);
  for (size_t head = 0; head < heads; ++head) {
    for (size_t part = 0; part < 2; ++part) {
      for (size_t j = 0; j < half; ++j) {
        order.push_back(static_cast<uint32_t>(head * config_.head_dim + 2 * j + part));
      }
    }
  }
  return order;
}

uint64_t ModelFile::Fingerprint() const {
  uint64_t hash = 0;
  const auto add = [&hash](uint64_t value) { hash = MixBits(hash ^ value) + value; };
  for (const Tensor& tensor : tensors_->tensors()) {
    for (const char c : tensor.name) add(static_cast<unsigned char>(c));
    add(static_cast<uint64_t>(tensor.dtype));
    for (const uint64_t dim : tensor.shape) add(dim);
    // 64 bytes spread over the tensor: enough to tell two trained or random models apart, and
    // opening an 8B file stays instant.
    for (size_t i = 0; i < 64; ++i) {
      add(static_cast<uint64_t>(tensor.bytes[i * (tensor.bytes.size() - 1) / 63]));
    }
  }
  return hash;
}

}  // namespace spa
