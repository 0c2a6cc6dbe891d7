#include "kernels/pack.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace spa {
namespace {

constexpr size_t kSuperBlock = 256;

uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

// Unpacking one block of a type: values in input order, offset where the panel form wants it.

void Unpack4(const std::byte* nibbles, uint8_t* values) {  // 32 values, first half in low nibbles
  for (size_t i = 0; i < 16; ++i) {
    values[i] = U8(nibbles + i) & 15;
    values[i + 16] = U8(nibbles + i) >> 4;
  }
}

void Unpack5(const std::byte* high_bits, const std::byte* nibbles, uint8_t offset,
             uint8_t* values) {
  Unpack4(nibbles, values);
  for (size_t i = 0; i < 32; i += 8) {
    // Byte j of `bits` keeps bit j alone; what is added carries it to the top of the byte.
    const uint64_t bits = U8(high_bits + i / 8) * 0x0101010101010101u & 0x8040201008040201u;
    const uint64_t sixteens = ((bits + 0x00406070787c7e7fu) & 0x8080808080808080u) >> 3;
    uint64_t eight;
    std::memcpy(&eight, values + i, sizeof(eight));
    eight += sixteens + offset * 0x0101010101010101u;
    std::memcpy(values + i, &eight, sizeof(eight));
  }
}

void UnpackQ4K(const std::byte* nibbles, uint8_t* values) {
  for (size_t pair = 0; pair < 4; ++pair) {
    for (size_t i = 0; i < 32; ++i) {
      values[64 * pair + i] = U8(nibbles + 32 * pair + i) & 15;
      values[64 * pair + 32 + i] = U8(nibbles + 32 * pair + i) >> 4;
    }
  }
}

void UnpackQ5K(const std::byte* high_bits, const std::byte* nibbles, uint8_t* values) {
  UnpackQ4K(nibbles, values);
  for (size_t j = 0; j < 8; ++j) {
    for (size_t i = 0; i < 32; ++i) {
      values[32 * j + i] =
          static_cast<uint8_t>(values[32 * j + i] + (U8(high_bits + i) >> j & 1) * 16);
    }
  }
}

void UnpackQ6K(const std::byte* nibbles, const std::byte* high_bits, uint8_t* values) {
  for (size_t half = 0; half < 2; ++half) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const std::byte* low = nibbles + 64 * half + 32 * (quarter % 2);
      for (size_t i = 0; i < 32; ++i) {
        const uint8_t nibble = quarter < 2 ? U8(low + i) & 15 : U8(low + i) >> 4;
        const uint8_t high = U8(high_bits + 32 * half + i) >> (2 * quarter) & 3;
        values[128 * half + 32 * quarter + i] = static_cast<uint8_t>(nibble | high << 4);
      }
    }
  }
}

void UnpackBlock(DType dtype, const std::byte* block, uint8_t* values) {
  switch (dtype) {
    case DType::kQ4_0:
      return Unpack4(block + 2, values);
    case DType::kQ4_1:
      return Unpack4(block + 4, values);
    // 5-bit values carry a zero point of 16; the common one of 32 needs 16 more.
    case DType::kQ5_0:
      return Unpack5(block + 2, block + 6, kZeroPoint6 - 16, values);
    case DType::kQ5_1:
      return Unpack5(block + 4, block + 8, 0, values);
    case DType::kQ8_0:
      std::memcpy(values, block + 2, 32);
      return;
    case DType::kQ4_K:
      return UnpackQ4K(block + 16, values);
    case DType::kQ5_K:
      return UnpackQ5K(block + 16, block + 48, values);
    case DType::kQ6_K:
      return UnpackQ6K(block, block + 128, values);
    default:
      SPA_CHECK(false);
  }
}

