// The packed operands of MatMul, shared by packing (pack.cc), quantising (quantize_rows.cc) and the
// kernels (matmul_int.cc, matmul_float.cc). The layout is the same for every SIMD target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/matrix.h"
#include "kernels/matmul.h"

namespace spa {

inline constexpr size_t kPanelWidth = 16;  // output channels of a panel
inline constexpr size_t kGroup = 32;       // inputs summed in integers before a scale is applied
inline constexpr size_t kQuad = 4;         // inputs whose products one instruction sums
inline constexpr size_t kTileRows = 4;     // rows of activations that lie side by side
inline constexpr size_t kAmxRows = 16;     // rows of a tile of AMX

// How the values of a panel lie in memory, input by input, 16 channels beside each other.
enum class PanelForm {
  kF32,   // float [cols][16]
  kF16,   // half [cols][16]
  kBF16,  // uint32 [cols][8]: channel c in the low half of word c, channel c + 8 in the high half
  kInt4,  // uint8 [cols/8][16][4]: inputs 0 to 3 of 8 in low nibbles, 4 to 7 in high ones
  kInt6,  // uint8 [cols/4][16][4], at most 63
  kInt8,  // int8 [cols/4][16][4]
};

// How the scales of a panel lie behind its values. A weight is scale * value + min.
enum class ScaleForm {
  kNone,
  kHalf,       // half scale[16] per 32 inputs; min = -zero_point * scale
  kHalfMin,    // half scale[16], min[16] per 32 inputs
  kSuper,      // per 256 inputs: half d[16], dmin[16]; uint8 s[8][16], m[8][16]:
               // scale = d * s, min = -dmin * m for each 32 inputs
  kSuperHalf,  // per 256 inputs: half d[16]; int8 s[16][16]: scale = d * s for each 16 inputs
};

struct PackedMatrix::Panels {
  DType dtype = DType::kF32;
  PanelForm form = PanelForm::kF32;
  ScaleForm scale_form = ScaleForm::kNone;
  size_t rows = 0;
  size_t cols = 0;
  size_t values_bytes = 0;  // of one panel; its scales follow
  size_t scales_bytes = 0;
  Mat<std::byte> data;  // [NumPanels(), values, scales and what fills the last vector]

  size_t NumPanels() const { return (rows + kPanelWidth - 1) / kPanelWidth; }
  const std::byte* Values(size_t panel) const { return data.Row(panel); }
  const std::byte* Scales(size_t panel) const { return data.Row(panel) + values_bytes; }
};

// Integer values that stand for negative weights are stored with an offset, because x86 byte
// products take one unsigned factor.
inline constexpr int kZeroPoint4 = 8;
inline constexpr int kZeroPoint6 = 32;
inline constexpr int kZeroPoint8 = 128;  // where quads are summed: elsewhere |w| is multiplied

// One group of a row of activations: x = scale * q. Integer sums of products with weights that have
// a zero point start at minus the zero point times the sum of the q they meet. Sums are kept in
// pairs: one over inputs 4i and 4i + 1, one over 4i + 2 and 4i + 3.
struct alignas(16) ActivationGroup {
  int8_t q[kGroup];  // in [-127, 127]
  float scale;
  union {
    float scaled_sum;     // scale * sum of q, what a weight's min is multiplied with
    int16_t sum_pair[2];  // in every other group, where 256 inputs share a scale: the sums of q of
                          // this group and the next
  };
  union {
    struct {
      int16_t zero4[2];  // start of the pair of 4-bit sums over the group
      int16_t sums[2];   // sum of the first and of the last 16 q
    } own_scale;
    int16_t zero6[2][2];  // where 256 inputs share a scale: starts of the pairs of 6-bit sums over
                          // the first and over the last 16 inputs
    // Targets that sum quads start at one number instead of a pair:
    struct {
      int32_t zero4, zero8;  // over the group, with zero points of 8 and 128
    } own_scale_quads;
    int32_t zero6_quads[2];
  };
};
static_assert(sizeof(ActivationGroup) == 48);

struct Activations::Int8Rows {
  size_t num_groups = 0;
  Mat<ActivationGroup> tiles;  // [tile][group][kTileRows]; rows past the last are not written. The
                               // rows of an expert begin at a tile

  const ActivationGroup* Tile(size_t tile) const { return tiles.Row(tile); }
};

// Quantises every row of x; scale_span inputs (32 or 256, a divisor of x.cols) share a scale.
void QuantizeRows(MatView<const float> x, std::span<const uint32_t> rows_of_expert,
                  size_t scale_span, Activations::Int8Rows& out, ThreadPool& pool);

// A part of a product: these rows of x by these panels of w.
struct MatMulPart {
  size_t first_row;
  size_t num_rows;
  size_t first_tile;  // which begins with first_row, of the int8 rows
  size_t first_panel;
  size_t num_panels;
};

// The kernels.
void MatMulInt(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
               const MatMulPart& part, MatView<float> y);
void MatMulFloat(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                 const MatMulPart& part, MatView<float> y);

}  // namespace spa
