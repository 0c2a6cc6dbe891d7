#include "file/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "file/json_events.h"
#include "file/quoted.h"

static_assert(std::endian::native == std::endian::little, "safetensors are read as they lie");

namespace spa {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr uint64_t kMaxIndexBytes = 16'000'000;    // that of an 8B model has 30 kB
constexpr size_t kMaxDims = 4;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kLfsPointer = "version https://git-lfs";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// A tensor as the header describes it.
struct HeaderEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;  // begin and end
};

// {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ..., "__metadata__": {...}}
class HeaderHandler : public JsonHandler {
 public:
  explicit HeaderHandler(const std::string& name) : name_(name) {}

  std::vector<HeaderEntry> Take() { return std::move(entries_); }

  bool Open(bool is_object) override {
    if (depth_ == 1 && key_ == kMetadataKey) return false;
    if (depth_ == 2 && !OpenField(is_object)) return false;
    if (depth_ < 2 && !is_object) throw Malformed();
    if (depth_ == 3) throw Malformed();
    ++depth_;
    return true;
  }

  void Close() override {
    if (depth_ == 2) CheckComplete(entries_.back());
    --depth_;
  }

  void Key(std::string_view key) override {
    key_ = key;
    if (depth_ == 1 && key_ != kMetadataKey) entries_.emplace_back().name = key_;
  }

  void Scalar(const JsonScalar& value) override {
    if (depth_ == 3) {
      const auto* number = std::get_if<uint64_t>(&value);
      if (number == nullptr || numbers_->size() == kMaxNumbers) throw Malformed();
      numbers_->push_back(*number);
    } else if (depth_ == 2 && key_ == "dtype") {
      const auto* text = std::get_if<std::string_view>(&value);
      if (text == nullptr || entries_.back().dtype) throw Malformed();
      entries_.back().dtype = std::string(*text);
    } else if (depth_ != 2 || key_ == "shape" || key_ == "data_offsets") {
      throw Malformed();
    }
  }

 private:
  static constexpr size_t kMaxNumbers = 16;  // enough to report a shape with too many dimensions

  // Checked entry by entry: a header of empty entries would take many times its size in memory.
  void CheckComplete(const HeaderEntry& entry) const {
    if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2) {
      throw Error("{}: tensor {} needs a dtype, a shape and two data_offsets", name_,
                  Quoted(entry.name));
    }
  }

  // False if the reader does not know the field.
  bool OpenField(bool is_object) {
    std::optional<std::vector<uint64_t>>* field = nullptr;
    if (key_ == "shape") field = &entries_.back().shape;
    if (key_ == "data_offsets") field = &entries_.back().offsets;
    if (field == nullptr && key_ != "dtype") return false;
    if (field == nullptr || is_object || *field) throw Malformed();
    numbers_ = &field->emplace();
    return true;
  }

  Error Malformed() const {
    if (depth_ < 1 || entries_.empty()) {
      return Error("{}: the header is not an object of tensors", name_);
    }
    return Error(
        "{}: the header entry of tensor {} is malformed; expected dtype (a string), shape "
        "and data_offsets (whole numbers)",
        name_, Quoted(entries_.back().name));
  }

  const std::string& name_;
  size_t depth_ = 0;
  std::string key_;
  std::vector<uint64_t>* numbers_ = nullptr;
  std::vector<HeaderEntry> entries_;
};

DType ParseHeaderDType(const HeaderEntry& entry, const std::string& name) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    if (*entry.dtype == Info(dtype).name) return dtype;
  }
  throw Error("{}: tensor {} has the dtype {}, expected F32, F16 or BF16", name, Quoted(entry.name),
              Quoted(*entry.dtype));
}

