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

// What the heat map shows, in words.
export function DescribeStep(run: Run, frame_index: number): string {
  const rows = run.row_counts[frame_index];
  // How many steps there will be is known at the end.
  const place = `step ${run.frames[frame_index].step}` + (run.busy ? '' : ` of ${run.last_step}`);
  if (rows.total === 0) return place;
  const share = Percent(rows.computed, rows.total);
  return `${place}: ${Whole(rows.computed)} of ${Whole(rows.total)} rows recomputed (${share})`;
}
