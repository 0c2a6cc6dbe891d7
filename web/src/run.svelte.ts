// One answer of one cache, from the request to the last number.

import type { ChangedOptions, Frame, Message, Stats, StepProgress } from './protocol';
import { ServerError, StreamAnswer } from './server';

export type RunStatus = 'idle' | 'waiting' | 'running' | 'done' | 'stopped' | 'failed';

// Rows a step computed, summed over layers, and rows of a dense step.
export interface RowCount {
  computed: number;
  total: number;
}

// What is stored across reloads.
export interface SavedRun {
  cache: string;
  options: ChangedOptions;
  status: RunStatus;
  text: string;
  error: string;
  stats: Stats | null;
  finish_reason: string | null;
  num_tokens: number | null;
  gaps?: string[] | null;
}

export class Run {
  // Not reactive: a long answer holds millions of entries. `num_frames` tells of new ones.
  frames: Frame[] = [];
  row_counts: RowCount[] = []; // of each frame
  num_frames = $state(0);
  status: RunStatus = $state('idle');
  text = $state('');
  error = $state('');
  stats: Stats | null = $state.raw(null);
  finish_reason: string | null = $state(null);
  num_tokens: number | null = $state(null);
  gaps: string[] | null = $state.raw(null); // what fills those of the template
  seconds = $state(0); // since the request, while it is under way
  progress: StepProgress | null = $state.raw(null); // of the step under way, if it is long
  seconds_per_step: number | null = $state(null); // once two steps have come

  private received_text = '';
  private flush_request = 0;

  constructor(
    readonly cache: string,
    readonly options: ChangedOptions,
  ) {}

  get busy() {
    return this.status === 'waiting' || this.status === 'running';
  }

  async Start(messages: Message[], key: string, signal: AbortSignal) {
    this.status = 'waiting';
    const start_ms = performance.now();
    let first_frame_ms = 0;
    const clock = setInterval(() => (this.seconds = (performance.now() - start_ms) / 1000), 500);
    try {
      for await (const chunk of StreamAnswer(messages, this.options, key, signal)) {
        this.status = 'running';
        const choice = chunk.choices[0];
        this.received_text += choice?.delta.content ?? '';
        if (choice?.finish_reason) this.finish_reason = choice.finish_reason;
        if (chunk.dlm?.progress) this.progress = chunk.dlm.progress;
        if (chunk.dlm?.frame) {
          this.progress = null;
          this.frames.push(chunk.dlm.frame);
          this.row_counts.push(CountRows(chunk.dlm.frame));
          if (this.frames.length === 1) first_frame_ms = performance.now();
          else {
            const passed_ms = performance.now() - first_frame_ms;
            this.seconds_per_step = passed_ms / 1000 / (this.frames.length - 1);
          }
        }
        if (chunk.dlm?.stats) this.stats = chunk.dlm.stats;
        if (chunk.dlm?.gaps) this.gaps = chunk.dlm.gaps;
        if (chunk.usage) this.num_tokens = chunk.usage.completion_tokens;
        this.FlushSoon();
      }
      this.status = 'done';
    } catch (error) {
      if (signal.aborted) {
        this.status = 'stopped';
      } else {
        this.status = 'failed';
        this.error = error instanceof Error ? error.message : String(error);
        if (error instanceof ServerError && error.status === 401) throw error;
      }
    } finally {
      clearInterval(clock);
      this.Flush();
    }
  }

  Saved(): SavedRun {
    const { cache, options, status, text, error, stats, finish_reason, num_tokens, gaps } = this;
    return { cache, options, status, text, error, stats, finish_reason, num_tokens, gaps };
  }

  static Restore(saved: SavedRun): Run {
    const run = new Run(saved.cache, saved.options);
    const { text, error, stats, finish_reason, num_tokens, gaps = null } = saved;
    Object.assign(run, { text, error, stats, finish_reason, num_tokens, gaps });
    // The page was closed while the answer was running.
    const is_cut = saved.status === 'waiting' || saved.status === 'running';
    run.status = is_cut ? 'stopped' : saved.status;
    run.received_text = text;
    return run;
  }

  DropFrames() {
    this.frames = [];
    this.row_counts = [];
    this.num_frames = 0;
  }

  // Index of the frame to show at a step: the last one not after it.
  FrameIndex(step: number): number {
    let begin = 0;
    let end = this.frames.length;
    while (begin < end) {
      const middle = (begin + end) >> 1;
      if (this.frames[middle].step <= step) begin = middle + 1;
      else end = middle;
    }
    return Math.max(0, begin - 1);
  }

  // Reads num_frames, so whoever shows it is told of new frames.
  get last_step(): number {
    return this.num_frames > 0 ? this.frames[this.num_frames - 1].step : 0;
  }

  // Small models make hundreds of steps per second; the screen shows at most one per refresh.
  private FlushSoon() {
    this.flush_request ||= requestAnimationFrame(() => this.Flush());
  }

  private Flush() {
    cancelAnimationFrame(this.flush_request);
    this.flush_request = 0;
    this.num_frames = this.frames.length;
    this.text = this.received_text;
  }
}

function CountRows(frame: Frame): RowCount {
  let computed = 0;
  for (const runs of frame.rows) {
    for (let i = 0; i + 1 < runs.length; i += 2) computed += runs[i + 1] - runs[i];
  }
  return { computed, total: frame.rows.length * (frame.prompt_tokens + frame.tokens.length) };
}