// `entry` is complete.
Tensor MakeTensor(HeaderEntry entry, std::span<const std::byte> data, const std::string& name) {
  const std::string quoted = Quoted(entry.name);
  Tensor tensor;
  tensor.dtype = ParseHeaderDType(entry, name);
  if (entry.shape->size() > kMaxDims) {
    throw Error("{}: tensor {} has {} dimensions, expected at most {}", name, quoted,
                entry.shape->size(), kMaxDims);
  }
  uint64_t num_bytes = Info(tensor.dtype).block_bytes;
  bool overflow = false;
  for (const uint64_t size : *entry.shape) {
    if (size == 0) throw Error("{}: tensor {} has no elements", name, quoted);
    overflow |= __builtin_mul_overflow(num_bytes, size, &num_bytes);
  }
  const uint64_t begin = entry.offsets->front();
  const uint64_t end = entry.offsets->back();
  if (begin > end || end > data.size()) {
    throw Error(
        "{}: tensor {} lies at bytes {} to {}, but there are {} bytes of data: the file is "
        "cut short or damaged",
        name, quoted, begin, end, data.size());
  }
  if (overflow || num_bytes != end - begin) {
    throw Error("{}: tensor {} has {} bytes of data, which does not match its shape and dtype",
                name, quoted, end - begin);
  }
  tensor.name = std::move(entry.name);
  tensor.shape = std::move(*entry.shape);
  tensor.bytes = data.subspan(begin, num_bytes);
  return tensor;
}

// {"metadata": {...}, "weight_map": {"tensor": "shard", ...}}
class IndexHandler : public JsonHandler {
 public:
  explicit IndexHandler(const std::string& name) : name_(name) {}

  // nullopt if the document has no weight_map.
  std::optional<std::vector<std::pair<std::string, std::string>>> Take() {
    return std::move(weight_map_);
  }

  bool Open(bool is_object) override {
    if (depth_ == 0 && is_object) {
      depth_ = 1;
      return true;
    }
    if (depth_ == 1 && key_ != "weight_map") return false;
    if (depth_ != 1 || !is_object || weight_map_) throw Malformed();
    weight_map_.emplace();
    depth_ = 2;
    return true;
  }

  void Close() override { --depth_; }
  void Key(std::string_view key) override { key_ = key; }

  void Scalar(const JsonScalar& value) override {
    if (depth_ == 1 && key_ != "weight_map") return;
    const auto* shard = std::get_if<std::string_view>(&value);
    if (depth_ != 2 || shard == nullptr) throw Malformed();
    weight_map_->emplace_back(key_, *shard);
  }

 private:
  Error Malformed() const {
    return Error("{}: expected an object with a 'weight_map' from tensor names to file names",
                 name_);
  }

  const std::string& name_;
  size_t depth_ = 0;
  std::string key_;
  std::optional<std::vector<std::pair<std::string, std::string>>> weight_map_;
};

bool IsPlainFileName(std::string_view name) {
  using std::string_view_literals::operator""sv;
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\\0"sv) == std::string_view::npos;
}

}  // namespace

std::vector<Tensor> ParseSafetensors(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < sizeof(uint64_t)) {
    throw Error("{}: not a safetensors file: only {} bytes long", name, bytes.size());
  }
  if (bytes.size() >= kLfsPointer.size() &&
      std::memcmp(bytes.data(), kLfsPointer.data(), kLfsPointer.size()) == 0) {
    throw Error("{}: a Git LFS pointer instead of the weights; fetch them with 'git lfs pull'",
                name);
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > rest.size()) {
    throw Error(
        "{}: not a safetensors file, or cut short: claims a header of {} bytes, but has {} "
        "(and {} is the limit)",
        name, header_bytes, rest.size(), kMaxHeaderBytes);
  }
  HeaderHandler header(name);
  ParseJson(rest.first(header_bytes), name, header);

  const std::span<const std::byte> data = rest.subspan(header_bytes);
  std::vector<Tensor> tensors;
  for (HeaderEntry& entry : header.Take()) {
    tensors.push_back(MakeTensor(std::move(entry), data, name));
  }
  std::ranges::sort(tensors, {}, [](const Tensor& tensor) { return tensor.bytes.data(); });
  uint64_t position = 0;
  for (const Tensor& tensor : tensors) {
    const auto begin = static_cast<uint64_t>(tensor.bytes.data() - data.data());
    if (begin != position) {
      throw Error("{}: tensor {} starts at byte {} of the data, expected {} (no gaps, no overlap)",
                  name, Quoted(tensor.name), begin, position);
    }
    position += tensor.bytes.size();
  }
  if (position != data.size()) {
    throw Error("{}: {} bytes of data, but the tensors take {}", name, data.size(), position);
  }
  return tensors;
}

