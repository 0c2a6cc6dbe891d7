// The input of one step of one sequence: its tokens, the rows that take part, the rows whose logits
// are read. The decoder fills it in; the transformer adds what only the sequence's state knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "base/token.h"
#include "transformer/row_set.h"

namespace spa {

struct StepInput {
  std::span<const TokenId> ids;     // [num_rows], masks included
  std::span<const uint8_t> masked;  // [num_rows], 1 where the position is open
  size_t prompt_length = 0;         // rows [0, prompt_length) are the prompt
  size_t block_begin = 0;           // the block being decoded
  size_t block_end = 0;
  size_t part_begin = 0;  // the part of the block that is decoded now: all of it, or a sub-block
  size_t part_end = 0;
  size_t step = 0;  // counted over the whole generation
  size_t step_in_block = 0;
  // A position is predicted by the row this many places before it (Dream: 1).
  size_t shift = 0;
  // Rows that take part: queries see only their keys. To a cache, "all rows" means these.
  RowSet visible = {};
  // Positions whose token differs from the one they had in the previous step: settled, edited or
  // opened again.
  RowSet changed = {};
  RowSet wanted = {};  // rows whose logits decide what is settled
  // Rows whose logits verify settled positions; read only if the row reaches the last layer.
  RowSet checked = {};
  // Rows to compute in every layer, whatever the cache keeps of them: they moved to another
  // position, or are read outside the block. They are also reported as never computed.
  RowSet renewed = {};
  // Shadow rows: row shadow_begin + i is a mask at the position of block_begin + i. It sees every
  // visible row but that one; only other shadow rows see it. Shadow rows are renewed.
  std::optional<size_t> shadow_begin = {};

  // For models with self-conditioning: the mean embedding that the last step expected at each row
  // of the block; empty in its first step.   [block_end - block_begin, model_dim]
  MatView<const float> expected = {};

  // Set by the transformer:
  RowSet never_computed = {};  // visible rows without keys and values: planned in every layer
  // Visible rows whose token is not the one they last ran with, never_computed included.
  RowSet new_tokens = {};

  bool IsShadow(uint32_t row) const { return shadow_begin && row >= *shadow_begin; }
  // The position of a row in the sequence.
  uint32_t PlaceOf(uint32_t row) const {
    return IsShadow(row) ? static_cast<uint32_t>(row - *shadow_begin + block_begin) : row;
  }

  // Whether a row is in the block being decoded, not in the text before it.
  bool IsDecoded(uint32_t row) const { return row >= block_begin; }
  size_t num_rows() const { return ids.size(); }  // room for rows, visible or not
  size_t end() const { return visible.empty() ? 0 : visible[visible.size() - 1] + 1; }
  RowSet reads() const { return wanted.Union(checked); }

  // The row whose logits predict a position, and back. Position 0 has no row before it.
  uint32_t RowOf(uint32_t position) const {
    return position >= shift ? position - static_cast<uint32_t>(shift) : 0;
  }
  uint32_t PositionOf(uint32_t row) const { return row + static_cast<uint32_t>(shift); }
  RowSet RowsOf(std::span<const uint32_t> positions) const {
    std::vector<uint32_t> rows;
    rows.reserve(positions.size());
    for (const uint32_t position : positions) rows.push_back(RowOf(position));
    return RowSet(std::move(rows));
  }
  RowSet OpenRows() const {
    std::vector<uint32_t> rows;
    for (const uint32_t row : visible) {
      if (masked[row]) rows.push_back(row);
    }
    return RowSet(std::move(rows));
  }
};

}  // namespace spa
