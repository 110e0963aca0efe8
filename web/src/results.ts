// How picks end, in words and colors.

import type { Line } from "./parts/chart.tsx";

const lines: Record<string, Line> = {
  ok: { label: "ok", color: "good" },
  dropped: { label: "dropped", color: "unwell", dash: [6, 3] },
  circuit_broken: { label: "circuit broken", color: "busy", dash: [2, 3] },
  no_ready_endpoint: { label: "no ready endpoint", color: "bad", dash: [8, 3, 2, 3] },
  pick_timeout: { label: "pick timeout", color: "bad", dash: [2, 2] },
  all_excluded: { label: "all excluded", color: "accent", dash: [4, 4] },
  cancelled: { label: "cancelled", color: "muted", dash: [1, 3] },
  shutting_down: { label: "shutting down", color: "muted", dash: [4, 2] },
};

/** The line of a result in charts; results that are not known here have one, too. */
export const resultLine = (result: string): Line => lines[result] ?? { label: result.replaceAll("_", " "), color: "bad", dash: [3, 6] };

/** A result in words. */
export const resultWords = (result: string) => resultLine(result).label;

/** Results in the order of the charts: those that are known here first. */
export function inOrder(results: Iterable<string>): string[] {
  const known = Object.keys(lines);
  const rank = (r: string) => (known.includes(r) ? known.indexOf(r) : known.length);
  return [...results].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}
