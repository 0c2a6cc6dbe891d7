// Draws which rows of which layer were recomputed: the first layer on top, prompt left, answer right, and
// under the layers a lane that says which answer positions are settled.

import { StateOf } from './cells';
import type { Frame } from './protocol';

export interface MapColors {
  idle: string;
  computed: string;
  settled: string;
  fresh: string; // settled by this very step
  guide: string;
}

const kRegionGap = 10; // between prompt and answer
const kSettledLane = 5;
const kSettledGap = 5;
const kMinGridCell = 4; // narrower cells would drown in the lines between them

export class MapLayout {
  readonly num_rows: number;
  readonly num_layers: number;
  readonly num_prompt: number;
  readonly lane_height: number;
  readonly cell_width: number;
  readonly height: number;

  constructor(
    frame: Frame,
    readonly width: number,
  ) {
    this.num_prompt = frame.prompt_tokens;
    this.num_rows = frame.prompt_tokens + frame.tokens.length;
    this.num_layers = frame.rows.length;
    this.lane_height = Math.round(Math.max(4, Math.min(18, 180 / Math.max(1, this.num_layers))));
    this.cell_width = Math.max(0, width - kRegionGap) / Math.max(1, this.num_rows);
    this.height = this.num_layers * this.lane_height + kSettledGap + kSettledLane;
  }

  X(pos: number): number {
    return pos * this.cell_width + (pos >= this.num_prompt ? kRegionGap : 0);
  }

  Pos(x: number): number | null {
    const answer_x = this.X(this.num_prompt);
    if (x >= answer_x - kRegionGap && x < answer_x) return null;
    const pos = Math.floor((x - (x >= answer_x ? kRegionGap : 0)) / this.cell_width);
    return pos >= 0 && pos < this.num_rows ? pos : null;
  }

  Layer(y: number): number | null {
    const layer = Math.floor(y / this.lane_height);
    return layer >= 0 && layer < this.num_layers ? layer : null;
  }
}

// `frames` end with the frame to show. With `so_far` a cell is stronger the more of these steps
// recomputed it; otherwise only the last step counts.
export function DrawMap(
  context: CanvasRenderingContext2D,
  layout: MapLayout,
  frames: Frame[],
  so_far: boolean,
  colors: MapColors,
  guide_pos: number | null,
) {
  context.clearRect(0, 0, layout.width, layout.height);
  for (let layer = 0; layer < layout.num_layers; ++layer) {
    const y = layer * layout.lane_height;
    context.fillStyle = colors.idle;
    FillRun(context, layout, 0, layout.num_rows, y, layout.lane_height - 1);
    context.fillStyle = colors.computed;
    if (so_far) {
      DrawShares(context, layout, frames, layer, y);
    } else {
      const runs = frames[frames.length - 1].rows[layer];
      for (let i = 0; i + 1 < runs.length; i += 2) {
        FillRun(context, layout, runs[i], runs[i + 1], y, layout.lane_height - 1);
      }
    }
  }
  DrawSettled(context, layout, frames, colors);
  if (guide_pos !== null) {
    context.fillStyle = colors.guide;
    context.fillRect(layout.X(guide_pos) + layout.cell_width / 2 - 0.5, 0, 1, layout.height);
  }
}

function DrawShares(
  context: CanvasRenderingContext2D,
  layout: MapLayout,
  frames: Frame[],
  layer: number,
  y: number,
) {
  // A run adds one at its begin and takes it back at its end; summing from the left gives counts.
  const change = new Int32Array(layout.num_rows + 1);
  for (const frame of frames) {
    const runs = frame.rows[layer];
    for (let i = 0; i + 1 < runs.length; i += 2) {
      change[runs[i]] += 1;
      change[runs[i + 1]] -= 1;
    }
  }
  let count = 0;
  let begin = 0;
  while (begin < layout.num_rows) {
    count += change[begin];
    let end = begin + 1;
    while (end < layout.num_rows && change[end] === 0) ++end;
    // The root spreads the small shares, where all rows of a good cache lie.
    context.globalAlpha = Math.sqrt(count / frames.length);
    if (count > 0) FillRun(context, layout, begin, end, y, layout.lane_height - 1);
    begin = end;
  }
  context.globalAlpha = 1;
}

function DrawSettled(
  context: CanvasRenderingContext2D,
  layout: MapLayout,
  frames: Frame[],
  colors: MapColors,
) {
  const frame = frames[frames.length - 1];
  const before = frames[frames.length - 2];
  const y = layout.height - kSettledLane;
  for (let pos = 0; pos < frame.tokens.length; ++pos) {
    const state = StateOf(frame, before, pos);
    const { fresh, settled, idle } = colors;
    context.fillStyle = state === 'fresh' ? fresh : state === 'settled' ? settled : idle;
    const begin = layout.num_prompt + pos;
    FillRun(context, layout, begin, begin + 1, y, kSettledLane);
  }
}

// Fills the cells of positions [begin, end) in one lane, cell by cell where they are wide enough.
function FillRun(
  context: CanvasRenderingContext2D,
  layout: MapLayout,
  begin: number,
  end: number,
  y: number,
  height: number,
) {
  if (layout.cell_width >= kMinGridCell) {
    for (let pos = begin; pos < end; ++pos) {
      context.fillRect(layout.X(pos), y, layout.cell_width - 1, height);
    }
    return;
  }
  // A run may cross from the prompt into the answer; the gap between them stays empty.
  const split = Math.max(begin, Math.min(end, layout.num_prompt));
  for (const [from, to] of [
    [begin, split],
    [split, end],
  ]) {
    if (to === from) continue;
    // Whole pixels, or neighbours would blend into stripes; and at least one, or a single
    // recomputed row of a long sequence would not be seen.
    const x = Math.round(layout.X(from));
    const end_x = Math.round(layout.X(to - 1) + layout.cell_width);
    context.fillRect(x, y, Math.max(1, end_x - x), height);
  }
}
