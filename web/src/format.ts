// Numbers and sentences as the page shows them.

import type { Run } from './run.svelte';

const kWhole = new Intl.NumberFormat('en-US');

export function Whole(value: number): string {
  return kWhole.format(value);
}

export function Percent(part: number, whole: number): string {
  if (whole === 0) return '-';
  const percent = (100 * part) / whole;
  // 0.0% and 100.0% would look rounded where they are exact.
  return part === 0 || part === whole ? `${percent}%` : `${percent.toFixed(1)}%`;
}

export function Seconds(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

// A rough time left.
export function Duration(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return `${Math.round(seconds / 60)} min`;
}

export function Rate(per_second: number): string {
  if (per_second === 0) return '0';
  return per_second.toFixed(per_second < 1 ? 2 : per_second < 100 ? 1 : 0);
}

export function Bytes(bytes: number): string {
  if (bytes === 0) return '0';
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(0)} kB`;
  if (bytes < 1e9) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${(bytes / 1e9).toFixed(2)} GB`;
}

// The progress of a run. Quick runs need only a word.
export function DescribeProgress(run: Run): string {
  const waited = run.seconds >= 1 ? `, ${Duration(run.seconds)}` : '';
  if (run.status === 'waiting') return `waiting${waited}`;
  if (run.num_frames === 0 && run.progress) {
    const { layer, layers } = run.progress;
    const left = Duration((run.seconds * (layers - layer)) / layer);
    return `first step, layer ${layer} of ${layers}, ${left} left`;
  }
  if (run.num_frames === 0) return `first step${waited}`;
  const pace = run.seconds_per_step;
  if (pace === null || pace < 0.25) return 'answering';
  // One token per step at the least; parallel decoding and an early end take fewer steps.
  const most = Number(run.options.steps ?? run.frames[0].tokens.length);
  const left = Duration((most - run.last_step) * pace);
  return `step ${run.last_step} of at most ${most}, ${Seconds(pace)} per step, at most ${left} left`;
}

// What the heat map shows, in words.
export function DescribeStep(run: Run, frame_index: number): string {
  const rows = run.row_counts[frame_index];
  // The number of steps is known only at the end.
  const place = `step ${run.frames[frame_index].step}` + (run.busy ? '' : ` of ${run.last_step}`);
  if (rows.total === 0) return place;
  const share = Percent(rows.computed, rows.total);
  return `${place}: ${Whole(rows.computed)} of ${Whole(rows.total)} rows recomputed (${share})`;
}