// The scales of channel `channel` of a block; `scales` is the block's part of the panel.
void PackScales(DType dtype, const std::byte* block, size_t channel, std::byte* scales) {
  constexpr size_t kHalves = 2 * kPanelWidth;  // bytes of a vector of halves
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      std::memcpy(scales + kHalves + 2 * channel, block + 2, 2);
      [[fallthrough]];
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      std::memcpy(scales + 2 * channel, block, 2);
      return;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      std::memcpy(scales + 2 * channel, block, 2);
      std::memcpy(scales + kHalves + 2 * channel, block + 2, 2);
      const std::byte* packed = block + 4;
      std::byte* s = scales + 2 * kHalves + channel;
      std::byte* m = s + 8 * kPanelWidth;
      for (size_t j = 0; j < 4; ++j) {
        s[j * kPanelWidth] = packed[j] & std::byte{63};
        m[j * kPanelWidth] = packed[j + 4] & std::byte{63};
        s[(j + 4) * kPanelWidth] = (packed[j + 8] & std::byte{15}) | packed[j] >> 6 << 4;
        m[(j + 4) * kPanelWidth] = packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4;
      }
      return;
    }
    case DType::kQ6_K:
      std::memcpy(scales + 2 * channel, block + 208, 2);
      for (size_t j = 0; j < 16; ++j) scales[kHalves + j * kPanelWidth + channel] = block[192 + j];
      return;
    default:
      SPA_CHECK(false);
  }
}

uint32_t Word(const uint8_t* values) {
  uint32_t word;
  std::memcpy(&word, values, sizeof(word));
  return word;
}

void PackInts(const MatrixSource& source, size_t panel, PackedMatrix::Panels& panels) {
  const DTypeInfo& info = Info(source.dtype);
  const size_t num_blocks = source.cols / info.block_size;
  const size_t num_channels = std::min(kPanelWidth, source.rows - panel * kPanelWidth);
  const size_t scale_bytes = panels.scales_bytes / num_blocks;
  const std::byte* rows[kPanelWidth] = {};
  for (size_t c = 0; c < num_channels; ++c) rows[c] = source.Row(panel * kPanelWidth + c);
  std::byte* dst = panels.data.Row(panel);
  std::byte* scales = dst + panels.values_bytes;
  if (num_channels < kPanelWidth) std::memset(scales, 0, num_blocks * scale_bytes);

  alignas(64) uint8_t values[kPanelWidth][kSuperBlock] = {};
  for (size_t b = 0; b < num_blocks; ++b) {
    for (size_t c = 0; c < num_channels; ++c) {
      const std::byte* block = rows[c] + b * info.block_bytes;
      UnpackBlock(source.dtype, block, values[c]);
      PackScales(source.dtype, block, c, scales + b * scale_bytes);
    }
    const auto put = [&](size_t channel, uint32_t word) {
      std::memcpy(dst + channel * sizeof(word), &word, sizeof(word));
    };
    const bool nibbles = panels.form == PanelForm::kInt4;
    for (size_t input = 0; input < info.block_size; input += nibbles ? 2 * kQuad : kQuad) {
      for (size_t c = 0; c < kPanelWidth; ++c) {
        const uint32_t word = Word(values[c] + input);
        put(c, nibbles ? word | Word(values[c] + input + kQuad) << 4 : word);
      }
      dst += kPanelWidth * kQuad;
    }
  }
}

// Element: an integer of the size of the floats.
template <typename Element>
void PackFloats(const MatrixSource& source, size_t panel, PackedMatrix::Panels& panels) {
  const size_t num_channels = std::min(kPanelWidth, source.rows - panel * kPanelWidth);
  // Channels in the order of the panel: as they are, or for bf16 c and c + 8 side by side.
  const std::byte* rows[kPanelWidth] = {};
  for (size_t c = 0; c < num_channels; ++c) {
    const size_t place = panels.form == PanelForm::kBF16 ? c % 8 * 2 + c / 8 : c;
    rows[place] = source.Row(panel * kPanelWidth + c);
  }
  // One cache line of each row at a time: power-of-two rows would evict each other from L1.
  constexpr size_t kInputs = 64 / sizeof(Element);
  alignas(64) Element lines[kPanelWidth][kInputs] = {};
  // Stored in 8-byte words: stores are the bottleneck.
  constexpr size_t kPerWord = sizeof(uint64_t) / sizeof(Element);
  std::byte* dst = panels.data.Row(panel);
  for (size_t first = 0; first < source.cols; first += kInputs) {
    const size_t count = std::min(kInputs, source.cols - first);
    for (size_t place = 0; place < kPanelWidth; ++place) {
      if (rows[place] == nullptr) continue;
      std::memcpy(lines[place], rows[place] + first * sizeof(Element), count * sizeof(Element));
    }
    for (size_t i = 0; i < count; ++i) {
      for (size_t place = 0; place < kPanelWidth; place += kPerWord, dst += sizeof(uint64_t)) {
        uint64_t word = 0;
        for (size_t j = 0; j < kPerWord; ++j) {
          word |= uint64_t{lines[place + j][i]} << (8 * sizeof(Element) * j);
        }
        std::memcpy(dst, &word, sizeof(word));
      }
    }
  }
}