std::vector<std::pair<std::string, std::string>> ParseSafetensorsIndex(
    std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() > kMaxIndexBytes) {
    throw Error("{}: {} bytes, expected at most {}", name, bytes.size(), kMaxIndexBytes);
  }
  IndexHandler index(name);
  ParseJson(bytes, name, index);
  auto weight_map = index.Take();
  if (!weight_map || weight_map->empty()) throw Error("{}: no 'weight_map' or nothing in it", name);
  for (const auto& [tensor, shard] : *weight_map) {
    if (!IsPlainFileName(shard)) {
      throw Error("{}: tensor {} is said to be in {}, which is not a plain file name", name,
                  Quoted(tensor), Quoted(shard));
    }
  }
  return *std::move(weight_map);
}

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw Error("{} is not a folder", folder.string());
  }
  const std::filesystem::path single = folder / kSingleName;
  const std::filesystem::path index = folder / kIndexName;
  if (std::filesystem::exists(single, ignored)) {
    AddShard(single);
    CheckUniqueNames(folder);
    return;
  }
  if (!std::filesystem::exists(index, ignored)) {
    throw Error("{} has no weights: expected {} or {}", folder.string(), kSingleName, kIndexName);
  }
  const MappedFile index_file(index);
  std::map<std::string, std::vector<std::string>> shards;  // file -> tensors, in the order of names
  for (auto& [tensor, shard] : ParseSafetensorsIndex(index_file.bytes(), index.string())) {
    shards[shard].push_back(std::move(tensor));
  }
  for (const auto& [shard, names] : shards) {
    const size_t first = tensors_.size();
    AddShard(folder / shard);
    std::unordered_set<std::string_view> present;
    for (size_t i = first; i < tensors_.size(); ++i) present.insert(tensors_[i].name);
    for (const std::string& tensor : names) {
      if (!present.contains(tensor)) {
        throw Error("{}: tensor {} is missing, although {} says it is there",
                    (folder / shard).string(), Quoted(tensor), kIndexName);
      }
    }
  }
  CheckUniqueNames(folder);
}

void SafetensorsFolder::AddShard(const std::filesystem::path& path) {
  shards_.push_back(std::make_unique<MappedFile>(path));
  std::vector<Tensor> tensors = ParseSafetensors(shards_.back()->bytes(), path.string());
  std::ranges::move(tensors, std::back_inserter(tensors_));
}

void SafetensorsFolder::CheckUniqueNames(const std::filesystem::path& folder) const {
  std::unordered_set<std::string_view> seen;
  for (const Tensor& tensor : tensors_) {
    if (!seen.insert(tensor.name).second) {
      throw Error("{}: tensor {} twice", folder.string(), Quoted(tensor.name));
    }
  }
}

void SafetensorsFolder::Release(const Tensor& tensor) const {
  for (const auto& shard : shards_) {
    const std::span<const std::byte> bytes = shard->bytes();
    const std::less_equal<const std::byte*> before;
    if (before(bytes.data(), tensor.bytes.data()) &&
        before(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size())) {
      shard->Release(tensor.bytes);
    }
  }
}

bool SafetensorsFolder::Changed() const {
  return std::ranges::any_of(shards_, [](const auto& shard) { return shard->Changed(); });
}

}  // namespace spa
