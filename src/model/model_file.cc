#include "model/model_file.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/random.h"
#include "file/safetensors.h"
#include "model/family.h"

namespace spa {
namespace {

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

uint64_t PartNumber(TensorRole role, size_t layer, size_t expert) {
  return static_cast<uint64_t>(role) << 48 | static_cast<uint64_t>(layer) << 32 | expert;
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
    const TensorNames& names = *FamilyNamed(model.config_.family).folder_names;
    // Some folders say the head is tied but store it anyway.
    if (model.tensors_->Find(names.Name(TensorRole::kHead)) != nullptr) {
      model.config_.tied_head = false;
    }
    model.Check(names);
  } else {
    auto gguf = std::make_unique<GgufFile>(path);
    model.config_ = ConfigFromGguf(*gguf);
    model.gguf_ = gguf.get();
    model.tensors_ = std::move(gguf);
    model.Check(kGgufNames);
  }
  return model;
}

ModelFile ModelFile::FromMemory(std::span<const std::byte> gguf, std::string name) {
  ModelFile model;
  model.where_ = name;
  auto file = std::make_unique<GgufFile>(gguf, std::move(name));
  model.config_ = ConfigFromGguf(*file);
  model.gguf_ = file.get();
  model.tensors_ = std::move(file);
  model.Check(kGgufNames);
  return model;
}

void ModelFile::Check(const TensorNames& names) {
  std::unordered_map<std::string_view, const Tensor*> found;
  for (const Tensor& tensor : tensors_->tensors()) found.emplace(tensor.name, &tensor);
  const std::string fused_name = names.Name(TensorRole::kWqkv);
  fused_qkv_ = !fused_name.empty() && found.contains(fused_name);
  for (const StoredTensor& stored : StoredTensors(config_, names, fused_qkv_)) {
    const auto it = found.find(stored.name);
    if (it == found.end()) throw Error("{}: the tensor {} is missing", where_, stored.name);
    const Tensor& tensor = *it->second;
    if (tensor.shape != stored.shape) {
      throw Error("{}: the tensor {} has the shape {}, expected {}", where_, stored.name,
                  ShapeText(tensor.shape), ShapeText(stored.shape));
    }
    size_t first = 0;  // byte
    for (const TensorKey& part : stored.parts) {
      Tensor slice = {.name = tensor.name,
                      .dtype = tensor.dtype,
                      .shape = ShapeOf(config_, part.role, part.layer),
                      .bytes = {}};
      const size_t size = slice.rows() * RowBytes(slice.dtype, slice.cols());
      slice.bytes = tensor.bytes.subspan(first, size);
      first += size;
      parts_.emplace(PartNumber(part.role, part.layer, part.expert), std::move(slice));
    }
    found.erase(it);
  }
  for (const Tensor& tensor : tensors_->tensors()) {
    if (!found.contains(tensor.name) || tensor.name.ends_with("rotary_emb.inv_freq")) continue;
    const auto& other = FamilyNamed(config_.family).other_tensors;
    if (std::ranges::any_of(other, [&](auto prefix) { return tensor.name.starts_with(prefix); })) {
      continue;
    }
    // An ignored bias or scale would silently give wrong answers.
    throw Error("{}: the tensor {} has no place in a {} model", where_, tensor.name,
                config_.family);
  }
}

void ModelFile::CheckUnchanged() const {
  if (!tensors_->Changed()) return;
  throw ModelChanged(
      "{} was changed while it was in use: start again; to replace a model, write another file and "
      "rename it",
      where_);
}

uint64_t ModelFile::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_->tensors()) bytes += tensor.bytes.size();
  return bytes;
}

const Tensor& ModelFile::Get(TensorRole role, size_t layer, size_t expert) const {
  if (role == TensorRole::kHead && config_.tied_head) role = TensorRole::kEmbedding;
  const auto it = parts_.find(PartNumber(role, layer, expert));
  SPA_CHECK(it != parts_.end());
  return it->second;
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
