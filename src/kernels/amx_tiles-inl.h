// Products of bytes in AMX tiles: 16 rows x 16 channels x 32 inputs at a time.
#include <hwy/highway.h>

#include <cstring>

#include "kernels/panels.h"
#include "kernels/simd_targets.h"

#if defined(SPA_KERNELS_AMX_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_AMX_TILES_INL_H_
#undef SPA_KERNELS_AMX_TILES_INL_H_
#else
#define SPA_KERNELS_AMX_TILES_INL_H_
#endif

// Processors with AMX have the instructions of this target.
#undef SPA_HAS_AMX_TILES
#if HWY_TARGET == HWY_AVX3_DL && HWY_ARCH_X86_64
#define SPA_HAS_AMX_TILES 1
#else
#define SPA_HAS_AMX_TILES 0
#endif

#if SPA_HAS_AMX_TILES
HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {

// The tiles of a part. One at a time per thread: the memory is the thread's own, and a thread with
// tiles is slow to switch away from.
class PartTiles {
 public:
  // max_groups: those that are gathered and summed at a time
  PartTiles(const MatMulPart& part, size_t max_groups) : part_(part), max_groups_(max_groups) {
    thread_local Mat<int8_t> rows;
    thread_local Mat<int32_t> sums;
    rows.Resize((part.num_rows + kAmxRows - 1) / kAmxRows * max_groups, kRowsBytes);
    sums.Resize(max_groups, kSums);
    rows_ = rows.data();
    sums_ = sums.data();
    // tmm0: sums, tmm1: a group of 16 rows, tmm2: the group's weights of 16 channels
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {kSumBytes, kGroup, kQuadBytes};
      uint8_t rows[16] = {kAmxRows, kAmxRows, kGroup / kQuad};
    } shapes;
    static_assert(sizeof(shapes) == 64);
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  ~PartTiles() { asm volatile("tilerelease" : : : "memory"); }
  PartTiles(const PartTiles&) = delete;
  PartTiles& operator=(const PartTiles&) = delete;

  // Brings the bytes of these groups side by side: [rows / 16][groups][16][32].
  void Gather(const Activations::Int8Rows& x, size_t first_group, size_t num_groups) {
    for (size_t row = 0; row < part_.num_rows; ++row) {
      const ActivationGroup* from =
          x.Tile(part_.first_tile + row / kTileRows) + first_group * kTileRows + row % kTileRows;
      int8_t* to = Rows(row / kAmxRows, 0) + row % kAmxRows * kGroup;
      for (size_t g = 0; g < num_groups; ++g, from += kTileRows, to += kRowsBytes) {
        std::memcpy(to, from->q, kGroup);
      }
    }
  }

  // Sums of the products of each group, [groups][16 rows][16], for the rows from `row` on. Those of
  // 16 rows are made at once. weights: [groups][8 quads][16][4], signed or not
  template <bool kSigned>
  const int32_t* Sums(size_t row, const uint8_t* weights, size_t num_groups) {
    const size_t tile = row / kAmxRows, place = row % kAmxRows;
    for (size_t g = 0; place == 0 && g < num_groups; ++g) {
      Multiply<kSigned>(Rows(tile, g), weights + g * kPanelWidth * kGroup, sums_ + g * kSums);
    }
    return sums_ + place * kPanelWidth;
  }

 private:
  static constexpr size_t kRowsBytes = kAmxRows * kGroup, kSums = kAmxRows * kPanelWidth;
  // Bytes of a row of tiles of sums and of weights.
  static constexpr size_t kSumBytes = kPanelWidth * sizeof(int32_t);
  static constexpr size_t kQuadBytes = kPanelWidth * kQuad;

  int8_t* Rows(size_t tile, size_t group) const {
    return rows_ + (tile * max_groups_ + group) * kRowsBytes;
  }

  template <bool kSigned>
  static HWY_INLINE void Multiply(const int8_t* rows, const uint8_t* weights, int32_t* sums) {
    asm volatile(
        "tilezero %%tmm0\n\t"
        "tileloadd (%0,%1,1), %%tmm1\n\t"
        "tileloadd (%2,%3,1), %%tmm2"
        :
        : "r"(rows), "r"(kGroup), "r"(weights), "r"(kQuadBytes)
        : "memory");
    if constexpr (kSigned) {
      asm volatile("tdpbssd %tmm2, %tmm1, %tmm0");
    } else {
      asm volatile("tdpbsud %tmm2, %tmm1, %tmm0");
    }
    asm volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(sums), "r"(kSumBytes) : "memory");
  }

  MatMulPart part_;
  size_t max_groups_;
  int8_t* rows_;
  int32_t* sums_;
};

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // SPA_HAS_AMX_TILES

#endif  // per-target include guard
