#include "file/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <unordered_set>

#include "base/error.h"
#include "file/gguf_layout.h"
#include "file/quoted.h"

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");

namespace spa {
namespace {

// The smallest a metadata entry and a tensor entry can be: what a claimed count is checked against.
constexpr uint64_t kMinValueBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kMaxKeyBytes = 65535;  // GGUF specification
constexpr uint64_t kMinAlignment = 8;     // GGUF specification: a multiple of 8
constexpr uint64_t kMaxAlignment = 1 << 20;
// A damaged count can claim the weights as metadata. The largest vocabularies in use need 20 MB.
constexpr uint64_t kMaxMetadataBytes = 256 << 20;

// Takes values from the front of the file; every read is checked against the end.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  std::string_view Take(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      throw Error("{}: the file ends inside {}: {} bytes expected at byte {}, {} are left", name_,
                  what, count, position_, remaining());
    }
    const char* data = reinterpret_cast<const char*>(bytes_.data()) + position_;
    position_ += count;
    return {data, count};
  }

  template <typename T>
  T Number(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view String(std::string_view what) {
    const uint64_t length = Number<uint64_t>(what);
    return Take(length, what);
  }

  bool Bool(std::string_view what) {
    const uint8_t value = Number<uint8_t>(what);
    if (value > 1) {
      throw Error("{}: {} is the byte {}, expected 0 (false) or 1 (true)", name_, what, value);
    }
    return value == 1;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t position_ = 0;
};

// Reads metadata values and keeps count of the memory they take.
class ValueReader {
 public:
  ValueReader(ByteReader& reader, const std::string& name) : reader_(reader), name_(name) {}

  void Charge(uint64_t count, uint64_t bytes_each) {
    if (count > (kMaxMetadataBytes - used_bytes_) / bytes_each) {
      throw Error("{}: the metadata takes more than {} MB; the file is damaged", name_,
                  kMaxMetadataBytes >> 20);
    }
    used_bytes_ += count * bytes_each;
  }

  GgufValue Value(const std::string& what) {
    const uint32_t type = reader_.Number<uint32_t>(what);
    switch (static_cast<GgufValueType>(type)) {
      case GgufValueType::kUint8:
        return uint64_t{reader_.Number<uint8_t>(what)};
      case GgufValueType::kUint16:
        return uint64_t{reader_.Number<uint16_t>(what)};
      case GgufValueType::kUint32:
        return uint64_t{reader_.Number<uint32_t>(what)};
      case GgufValueType::kUint64:
        return reader_.Number<uint64_t>(what);
      case GgufValueType::kInt8:
        return int64_t{reader_.Number<int8_t>(what)};
      case GgufValueType::kInt16:
        return int64_t{reader_.Number<int16_t>(what)};
      case GgufValueType::kInt32:
        return int64_t{reader_.Number<int32_t>(what)};
      case GgufValueType::kInt64:
        return reader_.Number<int64_t>(what);
      case GgufValueType::kFloat32:
        return double{reader_.Number<float>(what)};
      case GgufValueType::kFloat64:
        return reader_.Number<double>(what);
      case GgufValueType::kBool:
        return reader_.Bool(what);
      case GgufValueType::kString:
        return String(what);
      case GgufValueType::kArray:
        return Array(what);
    }
    throw Error("{}: {} has the unknown value type {}", name_, what, type);
  }

 private:
  std::string String(std::string_view what) {
    const std::string_view text = reader_.String(what);
    Charge(1, sizeof(std::string) + text.size());
    return std::string(text);
  }

  GgufValue Array(const std::string& what) {
    const uint32_t type = reader_.Number<uint32_t>(what);
    const uint64_t count = reader_.Number<uint64_t>(what);
    switch (static_cast<GgufValueType>(type)) {
      case GgufValueType::kUint8:
        return Numbers<uint8_t>(count, what);
      case GgufValueType::kUint16:
        return Numbers<uint16_t>(count, what);
      case GgufValueType::kUint32:
        return Numbers<uint32_t>(count, what);
      case GgufValueType::kUint64:
        return Numbers<uint64_t>(count, what);
      case GgufValueType::kInt8:
        return Numbers<int8_t>(count, what);
      case GgufValueType::kInt16:
        return Numbers<int16_t>(count, what);
      case GgufValueType::kInt32:
        return Numbers<int32_t>(count, what);
      case GgufValueType::kInt64:
        return Numbers<int64_t>(count, what);
      case GgufValueType::kFloat32:
        return Numbers<float>(count, what);
      case GgufValueType::kFloat64:
        return Numbers<double>(count, what);
      case GgufValueType::kBool:
        return Bools(count, what);
      case GgufValueType::kString:
        return Strings(count, what);
      case GgufValueType::kArray:
        throw Error("{}: {} is an array of arrays, which GGUF does not allow", name_, what);
    }
    throw Error("{}: {} is an array of the unknown value type {}", name_, what, type);
  }

  void CheckCount(uint64_t count, uint64_t min_bytes, std::string_view what) const {
    if (count > reader_.remaining() / min_bytes) {
      throw Error("{}: {} claims {} elements, but only {} bytes are left in the file", name_, what,
                  count, reader_.remaining());
    }
  }

  // Stored as T, returned as the widest type of its kind.
  template <typename T>
  GgufValue Numbers(uint64_t count, std::string_view what) {
    using Wide = std::conditional_t<std::is_floating_point_v<T>, double,
                                    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
    CheckCount(count, sizeof(T), what);
    Charge(count, sizeof(Wide));
    std::vector<Wide> values(count);
    for (Wide& value : values) value = Wide{reader_.Number<T>(what)};
    return values;
  }

  GgufValue Bools(uint64_t count, std::string_view what) {
    CheckCount(count, 1, what);
    Charge(count, 1);
    std::vector<bool> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = reader_.Bool(what);
    return values;
  }

  GgufValue Strings(uint64_t count, std::string_view what) {
    CheckCount(count, sizeof(uint64_t), what);
    std::vector<std::string> values;
    for (uint64_t i = 0; i < count; ++i) values.push_back(String(what));
    return values;
  }

  ByteReader& reader_;
  const std::string& name_;
  uint64_t used_bytes_ = 0;
};

uint32_t ReadVersion(ByteReader& reader, const std::string& name) {
  if (reader.remaining() == 0) throw Error("{}: the file is empty, expected GGUF", name);
  if (reader.remaining() < kGgufMagic.size()) {
    throw Error("{}: not a GGUF file: only {} bytes long", name, reader.remaining());
  }
  const std::string_view magic = reader.Take(kGgufMagic.size(), "the magic number");
  if (magic != kGgufMagic) {
    throw Error("{}: not a GGUF file: starts with {}, expected 'GGUF'", name, Quoted(magic));
  }
  const uint32_t version = reader.Number<uint32_t>("the version number");
  if (version == 1) {
    throw Error("{}: GGUF version 1 is too old; convert the model again (version 2 or 3)", name);
  }
  if (version != 0 && (version & 0xffff) == 0) {
    throw Error("{}: a big-endian GGUF file; convert it to little-endian first", name);
  }
  if (version != 2 && version != 3) {
    throw Error("{}: GGUF version {}, expected 2 or 3", name, version);
  }
  return version;
}

void CheckNotSplit(const GgufFile& file) {
  const uint64_t count = file.FindUint("split.count").value_or(1);
  if (count <= 1) return;
  throw Error(
      "{}: one of the {} parts of a split model; merge them into one file first "
      "(llama-gguf-split --merge FIRST_PART OUT.gguf)",
      file.name(), count);
}

uint64_t ReadAlignment(const GgufFile& file) {
  const uint64_t alignment = file.FindUint(kGgufAlignmentKey).value_or(kGgufDefaultAlignment);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    throw Error("{}: {} is {}, expected a power of two from {} to {}", file.name(),
                kGgufAlignmentKey, alignment, kMinAlignment, kMaxAlignment);
  }
  return alignment;
}

