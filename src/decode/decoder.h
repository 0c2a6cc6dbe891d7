// The decoding of one sequence: which positions need logits next, and which of them are settled. It
// does not run the model: Begin a step, Offer it the logits, Commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "decode/options.h"
#include "decode/position_memory.h"
#include "decode/token_sampler.h"
#include "transformer/step_input.h"

namespace spa {

// The positions [begin, end): of the block being decoded, or of a gap.
struct BlockRange {
  size_t begin = 0, end = 0;

  bool operator==(const BlockRange&) const = default;
};

// The given tokens of a canvas with gaps; empty: all of it is open.
struct GivenCanvas {
  std::vector<TokenId> ids;      // [gen_length], the mask id where it is open
  std::vector<uint32_t> spaced;  // indices whose token must begin with a space
};

// The position after the canvas. Blocks counted from the start are whole, so it is rounded up.
size_t CanvasEnd(size_t prompt_length, const DecodeOptions& options);

class Decoder {
 public:
  // The prompt has at least one token; options have been validated. A position is predicted by the
  // row `shift` places before it. `suffix` follows the canvas and never changes. Throws Error if
  // the options do not allow that.
  Decoder(std::vector<TokenId> prompt, const DecodeOptions& options,
          const DecodeVocabulary& vocabulary, size_t shift, std::vector<TokenId> suffix = {},
          GivenCanvas given = {});

  bool done() const { return done_; }
  const StepInput& input() const { return input_; }  // of the step that began last

  // Prepares a forward pass. The result stays valid until Commit. `watch`: also reads the logits of
  // other open positions whose row is computed.
  const StepInput& Begin(bool watch = false);
  // Logits of a wanted or checked row. Different rows may be offered from different threads.
  void Offer(uint32_t row, std::span<float> logits);
  // Settles positions; changed() then holds those with a new token.
  void Commit();

  // Prompt, canvas and suffix.
  std::span<const TokenId> ids() const { return std::span(ids_).first(SequenceEnd()); }
  // Rows there may ever be: a canvas may grow, and there may be shadow rows after it.
  size_t num_rows() const { return ids_.size(); }
  std::span<const TokenId> canvas() const {
    return ids().subspan(prompt_length_, canvas_end_ - prompt_length_);
  }
  std::span<const uint8_t> masked() const { return masked_; }
  // What was open at first, where it is now: the whole canvas, or the gaps of a text.
  std::span<const BlockRange> gaps() const { return gaps_; }
  bool infills() const { return infills_; }  // part of the canvas is given
  // The first position whose token the last step moved, because a gap changed its length;
  // ids().size() if none.
  size_t moved_from() const { return moved_from_; }
  // Positions whose token the last step changed.
  const RowSet& changed() const { return changed_; }
  // Candidates of the last step, in the order of the wanted rows, and their positions.
  std::span<const Candidate> candidates() const { return candidates_; }
  std::span<const uint32_t> positions() const { return positions_; }
  // Positions that were watched in the last step, and what was read of them.
  std::span<const uint32_t> watched() const { return watched_; }
  std::span<const std::optional<Candidate>> watched_candidates() const {
    return watched_candidates_;
  }
  // The index of a wanted row's position among the candidates.
  size_t IndexOf(uint32_t row) const;
  BlockRange block() const { return block_; }
  size_t prompt_length() const { return prompt_length_; }
  size_t steps() const { return forwards_; }  // forward passes so far
  size_t settled() const;                     // positions of the canvas that have a token
  const DecodeOptions& options() const { return options_; }

  // Length of the settled run at the start of the answer, and whether it ends the answer: the
  // first stop token with everything before it settled. Tokens that may still be edited or opened
  // again do not count.
  struct Prefix {
    size_t length = 0;  // tokens of the answer, without the stop token
    bool ended = false;
  };
  Prefix SettledPrefix() const;

 private:
  // Moves to the next block with masks, skipping steps that settle nothing; sets done_.
  void Advance();
  void StartBlock(BlockRange block);
  size_t MasksIn(BlockRange range) const;
  bool HasGap(BlockRange range) const;  // some of it was open at first
  bool BlockFinished() const;
  bool HoldsStop(size_t end) const;  // a stop token among the answer before `end`
  bool IsStop(TokenId id) const;
  void Settle(size_t index);  // of the candidates
  void Open(uint32_t position);
  void Forget(uint32_t position);  // what the rule remembers of it
  void Finish();                   // fills what is still open
  size_t SequenceEnd() const { return canvas_end_ + suffix_length_; }

