// What a comparison of two caches showed, in words.

import type { Run } from './run.svelte';

export interface Verdict {
  agree: boolean | null; // null as long as one of the answers is missing
  sentences: string[];
}

export function Verdict(runs: Run[]): Verdict {
  const [left, right] = runs;
  if (!left.stats || !right.stats || left.status !== 'done' || right.status !== 'done') {
    const is_broken = runs.some((run) => run.status === 'failed' || run.status === 'stopped');
    return {
      agree: null,
      sentences: is_broken
        ? ['No comparison: an answer is missing']
        : [`${left.cache}, then ${right.cache}`, 'one after the other, so that speeds compare'],
    };
  }
  const agree = left.text === right.text;
  return {
    agree,
    sentences: [
      CompareSpeed(left, right),
      agree ? 'The answers agree, word for word' : 'The answers differ where underlined',
    ],
  };
}

function CompareSpeed(left: Run, right: Run): string {
  // Time and not tokens per second: a cache that answers with more words is not faster for it.
  const ratio = left.stats!.seconds / right.stats!.seconds;
  const [fast, slow, factor] =
    ratio >= 1 ? [right, left, ratio] : [left, right, 1 / ratio];
  if (!Number.isFinite(factor)) return 'Too quick to compare';
  if (factor < 1.02) return `${left.cache} and ${right.cache} are equally fast`;
  return `${fast.cache} is ${factor.toFixed(factor < 10 ? 2 : 1)}\u00d7 as fast as ${slow.cache}`;
}