// A tensor as the table describes it; its place is checked when the data section is known.
struct TensorEntry {
  Tensor tensor;
  uint64_t offset;  // from the start of the data section
  uint64_t num_bytes;
};

uint64_t TensorBytes(const Tensor& tensor, const std::string& name) {
  const DTypeInfo& info = Info(tensor.dtype);
  if (tensor.cols() % info.block_size != 0) {
    throw Error("{}: tensor {} has rows of {} elements, expected a multiple of {} for {}", name,
                Quoted(tensor.name), tensor.cols(), info.block_size, info.name);
  }
  uint64_t num_bytes = tensor.cols() / info.block_size;
  bool overflow = __builtin_mul_overflow(num_bytes, uint64_t{info.block_bytes}, &num_bytes);
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    overflow |= __builtin_mul_overflow(num_bytes, tensor.shape[i], &num_bytes);
  }
  if (overflow) {
    throw Error("{}: tensor {} is larger than any file", name, Quoted(tensor.name));
  }
  return num_bytes;
}

TensorEntry ReadTensorEntry(ByteReader& reader, const std::string& name) {
  constexpr std::string_view kTable = "the tensor table";
  const std::string_view tensor_name = reader.String(kTable);
  if (tensor_name.empty() || tensor_name.size() > kGgufMaxNameBytes) {
    throw Error("{}: a tensor name of {} bytes ({}), expected 1 to {}", name, tensor_name.size(),
                Quoted(tensor_name), kGgufMaxNameBytes);
  }
  TensorEntry entry;
  entry.tensor.name = tensor_name;
  const uint32_t num_dims = reader.Number<uint32_t>(kTable);
  if (num_dims == 0 || num_dims > kGgufMaxDims) {
    throw Error("{}: tensor {} has {} dimensions, expected 1 to {}", name, Quoted(tensor_name),
                num_dims, kGgufMaxDims);
  }
  entry.tensor.shape.resize(num_dims);
  for (uint32_t i = 0; i < num_dims; ++i) {
    const uint64_t size = reader.Number<uint64_t>(kTable);
    if (size == 0) throw Error("{}: tensor {} has no elements", name, Quoted(tensor_name));
    entry.tensor.shape[num_dims - 1 - i] = size;  // GGUF writes the fastest dimension first
  }
  const uint32_t type = reader.Number<uint32_t>(kTable);
  const DTypeInfo* info = FindDType(type);
  if (info == nullptr) {
    const std::string_view type_name = GgufTypeName(type);
    throw Error(
        "{}: tensor {} has the type {}, which is not supported (F32, F16, BF16, Q8_0, "
        "Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are)",
        name, Quoted(tensor_name),
        type_name.empty() ? fmt::format("number {}", type) : std::string(type_name));
  }
  entry.tensor.dtype = info->dtype;
  entry.offset = reader.Number<uint64_t>(kTable);
  entry.num_bytes = TensorBytes(entry.tensor, name);
  return entry;
}

