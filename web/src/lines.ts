// The differences of two texts, by line.

export interface Line {
  change: "same" | "added" | "removed" | "gap";
  /** The line; of a gap, the number of lines that are left out. */
  text: string;
}

/** The number of pairs of lines up to which changed parts are compared. */
const mostPairs = 4_000_000;

/** Compares two texts. Unchanged lines that are not within a few lines of a change are left out. */
export function compareLines(before: string, after: string, near = 3): Line[] {
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (lines: string[]): Line[] => lines.map((text) => ({ change: "same", text }));
  const all = [
    ...same(a.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...same(a.slice(a.length - end)),
  ];
  return folded(all, near);
}

/** Compares by the longest common subsequence; very long parts are replaced as a whole. */
function middle(a: string[], b: string[]): Line[] {
  const out: Line[] = [];
  const width = b.length + 1;
  let i = 0;
  let j = 0;
  if (a.length * b.length <= mostPairs) {
    const common = new Uint32Array((a.length + 1) * width);
    const at = (x: number, y: number) => common[x * width + y] ?? 0;
    for (let x = a.length - 1; x >= 0; x--) {
      for (let y = b.length - 1; y >= 0; y--) {
        common[x * width + y] = a[x] === b[y] ? at(x + 1, y + 1) + 1 : Math.max(at(x + 1, y), at(x, y + 1));
      }
    }
    while (i < a.length && j < b.length) {
      if (a[i] === b[j]) {
        out.push({ change: "same", text: a[i++]! });
        j++;
      } else if (at(i + 1, j) >= at(i, j + 1)) out.push({ change: "removed", text: a[i++]! });
      else out.push({ change: "added", text: b[j++]! });
    }
  }
  while (i < a.length) out.push({ change: "removed", text: a[i++]! });
  while (j < b.length) out.push({ change: "added", text: b[j++]! });
  return out;
}

function folded(all: Line[], near: number): Line[] {
  const shown = new Uint8Array(all.length);
  all.forEach((line, i) => {
    if (line.change !== "same") shown.fill(1, Math.max(0, i - near), i + near + 1);
  });
  const out: Line[] = [];
  for (let i = 0; i < all.length; ) {
    if (shown[i]) {
      out.push(all[i++]!);
      continue;
    }
    const first = i;
    while (i < all.length && !shown[i]) i++;
    out.push({ change: "gap", text: String(i - first) });
  }
  return out;
}
