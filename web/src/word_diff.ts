// Which words of two answers differ, by their longest common subsequence.

export interface Piece {
  text: string;
  differs: boolean;
}

// Above this product of lengths the table would be slow; the answers are then shown unmarked.
const kMaxTableEntries = 4e6;

export function DiffWords(left: string, right: string): [Piece[], Piece[]] {
  const a = left.split(/(\s+)/);
  const b = right.split(/(\s+)/);
  if (a.length * b.length > kMaxTableEntries) return [Unmarked(left), Unmarked(right)];

  // common[i * width + j]: length of the common subsequence of a[i..] and b[j..].
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; --i) {
    for (let j = b.length - 1; j >= 0; --j) {
      common[i * width + j] =
        a[i] === b[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }

  const marked: [Piece[], Piece[]] = [[], []];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      marked[0].push({ text: a[i++], differs: false });
      marked[1].push({ text: b[j++], differs: false });
    } else if (
      j === b.length ||
      (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])
    ) {
      marked[0].push(Different(a[i++]));
    } else {
      marked[1].push(Different(b[j++]));
    }
  }
  return marked;
}

// Blanks are not worth a mark.
function Different(text: string): Piece {
  return { text, differs: text.trim() !== '' };
}

function Unmarked(text: string): Piece[] {
  return [{ text, differs: false }];
}
