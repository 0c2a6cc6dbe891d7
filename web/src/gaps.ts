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

// The template with what fills its gaps.
export function FillTemplate(template: string, gaps: string[]): FilledPiece[] {
  return template
    .split(kGaps)
    .flatMap((text, i) => [
      { text, is_filled: false },
      { text: gaps[i] ?? '', is_filled: true },
    ])
    .filter((piece) => piece.text !== '');
}
