// Decoding from random tokens instead of masks (DiffusionGemma).
#include <algorithm>
#include <utility>

#include "decode/commit_rule.h"
#include "decode/decoder.h"

namespace spa {

// The second draw of a position's stream; the first one is for its token.
TokenId Decoder::Noise(size_t position) const {
  const double draw = RandomStream(options_.seed, forwards_, position).Uniform(1);
  return static_cast<TokenId>(draw * static_cast<double>(vocabulary_.num_tokens));
}

double Decoder::NoiseTemperature() const {
  const double left =
      static_cast<double>(steps_per_block_ - step_) / static_cast<double>(steps_per_block_);
  return options_.temperature + (options_.first_temperature - options_.temperature) * left;
}

void Decoder::CommitNoise() {
  double entropy = 0.0;
  for (const Candidate& candidate : candidates_) {
    entropy += candidate.entropy / static_cast<double>(candidates_.size());
  }
  stable_ = likeliest_ == likeliest_before_ ? stable_ + 1 : 0;
  const bool done = step_ + 1 >= steps_per_block_ ||
                    (stable_ >= options_.stable_steps && entropy < options_.stable_entropy);
  const std::vector<size_t> accepted = CommitLeastEntropy(candidates_, *options_.entropy_bound);
  std::vector<uint32_t> changed;
  for (size_t i = 0; i < positions_.size(); ++i) {
    const uint32_t pos = positions_[i];
    TokenId token = likeliest_[i];
    if (!done) {
      token = std::ranges::binary_search(accepted, i) ? candidates_[i].token : Noise(pos);
    }
    // Every row of a finished block is computed once more, as text.
    if (done || token != ids_[pos]) changed.push_back(pos);
    ids_[pos] = token;
    masked_[pos] = done ? 0 : 1;
  }
  changed_ = RowSet(std::move(changed));
  likeliest_before_ = likeliest_;
}

}  // namespace spa
