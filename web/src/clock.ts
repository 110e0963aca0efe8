// lbd's clock. What lbd tells has times by it, which the clock here may be far from.

let ahead = 0;

/** The time by lbd's clock in milliseconds, as well as its answers tell. */
export const now = () => Date.now() + ahead;

/** lbd's clock was between two times at some moment since a time of the clock here. */
function was(from: number, to: number, since: number): void {
  if (Number.isNaN(from)) return;
  ahead = Math.min(Math.max(ahead, from - Date.now()), to - since);
}

/** Learns from an answer to what was asked at a time of the clock here. */
export function heard(answer: Response, asked: number): void {
  const date = Date.parse(answer.headers.get("Date") ?? "");
  was(date, date + 1000, asked); // it is cut to whole seconds
}

/** Learns from a time that lbd wrote at some moment since a time of the clock here. */
export const told = (time: number, since: number) => was(time, time, since);
