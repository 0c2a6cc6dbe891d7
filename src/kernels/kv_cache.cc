#include <algorithm>
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

// The same for elements of this many bytes.
template <typename Index>
void Scatter(const KvCache::Store& store, size_t element, const std::byte* from, size_t row,
             const Index& index, std::byte* to) {
  switch (element) {
    case 4:
      return ScatterRow<float>(store, from, row, index, to);
    case 2:
      return ScatterRow<uint16_t>(store, from, row, index, to);
    default:
      return ScatterRow<int8_t>(store, from, row, index, to);
  }
}

template <typename Index>
void Gather(const KvCache::Store& store, size_t element, const std::byte* from, size_t row,
            const Index& index, std::byte* to) {
  switch (element) {
    case 4:
      return GatherRow<float>(store, from, row, index, to);
    case 2:
      return GatherRow<uint16_t>(store, from, row, index, to);
    default:
      return GatherRow<int8_t>(store, from, row, index, to);
  }
}

// encode(row of `from`, sequence row, its bytes)
template <typename Index, typename Encode>
void StoreRows(const KvCache::Store& store, size_t element, std::span<const uint32_t> rows,
               MatView<const float> from, const Index& index, const Encode& encode, std::byte* to,
               ThreadPool& pool) {
  SPA_CHECK(from.rows == rows.size());
  SPA_CHECK(rows.empty() || from.cols == store.num_kv_heads * store.head_dim);
  ParallelRows(pool, rows.size(), from.cols, [&](size_t i) {
    thread_local Mat<std::byte> encoded;
    encoded.Resize(1, from.cols * element);
    encode(from.Row(i), rows[i], encoded.data());
    Scatter(store, element, encoded.data(), rows[i], index, to);
  });
}

// One key, as it is stored.
void CopyKey(const KvCache::Store& from, size_t row, KvCache::Store& to) {
  thread_local Mat<std::byte> encoded;
  encoded.Resize(1, from.num_kv_heads * from.head_dim * from.KeyBytes());
  Gather(from, from.KeyBytes(), from.keys.data(), row, KeyIndex(), encoded.data());
  Scatter(to, from.KeyBytes(), encoded.data(), row, KeyIndex(), to.keys.data());
}

}  // namespace

KvCache::KvCache() : store_(std::make_unique<Store>()) {}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() {
  if (store_ == nullptr) return;
  LeaveStateMemory(std::move(store_->keys));
  LeaveStateMemory(std::move(store_->values));
  LeaveStateMemory(std::move(store_->value_scales));
}

KvCache::KvCache(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type)
    : store_(std::make_unique<Store>(num_rows, num_kv_heads, head_dim, type)) {
  Store& store = *store_;
  store.keys = TakeStateMemory(store.KeysBytes());
  store.values = TakeStateMemory(store.ValuesBytes());
  store.value_scales = TakeStateMemory(store.ScalesBytes());
  // Results of padding are discarded, but arbitrary bytes could be slow to compute with.
  if (store.padded_rows != num_rows) {
    const size_t panel_bytes = kPanelWidth * head_dim * store.KeyBytes();
    for (size_t head = 0; head < num_kv_heads; ++head) {
      std::memset(store.keys.data() + store.KeyPanel(head, num_rows, 0) * store.KeyBytes(), 0,
                  panel_bytes);
    }
  }
  if (store.padded_dim != head_dim) store.values.Fill(std::byte{0});
  std::fill_n(store.ValueScales(0, 0), num_kv_heads * store.scale_rows, 0.0f);
}

size_t KvCache::num_rows() const { return store_->num_rows; }
size_t KvCache::num_kv_heads() const { return store_->num_kv_heads; }
size_t KvCache::head_dim() const { return store_->head_dim; }
KvType KvCache::type() const { return store_->type; }
size_t KvCache::bytes() const {
  return store_->keys.bytes() + store_->values.bytes() + store_->value_scales.bytes();
}

size_t KvCache::BytesFor(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type) {
  const Store shape(num_rows, num_kv_heads, head_dim, type);
  return StateBytes(shape.KeysBytes()) + StateBytes(shape.ValuesBytes()) +
         StateBytes(shape.ScalesBytes());
}

