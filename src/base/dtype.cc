#include "base/dtype.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace spa {
namespace {

constexpr DTypeInfo kInfos[] = {
    {DType::kF32, "F32", 1, 4},       {DType::kF16, "F16", 1, 2},
    {DType::kBF16, "BF16", 1, 2},     {DType::kQ4_0, "Q4_0", 32, 18},
    {DType::kQ4_1, "Q4_1", 32, 20},   {DType::kQ5_0, "Q5_0", 32, 22},
    {DType::kQ5_1, "Q5_1", 32, 24},   {DType::kQ8_0, "Q8_0", 32, 34},
    {DType::kQ4_K, "Q4_K", 256, 144}, {DType::kQ5_K, "Q5_K", 256, 176},
    {DType::kQ6_K, "Q6_K", 256, 210},
};

struct ForeignType {
  uint32_t id;
  std::string_view name;
};
constexpr ForeignType kForeign[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
    {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"},  {40, "NVFP4"},
};

}  // namespace

const DTypeInfo* FindDType(uint32_t gguf_id) {
  for (const DTypeInfo& info : kInfos) {
    if (static_cast<uint32_t>(info.dtype) == gguf_id) return &info;
  }
  return nullptr;
}

const DTypeInfo& Info(DType dtype) {
  const DTypeInfo* info = FindDType(static_cast<uint32_t>(dtype));
  SPA_CHECK(info != nullptr);
  return *info;
}

std::string_view GgufTypeName(uint32_t gguf_id) {
  if (const DTypeInfo* info = FindDType(gguf_id)) return info->name;
  for (const ForeignType& type : kForeign) {
    if (type.id == gguf_id) return type.name;
  }
  return {};
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeInfo& info : kInfos) {
    if (std::ranges::equal(name, info.name,
                           [](unsigned char a, char b) { return std::toupper(a) == b; })) {
      return info.dtype;
    }
  }
  return std::nullopt;
}

size_t RowBytes(DType dtype, size_t cols) {
  const DTypeInfo& info = Info(dtype);
  SPA_CHECK(cols % info.block_size == 0);
  return cols / info.block_size * info.block_bytes;
}

}  // namespace spa
