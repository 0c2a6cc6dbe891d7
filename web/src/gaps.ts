// Texts with gaps: {{mask:8}} stands for eight tokens that the model fills in.

export const kGap = '{{mask:8}}';
const kGaps = /(?:\{\{mask(?::\d+)?\}\})+/; // neighbours are one gap

export interface FilledPiece {
  text: string;
  is_filled: boolean; // by the model
}

export function HasGap(text: string): boolean {
  return kGaps.test(text);
}

// The filled text in pieces. A space before a gap may have become the beginning of what fills it.
export function FilledPieces(template: string, gaps: string[], whole: string): FilledPiece[] {
  let begin = 0;
  return template
    .split(kGaps)
    .flatMap((text, i) => {
      const filled = gaps[i] ?? '';
      const given = whole.startsWith(text + filled, begin) ? text : text.replace(/ $/, '');
      begin += given.length + filled.length;
      const word = filled.trimStart(); // only what can be seen is marked
      return [
        { text: given + filled.slice(0, filled.length - word.length), is_filled: false },
        { text: word, is_filled: true },
      ];
    })
    .filter((piece) => piece.text !== '');
}
