// The state of an answer position after a step.

import type { Frame } from './protocol';

export type CellState =
  | 'given' // by the template
  | 'fresh' // settled by this very step
  | 'settled'
  | 'unused' // behind the answer's end, never computed to the end
  | 'candidate'
  | 'mask'
  | 'later'; // in a block not begun

export function StateOf(frame: Frame, before: Frame | undefined, pos: number): CellState {
  if (frame.given?.[pos]) return 'given';
  if (frame.settled[pos]) {
    if (before?.settled[pos]) return 'settled';
    return before && IsFilled(frame, before, pos) ? 'unused' : 'fresh';
  }
  if (frame.tokens[pos] !== null) return 'candidate';
  return pos < frame.block[1] ? 'mask' : 'later';
}

// An answer that has ended is not computed further; the rest of its canvas is filled with end tokens
// at once, which no step chose. Only a lone one may be the step's own.
function IsFilled(frame: Frame, before: Frame, pos: number): boolean {
  const end = frame.tokens.indexOf('');
  if (end < 0 || pos <= end || frame.tokens[pos] !== '' || frame.settled.includes(0)) return false;
  const [begin, block_end] = frame.block;
  const num_new = before.settled.slice(begin, block_end).filter((settled) => !settled).length;
  return !(pos >= begin && pos < block_end && num_new === 1);
}
