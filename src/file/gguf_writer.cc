#include "file/gguf_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "file/quoted.h"

namespace spa {
namespace {

constexpr uint64_t kAlignment = kGgufDefaultAlignment;

uint64_t PaddedSize(uint64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path) : name_(path.string()), file_(path) {}

template <typename T>
void GgufWriter::PutNumber(T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  header_.insert(header_.end(), bytes, bytes + sizeof(value));
}

void GgufWriter::PutString(std::string_view text) {
  PutNumber<uint64_t>(text.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  header_.insert(header_.end(), bytes, bytes + text.size());
}

void GgufWriter::Key(std::string_view key, GgufValueType type) {
  SPA_CHECK(!in_data_);
  SPA_CHECK(keys_.insert(std::string(key)).second);
  PutString(key);
  PutNumber(type);
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  Key(key, GgufValueType::kUint32);
  PutNumber(value);
}

void GgufWriter::AddInt32s(std::string_view key, std::span<const int32_t> values) {
  Key(key, GgufValueType::kArray);
  PutNumber(GgufValueType::kInt32);
  PutNumber<uint64_t>(values.size());
  for (const int32_t value : values) PutNumber(value);
}

void GgufWriter::AddFloat32(std::string_view key, float value) {
  Key(key, GgufValueType::kFloat32);
  PutNumber(value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  Key(key, GgufValueType::kBool);
  PutNumber<uint8_t>(value ? 1 : 0);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  Key(key, GgufValueType::kString);
  PutString(value);
}

void GgufWriter::AddStrings(std::string_view key, std::span<const std::string> values) {
  Key(key, GgufValueType::kArray);
  PutNumber(GgufValueType::kString);
  PutNumber<uint64_t>(values.size());
  for (const std::string& value : values) PutString(value);
}

void GgufWriter::CopyMetadata(const GgufFile& source, std::span<const std::string_view> skip) {
  SPA_CHECK(!in_data_);
  for (size_t i = 0; i < source.metadata().size(); ++i) {
    const std::string& key = source.metadata()[i].first;
    if (key == kGgufAlignmentKey || key.starts_with("split.")) continue;
    if (std::ranges::find(skip, key) != skip.end()) continue;
    if (!keys_.insert(key).second) continue;
    const std::span<const std::byte> encoded = source.encoded(i);
    header_.insert(header_.end(), encoded.begin(), encoded.end());
  }
}

void GgufWriter::DeclareTensor(std::string name, DType dtype, std::vector<uint64_t> shape) {
  SPA_CHECK(!in_data_);
  if (name.empty() || name.size() > kGgufMaxNameBytes) {
    throw Error("{}: GGUF cannot hold a tensor name of {} bytes ({}), expected 1 to {}", name_,
                name.size(), Quoted(name), kGgufMaxNameBytes);
  }
  if (!tensor_names_.insert(name).second) throw Error("{}: tensor {} twice", name_, Quoted(name));
  const DTypeInfo& info = Info(dtype);
  if (shape.empty()) shape = {1};  // a scalar; GGUF wants a dimension
  if (shape.size() > kGgufMaxDims || std::ranges::find(shape, 0u) != shape.end() ||
      shape.back() % info.block_size != 0) {
    throw Error(
        "{}: tensor {} of shape [{}] cannot be stored as {}: expected 1 to {} dimensions "
        "and rows that are a multiple of {}",
        name_, Quoted(name), fmt::join(shape, ", "), info.name, kGgufMaxDims, info.block_size);
  }
  uint64_t num_bytes = RowBytes(dtype, shape.back());
  for (size_t i = 0; i + 1 < shape.size(); ++i) num_bytes *= shape[i];
  tensors_.push_back({std::move(name), dtype, std::move(shape), num_bytes});
}

void GgufWriter::BeginData() {
  SPA_CHECK(!in_data_);
  uint64_t offset = 0;
  for (const Declared& tensor : tensors_) {
    PutString(tensor.name);
    PutNumber(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) PutNumber<uint64_t>(tensor.shape[i]);
    PutNumber(static_cast<uint32_t>(tensor.dtype));
    PutNumber(offset);
    offset += PaddedSize(tensor.bytes);
  }
  const uint64_t num_tensors = tensors_.size();
  const uint64_t num_values = keys_.size();
  file_.Write(kGgufMagic.data(), kGgufMagic.size());
  file_.Write(&kGgufVersion, sizeof(kGgufVersion));
  file_.Write(&num_tensors, sizeof(num_tensors));
  file_.Write(&num_values, sizeof(num_values));
  file_.Write(header_);
  Pad();
  in_data_ = true;
}

void GgufWriter::WriteData(std::span<const std::byte> bytes) {
  SPA_CHECK(in_data_ && current_ < tensors_.size());
  SPA_CHECK(bytes.size() <= tensors_[current_].bytes - current_done_);
  file_.Write(bytes);
  current_done_ += bytes.size();
  if (current_done_ < tensors_[current_].bytes) return;
  Pad();
  ++current_;
  current_done_ = 0;
}

void GgufWriter::Pad() {
  constexpr std::array<std::byte, kAlignment> kZeros{};
  file_.Write(kZeros.data(), PaddedSize(file_.size()) - file_.size());
}

void GgufWriter::Finish() {
  SPA_CHECK(in_data_ && current_ == tensors_.size());
  file_.Commit();
}

}  // namespace spa