// Sets the tensors' bytes, in order, after checking that they lie inside `data` and apart.
void PlaceTensors(std::span<TensorEntry> entries, std::span<const std::byte> data,
                  uint64_t alignment, const std::string& name) {
  for (TensorEntry& entry : entries) {
    const std::string tensor_name = Quoted(entry.tensor.name);
    if (entry.offset % alignment != 0) {
      throw Error("{}: tensor {} starts at {}, expected a multiple of the alignment {}", name,
                  tensor_name, entry.offset, alignment);
    }
    if (entry.offset > data.size() || entry.num_bytes > data.size() - entry.offset) {
      throw Error(
          "{}: tensor {} takes {} bytes from {} on, but the data section has {}: the file "
          "is cut short or damaged",
          name, tensor_name, entry.num_bytes, entry.offset, data.size());
    }
    entry.tensor.bytes = data.subspan(entry.offset, entry.num_bytes);
  }
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& entry : entries) by_offset.push_back(&entry);
  std::ranges::sort(by_offset, {}, &TensorEntry::offset);
  for (size_t i = 1; i < by_offset.size(); ++i) {
    if (by_offset[i - 1]->offset + by_offset[i - 1]->num_bytes > by_offset[i]->offset) {
      throw Error("{}: tensors {} and {} overlap", name, Quoted(by_offset[i - 1]->tensor.name),
                  Quoted(by_offset[i]->tensor.name));
    }
  }
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : map_(std::make_unique<MappedFile>(path)), bytes_(map_->bytes()), name_(path.string()) {
  Parse();
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {
  Parse();
}

void GgufFile::Parse() {
  ByteReader reader(bytes_, name_);
  version_ = ReadVersion(reader, name_);
  const uint64_t num_tensors = reader.Number<uint64_t>("the header");
  const uint64_t num_values = reader.Number<uint64_t>("the header");
  if (num_values > reader.remaining() / kMinValueBytes ||
      num_tensors > reader.remaining() / kMinTensorBytes) {
    throw Error("{}: the header claims {} metadata values and {} tensors, too many for {} bytes",
                name_, num_values, num_tensors, bytes_.size());
  }

  ValueReader values(reader, name_);
  std::unordered_set<std::string_view> seen;  // views into the file
  for (uint64_t i = 0; i < num_values; ++i) {
    const uint64_t begin = reader.position();
    const std::string_view key = reader.String("a metadata key");
    if (key.empty() || key.size() > kMaxKeyBytes) {
      throw Error("{}: a metadata key of {} bytes ({}), expected 1 to {}", name_, key.size(),
                  Quoted(key), kMaxKeyBytes);
    }
    if (!seen.insert(key).second) throw Error("{}: metadata key {} twice", name_, Quoted(key));
    values.Charge(1, sizeof(metadata_[0]) + key.size());
    metadata_.emplace_back(key, values.Value(fmt::format("metadata key {}", Quoted(key))));
    encoded_.push_back(bytes_.subspan(begin, reader.position() - begin));
  }
  CheckNotSplit(*this);
  const uint64_t alignment = ReadAlignment(*this);

  std::vector<TensorEntry> entries;
  seen.clear();
  for (uint64_t i = 0; i < num_tensors; ++i) {
    values.Charge(1, sizeof(TensorEntry));
    entries.push_back(ReadTensorEntry(reader, name_));
  }
  for (const TensorEntry& entry : entries) {
    if (!seen.insert(entry.tensor.name).second) {
      throw Error("{}: tensor {} twice", name_, Quoted(entry.tensor.name));
    }
  }
  const uint64_t data_start = (reader.position() + alignment - 1) / alignment * alignment;
  PlaceTensors(entries, bytes_.subspan(std::min<uint64_t>(data_start, bytes_.size())), alignment,
               name_);
  for (TensorEntry& entry : entries) tensors_.push_back(std::move(entry.tensor));
}

void GgufFile::Release(const Tensor& tensor) const {
  if (map_) map_->Release(tensor.bytes);
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  const auto it = std::ranges::find(
      metadata_, key, [](const auto& entry) -> std::string_view { return entry.first; });
  return it == metadata_.end() ? nullptr : &it->second;
}

std::optional<uint64_t> GgufFile::FindUint(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(value)) return *number;
  const auto* number = std::get_if<int64_t>(value);
  if (number == nullptr || *number < 0) {
    throw Error("{}: {} is not a non-negative integer", name_, Quoted(key));
  }
  return static_cast<uint64_t>(*number);
}

std::optional<double> GgufFile::FindFloat(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  throw Error("{}: {} is not a floating-point number", name_, Quoted(key));
}

std::optional<bool> GgufFile::FindBool(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  throw Error("{}: {} is not a boolean", name_, Quoted(key));
}

const std::string* GgufFile::FindString(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return nullptr;
  if (const auto* text = std::get_if<std::string>(value)) return text;
  throw Error("{}: {} is not a string", name_, Quoted(key));
}

const std::vector<std::string>* GgufFile::FindStrings(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return nullptr;
  if (const auto* texts = std::get_if<std::vector<std::string>>(value)) return texts;
  throw Error("{}: {} is not an array of strings", name_, Quoted(key));
}

}  // namespace spa