struct Forms {
  PanelForm form;
  ScaleForm scale_form;
};

Forms FormsOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {PanelForm::kF32, ScaleForm::kNone};
    case DType::kF16:
      return {PanelForm::kF16, ScaleForm::kNone};
    case DType::kBF16:
      return {PanelForm::kBF16, ScaleForm::kNone};
    case DType::kQ4_0:
      return {PanelForm::kInt4, ScaleForm::kHalf};
    case DType::kQ4_1:
      return {PanelForm::kInt4, ScaleForm::kHalfMin};
    case DType::kQ4_K:
      return {PanelForm::kInt4, ScaleForm::kSuper};
    case DType::kQ5_0:
      return {PanelForm::kInt6, ScaleForm::kHalf};
    case DType::kQ5_1:
      return {PanelForm::kInt6, ScaleForm::kHalfMin};
    case DType::kQ5_K:
      return {PanelForm::kInt6, ScaleForm::kSuper};
    case DType::kQ6_K:
      return {PanelForm::kInt6, ScaleForm::kSuperHalf};
    case DType::kQ8_0:
      return {PanelForm::kInt8, ScaleForm::kHalf};
  }
  SPA_CHECK(false);
}

size_t BitsPerValue(PanelForm form) {
  switch (form) {
    case PanelForm::kF32:
      return 32;
    case PanelForm::kF16:
    case PanelForm::kBF16:
      return 16;
    case PanelForm::kInt4:
      return 4;
    case PanelForm::kInt6:
    case PanelForm::kInt8:
      return 8;
  }
  SPA_CHECK(false);
}

size_t ScaleBytes(ScaleForm form, size_t cols) {
  switch (form) {
    case ScaleForm::kNone:
      return 0;
    case ScaleForm::kHalf:
      return cols / kGroup * 2 * kPanelWidth;
    case ScaleForm::kHalfMin:
      return cols / kGroup * 4 * kPanelWidth;
    case ScaleForm::kSuper:
      return cols / kSuperBlock * (2 * 2 + 2 * 8) * kPanelWidth;
    case ScaleForm::kSuperHalf:
      return cols / kSuperBlock * (2 + 16) * kPanelWidth;
  }
  SPA_CHECK(false);
}

}  // namespace

void LayOutPanels(const MatrixSource& source, PackedMatrix::Panels& panels) {
  SPA_CHECK(source.cols % Info(source.dtype).block_size == 0);
  const Forms forms = FormsOf(source.dtype);
  panels.dtype = source.dtype;
  panels.form = forms.form;
  panels.scale_form = forms.scale_form;
  panels.rows = source.rows;
  panels.cols = source.cols;
  panels.values_bytes = source.cols * kPanelWidth * BitsPerValue(forms.form) / 8;
  panels.scales_bytes = ScaleBytes(forms.scale_form, source.cols);
  // Every panel is aligned to a vector.
  constexpr size_t kVectorBytes = 64;
  const size_t panel_bytes =
      (panels.values_bytes + panels.scales_bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  panels.data.Resize(panels.NumPanels(), panel_bytes);
}

void PackPanel(const MatrixSource& source, size_t panel, PackedMatrix::Panels& panels) {
  switch (panels.form) {
    case PanelForm::kF32:
      return PackFloats<uint32_t>(source, panel, panels);
    case PanelForm::kF16:
    case PanelForm::kBF16:
      return PackFloats<uint16_t>(source, panel, panels);
    case PanelForm::kInt4:
    case PanelForm::kInt6:
    case PanelForm::kInt8:
      return PackInts(source, panel, panels);
  }
}

}  // namespace spa
