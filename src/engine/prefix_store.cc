#include "engine/prefix_store.h"

#include <algorithm>

namespace spa {
namespace {

// A sequence, and where its blocks are counted from.
struct Sequence {
  const SequenceState& state;
  size_t prompt_length;
  const std::string& cache;
};

Sequence Of(Generation& generation) {
  return {generation.state(), generation.decoder().prompt_length(), generation.times().cache};
}

// Whether a finished block depends only on the tokens up to its end.
bool IsExact(const SequenceState& state) {
  return state.attention().kind == AttentionKind::kBlocks && state.keeps().warm_start &&
         state.keeps().needs_block_attention;
}

// The largest number of whole blocks that is at most `rows`, in rows.
size_t WholeBlocks(const Sequence& sequence, size_t rows) {
  size_t end = 0;
  while (true) {
    const size_t next = sequence.state.attention().BlockEnd(end, sequence.prompt_length);
    if (next > rows) return end;
    end = next;
  }
}

bool SameBlocks(const Sequence& a, const Sequence& b) {
  const AttentionPattern& attention = a.state.attention();
  return attention == b.state.attention() && a.cache == b.cache &&
         (attention.origin == BlockOrigin::kStart ||
          a.prompt_length % attention.block_length == b.prompt_length % attention.block_length);
}

// How many rows of `donor` equal what another sequence would compute for its first `tokens`.
size_t SharedRows(const Sequence& donor, const Sequence& other, std::span<const TokenId> tokens) {
  if (!SameBlocks(donor, other)) return 0;
  const auto differs = std::ranges::mismatch(tokens, donor.state.tokens()).in1;
  return WholeBlocks(other, static_cast<size_t>(differs - tokens.begin()));
}

}  // namespace

void PrefixStore::Adopt(Generation& generation,
                        std::span<const std::unique_ptr<Generation>> running, ThreadPool& pool) {
  const Sequence own = Of(generation);
  if (!IsExact(own.state) || generation.num_states() != 1) return;
  const auto prompt = generation.decoder().ids().first(own.prompt_length);
  size_t most = 0;
  SequenceState* donor = nullptr;
  auto used = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const size_t rows = SharedRows({*kept->state, kept->prompt_length, kept->cache}, own, prompt);
    if (rows <= most) continue;
    most = rows;
    donor = kept->state.get();
    used = kept;
  }
  for (const auto& other : running) {
    if (other->num_states() != 1) continue;
    const size_t rows = SharedRows(Of(*other), own, prompt);
    if (rows <= most) continue;
    most = rows;
    donor = &other->state();
    used = kept_.end();
  }
  if (donor == nullptr || !generation.state().AdoptPrefix(*donor, most, pool)) return;
  generation.times().reused_tokens = most;
  if (used != kept_.end()) kept_.splice(kept_.begin(), kept_, used);
}

void PrefixStore::Keep(std::unique_ptr<Generation> generation, ThreadPool& pool) {
  const Sequence own = Of(*generation);
  if (limit_ == 0 || !IsExact(own.state) || generation->num_states() != 1) return;
  // Settled tokens that their rows were computed with.
  const Decoder& decoder = generation->decoder();
  size_t seen = 0;
  while (seen < decoder.ids().size() && !decoder.masked()[seen] &&
         own.state.tokens()[seen] == decoder.ids()[seen]) {
    ++seen;
  }
  const size_t rows = WholeBlocks(own, seen);
  if (rows == 0) return;
  Kept made{.state = nullptr, .prompt_length = own.prompt_length, .cache = own.cache};
  made.state = generation->TakeState();
  made.state->Shrink(rows, pool);
  // Drop entries that are a prefix of this one.
  const Sequence whole{*made.state, made.prompt_length, made.cache};
  std::erase_if(kept_, [&](const Kept& kept) {
    const Sequence old{*kept.state, kept.prompt_length, kept.cache};
    if (SharedRows(whole, old, kept.state->tokens()) < kept.state->num_rows()) return false;
    bytes_ -= kept.state->cache_bytes();
    return true;
  });
  bytes_ += made.state->cache_bytes();
  kept_.push_front(std::move(made));
  while (bytes_ > limit_) DropOldest();
}

bool PrefixStore::DropOldest() {
  if (kept_.empty()) return false;
  bytes_ -= kept_.back().state->cache_bytes();
  kept_.pop_back();
  ++dropped_;
  return true;
}

}  // namespace spa
