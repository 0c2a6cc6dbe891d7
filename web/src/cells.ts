// What a step made of a position of the answer.

import type { Frame } from './protocol';

export type CellState =
  | 'fresh' // settled by this very step
  | 'settled'
  | 'unused' // behind the answer's end, never computed to the end
  | 'candidate'
  | 'mask'
  | 'later'; // in a block not begun

export function StateOf(frame: Frame, before: Frame | undefined, pos: number): CellState {
  if (frame.settled[pos]) {
    if (before?.settled[pos]) return 'settled';
    return before && IsFilled(frame, pos) ? 'unused' : 'fresh';
  }
  if (frame.tokens[pos] !== null) return 'candidate';
  return pos < frame.block[1] ? 'mask' : 'later';
}

// An answer that has ended is not computed further; the rest of its canvas is filled with end tokens
// at once, which no step chose.
function IsFilled(frame: Frame, pos: number): boolean {
  const end = frame.tokens.indexOf('');
  return end >= 0 && pos > end && frame.tokens[pos] === '' && !frame.settled.includes(0);
}
