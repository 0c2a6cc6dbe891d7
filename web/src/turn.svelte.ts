// One question with the answer of one cache, or of two side by side, and the step that is shown.

import type { Run } from './run.svelte';

export class Turn {
  expanded = $state(true); // heat map and scrubber in sight
  playing = $state(false);
  is_restored = false; // from before a reload: its steps are gone
  so_far = $state(false); // the heat map sums up all steps until the shown one
  // null: the newest step, also while steps are still coming.
  private chosen_step: number | null = $state(null);
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly id: number,
    readonly question: string,
    readonly template: string, // of the answer; empty: it is free
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
    return this.chosen_step === null ? this.last_step : Math.max(this.chosen_step, this.first_step);
  }

  get at_end() {
    return this.chosen_step === null;
  }

  Seek(step: number) {
    const inside = Math.max(this.first_step, Math.min(step, this.last_step));
    // While steps are still coming, playing continues from the last one shown.
    const is_end = inside === this.last_step && !(this.playing && this.busy);
    this.chosen_step = is_end ? null : inside;
  }

  // Plays from the first step while the answer comes, at a pace that can be followed.
  Watch() {
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) return;
    this.chosen_step = 0;
    this.Play();
  }

  TogglePlay() {
    if (this.playing) return this.Pause();
    if (this.at_end) this.Seek(this.first_step);
    this.Play();
  }

  Pause() {
    clearTimeout(this.timer);
    this.playing = false;
  }

  Skip() {
    this.Pause();
    this.chosen_step = null;
  }

  private Play() {
    this.playing = true;
    // About eight seconds for the whole answer, unless that is too slow or too fast to follow.
    const num_steps = this.has_frames ? this.num_steps : 1;
    const pause_ms = Math.max(33, Math.min(150, 8000 / num_steps));
    this.timer = setTimeout(() => {
      if (this.has_frames) this.Seek(this.step + 1);
      else if (!this.busy) this.chosen_step = null;
      if (this.at_end) this.Pause();
      else this.Play();
    }, pause_ms);
  }
}
