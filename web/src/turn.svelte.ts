// One question with the answer of one cache, or of two side by side, and the step that is shown.

import type { Run } from './run.svelte';

export class Turn {
  expanded = $state(true); // heat map and scrubber in sight
  playing = $state(false);
  so_far = $state(false); // the heat map sums up all steps until the shown one
  // null: the newest step, also while steps are still coming.
  private chosen_step: number | null = $state(null);
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    readonly id: number,
    readonly question: string,
    readonly runs: Run[],
  ) {}

  get busy() {
    return this.runs.some((run) => run.busy);
  }

  // Meaningful once there are frames.
  get first_step() {
    const started = this.runs.filter((run) => run.num_frames > 0);
    return Math.min(...started.map((run) => run.frames[0].step));
  }

  get last_step() {
    return Math.max(...this.runs.map((run) => run.last_step));
  }

  get num_steps() {
    return this.last_step - this.first_step + 1;
  }

  get has_frames() {
    return this.runs.some((run) => run.num_frames > 0);
  }

  get step() {
    return this.chosen_step ?? this.last_step;
  }

  get at_end() {
    return this.chosen_step === null;
  }

  Seek(step: number) {
    const inside = Math.max(this.first_step, Math.min(step, this.last_step));
    this.chosen_step = inside === this.last_step ? null : inside;
  }

  TogglePlay() {
    if (this.playing) return this.Pause();
    if (this.at_end) this.Seek(this.first_step);
    this.playing = true;
    // About eight seconds for the whole answer, unless that is too slow or too fast to follow.
    const pause_ms = Math.max(33, Math.min(200, 8000 / this.num_steps));
    this.timer = setInterval(() => {
      this.Seek(this.step + 1);
      if (this.at_end) this.Pause();
    }, pause_ms);
  }

  Pause() {
    clearInterval(this.timer);
    this.playing = false;
  }
}
