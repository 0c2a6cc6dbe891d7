#include <cstring>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/kv_store.h"
#include "kernels/parallel_rows.h"
#include "kernels/state_memory.h"

namespace spa {
namespace {

// The place of element i of 16.
size_t Place(KvType type, size_t i) { return type == KvType::kBF16 ? i % 8 * 2 + i / 8 : i; }

// Index of element `dim` of the key or value of `row`. Separate types, so that the element loops
// are compiled for each.
struct KeyIndex {
  size_t operator()(const KvCache::Store& store, size_t head, size_t row, size_t dim) const {
    return store.KeyPanel(head, row, dim) + Place(store.type, row % kPanelWidth);
  }
};
struct ValueIndex {
  size_t operator()(const KvCache::Store& store, size_t head, size_t row, size_t dim) const {
    return store.ValuePanel(head, row, dim / kPanelWidth * kPanelWidth) +
           Place(store.type, dim % kPanelWidth);
  }
};

template <typename Element, typename Index>
void ScatterRow(const KvCache::Store& store, const std::byte* from, size_t row, const Index& index,
                std::byte* to) {
  for (size_t head = 0; head < store.num_kv_heads; ++head) {
    for (size_t dim = 0; dim < store.head_dim; ++dim, from += sizeof(Element)) {
      std::memcpy(to + index(store, head, row, dim) * sizeof(Element), from, sizeof(Element));
    }
  }
}

template <typename Element, typename Index>
void GatherRow(const KvCache::Store& store, const std::byte* from, size_t row, const Index& index,
               std::byte* to) {
  for (size_t head = 0; head < store.num_kv_heads; ++head) {
    for (size_t dim = 0; dim < store.head_dim; ++dim, to += sizeof(Element)) {
      std::memcpy(to, from + index(store, head, row, dim) * sizeof(Element), sizeof(Element));
    }
  }
}

template <typename Index>
void StoreRows(const KvCache::Store& store, std::span<const uint32_t> rows,
               MatView<const float> from, const Index& index, std::byte* to, ThreadPool& pool) {
  SPA_CHECK(from.rows == rows.size());
  SPA_CHECK(rows.empty() || from.cols == store.num_kv_heads * store.head_dim);
  ParallelRows(pool, rows.size(), from.cols, [&](size_t i) {
    thread_local Mat<std::byte> encoded;
    encoded.Resize(1, from.cols * store.ElementBytes());
    EncodeKept(store.type, from.Row(i), from.cols, encoded.data());
    if (store.type == KvType::kF32) {
      ScatterRow<float>(store, encoded.data(), rows[i], index, to);
    } else {
      ScatterRow<uint16_t>(store, encoded.data(), rows[i], index, to);
    }
  });
}

template <typename Index>
void LoadRow(const KvCache::Store& store, const std::byte* from, size_t row, const Index& index,
             float* to) {
  const size_t cols = store.num_kv_heads * store.head_dim;
  Mat<std::byte> encoded(1, cols * store.ElementBytes());
  if (store.type == KvType::kF32) {
    GatherRow<float>(store, from, row, index, encoded.data());
  } else {
    GatherRow<uint16_t>(store, from, row, index, encoded.data());
  }
  DecodeKept(store.type, encoded.data(), cols, to);
}

// One row, as it is stored.
template <typename Index>
void CopyRow(const KvCache::Store& from, const std::byte* from_data, const KvCache::Store& to,
             size_t row, const Index& index, std::byte* to_data) {
  thread_local Mat<std::byte> encoded;
  encoded.Resize(1, from.num_kv_heads * from.head_dim * from.ElementBytes());
  if (from.type == KvType::kF32) {
    GatherRow<float>(from, from_data, row, index, encoded.data());
    ScatterRow<float>(to, encoded.data(), row, index, to_data);
  } else {
    GatherRow<uint16_t>(from, from_data, row, index, encoded.data());
    ScatterRow<uint16_t>(to, encoded.data(), row, index, to_data);
  }
}

size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

KvCache::KvCache() : store_(std::make_unique<Store>()) {}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() {
  if (store_ == nullptr) return;
  LeaveStateMemory(std::move(store_->keys));
  LeaveStateMemory(std::move(store_->values));
}

KvCache::KvCache(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type) : KvCache() {
  store_->num_rows = num_rows;
  store_->num_kv_heads = num_kv_heads;
  store_->head_dim = head_dim;
  store_->type = type;
  store_->padded_rows = RoundUp(num_rows, kPanelWidth);
  store_->padded_dim = RoundUp(head_dim, kPanelWidth);
  const size_t heads = store_->padded_rows * num_kv_heads * store_->ElementBytes();
  store_->keys = TakeStateMemory(heads * head_dim);
  store_->values = TakeStateMemory(heads * store_->padded_dim);
  // Results of padding are discarded, but arbitrary bytes could be slow to compute with.
  if (store_->padded_rows != num_rows) {
    const size_t panel_bytes = kPanelWidth * head_dim * store_->ElementBytes();
    for (size_t head = 0; head < num_kv_heads; ++head) {
      std::memset(
          store_->keys.data() + store_->KeyPanel(head, num_rows, 0) * store_->ElementBytes(), 0,
          panel_bytes);
    }
  }
  if (store_->padded_dim != head_dim) store_->values.Fill(std::byte{0});
}

size_t KvCache::num_rows() const { return store_->num_rows; }
size_t KvCache::num_kv_heads() const { return store_->num_kv_heads; }
size_t KvCache::head_dim() const { return store_->head_dim; }
KvType KvCache::type() const { return store_->type; }
size_t KvCache::bytes() const { return store_->keys.bytes() + store_->values.bytes(); }

size_t KvCache::BytesFor(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type) {
  const size_t heads = RoundUp(num_rows, kPanelWidth) * num_kv_heads * ElementBytes(type);
  return StateBytes(heads * head_dim) + StateBytes(heads * RoundUp(head_dim, kPanelWidth));
}

void KvCache::StoreKeys(std::span<const uint32_t> rows, MatView<const float> k, ThreadPool& pool) {
  StoreRows(*store_, rows, k, KeyIndex(), store_->keys.data(), pool);
}

void KvCache::StoreValues(std::span<const uint32_t> rows, MatView<const float> v,
                          ThreadPool& pool) {
  StoreRows(*store_, rows, v, ValueIndex(), store_->values.data(), pool);
}

void KvCache::CopyRows(const KvCache& other, size_t num_rows, ThreadPool& pool) {
  const Store &from = *other.store_, &to = *store_;
  SPA_CHECK(from.num_kv_heads == to.num_kv_heads && from.head_dim == to.head_dim &&
            from.type == to.type && num_rows <= std::min(from.num_rows, to.num_rows));
  const size_t element = to.ElementBytes();
  const auto copy = [element](const Mat<std::byte>& source, size_t first, Mat<std::byte>& target,
                              size_t target_first, size_t elements) {
    std::memcpy(target.data() + target_first * element, source.data() + first * element,
                elements * element);
  };
  const size_t panel_rows = num_rows / kPanelWidth * kPanelWidth;
  pool.ParallelFor(to.num_kv_heads, [&](size_t head) {
    copy(from.keys, from.KeyPanel(head, 0, 0), store_->keys, to.KeyPanel(head, 0, 0),
         panel_rows * to.head_dim);
    for (size_t row = 0; row < num_rows; row += kKeyBlock) {
      for (size_t dim = 0; dim < to.padded_dim; dim += kPanelWidth) {
        copy(from.values, from.ValuePanel(head, row, dim), store_->values,
             to.ValuePanel(head, row, dim), std::min(kKeyBlock, num_rows - row) * kPanelWidth);
      }
    }
  });
  for (size_t row = panel_rows; row < num_rows; ++row) {
    CopyRow(from, from.keys.data(), to, row, KeyIndex(), store_->keys.data());
  }
}

void KvCache::LoadKey(size_t row, float* out) const {
  LoadRow(*store_, store_->keys.data(), row, KeyIndex(), out);
}

void KvCache::LoadValue(size_t row, float* out) const {
  LoadRow(*store_, store_->values.data(), row, ValueIndex(), out);
}

}  // namespace spa
