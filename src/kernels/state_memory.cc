#include "kernels/state_memory.h"

#include <bit>
#include <mutex>
#include <utility>
#include <vector>

namespace spa {
namespace {

constexpr size_t kLarge = size_t{2} << 20;  // a huge page

class LeftPieces {
 public:
  Mat<std::byte> Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (size_t i = pieces_.size(); i-- > 0;) {
      if (pieces_[i].bytes() != bytes) continue;
      Mat<std::byte> piece = std::move(pieces_[i]);
      pieces_.erase(pieces_.begin() + static_cast<ptrdiff_t>(i));
      kept_ -= bytes;
      return piece;
    }
    return {};
  }
  void Give(Mat<std::byte> piece) {
    const std::lock_guard lock(mutex_);
    kept_ += piece.bytes();
    pieces_.push_back(std::move(piece));
    Shrink(limit_);
  }
  void SetLimit(size_t limit) {
    const std::lock_guard lock(mutex_);
    limit_ = limit;
    Shrink(limit);
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    Shrink(0);
  }
  size_t limit() {
    const std::lock_guard lock(mutex_);
    return limit_;
  }
  size_t kept() {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

 private:
  void Shrink(size_t limit) {
    size_t count = 0;
    for (; kept_ > limit; ++count) kept_ -= pieces_[count].bytes();  // the oldest first
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<ptrdiff_t>(count));
  }

  std::mutex mutex_;
  std::vector<Mat<std::byte>> pieces_;
  size_t limit_ = 0, kept_ = 0;
};

// Never destroyed: sequences may outlive static objects.
LeftPieces& Left() {
  static auto& left = *new LeftPieces();
  return left;
}

}  // namespace

size_t StateBytes(size_t bytes) {
  if (bytes < kLarge) return bytes;
  const size_t unit = std::bit_floor(bytes) / 16;
  return (bytes + unit - 1) / unit * unit;
}

Mat<std::byte> TakeStateMemory(size_t bytes) {
  Mat<std::byte> piece;
  if (bytes >= kLarge) piece = Left().Take(StateBytes(bytes));
  if (piece.bytes() == 0) piece.Resize(1, StateBytes(bytes));
  return piece;
}

void LeaveStateMemory(Mat<std::byte> piece) {
  // A moved-from piece still has its size.
  if (piece.data() != nullptr && piece.bytes() >= kLarge) Left().Give(std::move(piece));
}

void KeepStateMemory(size_t limit) { Left().SetLimit(limit); }
size_t StateMemoryLimit() { return Left().limit(); }
size_t StateMemoryKept() { return Left().kept(); }
void ReleaseStateMemory() { Left().Release(); }

}  // namespace spa