  // block_window.cc: what is being decoded (the block, its first part with masks, or the place it
  // has slid to), the block as caches see it, and the rows that take part.
  BlockRange Part() const;
  BlockRange SlidingPart() const;
  BlockRange CachedBlock(BlockRange part) const;
  RowSet VisibleRows(BlockRange part) const;
  bool InWindow(size_t position, size_t distance) const;  // DPad's draw

  // settling.cc: how many positions a step settles, and which.
  size_t QuotaOfStep() const;
  bool RuleDecides() const;  // a rule, not the schedule, decides how many are settled
  // Whether the positions a step will settle are known before its logits.
  bool KnownAhead() const;
  void KeepNextPositions();
  double CurrentThreshold() const;
  std::vector<size_t> Choose() const;
  // Whether this step reads the whole canvas. Tokens that are sure in it are remembered, and
  // settled once everything before them is.
  bool ReadsAll() const { return options_.first_threshold && forwards_ == 0; }
  void KeepSure();
  void SettleSure(std::vector<uint32_t>& changed);
  // For rules that revoke: settles and reopens; returns the changed positions.
  std::vector<uint32_t> Revise();

  // canvas_growth.cc: DAEDAL.
  void ProbeEnd();  // chooses the positions at the canvas's end that this step reads
  // How sure the model is that the answer ends before the canvas does.
  double EndConfidence() const;
  bool GrowCanvas();   // false if the canvas is long enough, or as long as it may be
  void InsertMasks();  // after the least sure position of the block

  // noise_canvas.cc: decoding from random tokens.
  TokenId Noise(size_t position) const;
  double NoiseTemperature() const;
  void CommitNoise();

  // gap_edits.cc: the token just written at `position` may expand or delete it.
  bool MayExpand() const;
  void EditGap(uint32_t position);
  void Insert(size_t position, size_t gap);
  void Remove(size_t position, size_t gap);
  BlockRange* GapOf(size_t position);

  DecodeOptions options_;
  DecodeVocabulary vocabulary_;
  size_t shift_;
  size_t prompt_length_;
  size_t canvas_end_ = 0;
  size_t suffix_length_ = 0;
  std::vector<TokenId> ids_;
  std::vector<uint8_t> masked_;
  size_t steps_per_block_;
  std::vector<float> grid_;     // kTimeGrid
  std::vector<size_t> counts_;  // kLinear, of the block
  BlockRange block_;
  size_t slid_ = 0;                       // how far a sliding block moved in the last step
  size_t settled_since_block_start_ = 0;  // of a sliding block
  bool seeding_ = false;                  // this pass gives the next block's first token
  size_t step_ = 0;                       // planned step of the block
  size_t block_forwards_ = 0;             // forward passes in the block
  size_t post_steps_ = 0;                 // passes that began with a full block
  bool edited_ = false;                   // the last of them changed something
  size_t masks_at_block_start_ = 0;
  size_t forwards_ = 0;
  bool done_ = false;
  size_t settled_at_end_ = 0;
  size_t last_settled_ = 0;      // in the last step: WINO
  double end_confidence_ = 0.0;  // when it was last probed: DAEDAL
  std::vector<BlockRange> gaps_;
  bool infills_ = false;
  RowSet spaced_;           // positions whose token must begin with a space
  size_t most_length_ = 0;  // limit of SequenceEnd()
  size_t expansions_ = 0;   // left
  size_t moved_from_ = 0;
  StepInput input_;
  std::vector<uint32_t> positions_;  // wanted positions
  std::vector<Candidate> candidates_;
  std::vector<TokenId> likeliest_, likeliest_before_;  // of noise, at the wanted positions
  size_t stable_ = 0;                                  // steps that found the same ones
  std::vector<uint32_t> checked_;  // settled positions that may be edited or opened again
  // Their own rows' candidates; with WINO, the probability of their token when hidden. Empty if the
  // cache did not compute the row.
  std::vector<std::optional<Candidate>> checked_candidates_;
  std::vector<uint32_t> watched_;  // open positions outside the part
  std::vector<std::optional<Candidate>> watched_candidates_;
  std::vector<uint32_t> probed_;  // positions at the end of a canvas that may grow
  std::vector<Candidate> probed_candidates_;
  std::vector<std::optional<TokenId>> sure_;  // per position: sure in the first step
  RowSet renewed_;                            // rows that were moved
  RowSet changed_;
  std::vector<PositionMemory> memory_;  // per position, if the rule remembers anything
};

}  // namespace spa