void KvCache::StoreKeys(std::span<const uint32_t> rows, MatView<const float> k, ThreadPool& pool) {
  const auto encode = [&](const float* key, size_t /*row*/, std::byte* to) {
    EncodeKept(KeptTypeOf(store_->type), key, k.cols, to);
  };
  StoreRows(*store_, store_->KeyBytes(), rows, k, KeyIndex(), encode, store_->keys.data(), pool);
}

void KvCache::StoreValues(std::span<const uint32_t> rows, MatView<const float> v,
                          ThreadPool& pool) {
  Store& store = *store_;
  const auto encode = [&](const float* value, size_t row, std::byte* to) {
    if (!HasByteValues(store.type)) return EncodeKept(KeptTypeOf(store.type), value, v.cols, to);
    for (size_t head = 0; head < store.num_kv_heads; ++head) {
      const size_t first = head * store.head_dim;
      *store.ValueScales(head, row) =
          EncodeBytes(value + first, store.head_dim, reinterpret_cast<int8_t*>(to + first));
    }
  };
  StoreRows(store, store.ValueBytes(), rows, v, ValueIndex(), encode, store.values.data(), pool);
}

void KvCache::CopyRows(const KvCache& other, size_t num_rows, ThreadPool& pool) {
  const Store& from = *other.store_;
  Store& to = *store_;
  SPA_CHECK(from.num_kv_heads == to.num_kv_heads && from.head_dim == to.head_dim &&
            from.type == to.type && num_rows <= std::min(from.num_rows, to.num_rows));
  const auto copy = [](size_t element, const Mat<std::byte>& source, size_t first,
                       Mat<std::byte>& target, size_t target_first, size_t elements) {
    std::memcpy(target.data() + target_first * element, source.data() + first * element,
                elements * element);
  };
  const size_t panel_rows = num_rows / kPanelWidth * kPanelWidth;
  pool.ParallelFor(to.num_kv_heads, [&](size_t head) {
    copy(to.KeyBytes(), from.keys, from.KeyPanel(head, 0, 0), to.keys, to.KeyPanel(head, 0, 0),
         panel_rows * to.head_dim);
    for (size_t row = 0; row < num_rows; row += kKeyBlock) {
      for (size_t dim = 0; dim < to.padded_dim; dim += kPanelWidth) {
        copy(to.ValueBytes(), from.values, from.ValuePanel(head, row, dim), to.values,
             to.ValuePanel(head, row, dim), std::min(kKeyBlock, num_rows - row) * kPanelWidth);
      }
    }
    if (HasByteValues(to.type)) {
      std::copy_n(from.ValueScales(head, 0), num_rows, to.ValueScales(head, 0));
    }
  });
  for (size_t row = panel_rows; row < num_rows; ++row) CopyKey(from, row, to);
}

void KvCache::LoadKey(size_t row, float* out) const {
  const Store& store = *store_;
  const size_t cols = store.num_kv_heads * store.head_dim;
  Mat<std::byte> encoded(1, cols * store.KeyBytes());
  Gather(store, store.KeyBytes(), store.keys.data(), row, KeyIndex(), encoded.data());
  DecodeKept(KeptTypeOf(store.type), encoded.data(), cols, out);
}

void KvCache::LoadValue(size_t row, float* out) const {
  const Store& store = *store_;
  const size_t cols = store.num_kv_heads * store.head_dim;
  Mat<std::byte> encoded(1, cols * store.ValueBytes());
  Gather(store, store.ValueBytes(), store.values.data(), row, ValueIndex(), encoded.data());
  if (!HasByteValues(store.type)) {
    return DecodeKept(KeptTypeOf(store.type), encoded.data(), cols, out);
  }
  const auto* bytes = reinterpret_cast<const int8_t*>(encoded.data());
  for (size_t head = 0; head < store.num_kv_heads; ++head) {
    const float scale = *store.ValueScales(head, row);
    for (size_t i = 0; i < store.head_dim; ++i) *out++ = scale * static_cast<float>(*bytes++);
  }
}

}  // namespace spa
