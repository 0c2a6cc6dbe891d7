// The numbers of the GGUF container that its reader and its writer share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spa {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr size_t kGgufMaxDims = 4;
inline constexpr size_t kGgufMaxNameBytes = 63;  // other readers keep names in 64 bytes with a NUL

enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

}  // namespace spa
