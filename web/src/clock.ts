// The clock of lbd, which times of lbd refer to. The clock of the browser may differ.

let ahead = 0;

/** The time of lbd's clock in milliseconds, estimated from its responses. */
export const now = () => Date.now() + ahead;

/** Learns that lbd's clock was in a range, at some moment since a time of this clock. */
function was(from: number, to: number, since: number): void {
  if (Number.isNaN(from)) return;
  ahead = Math.min(Math.max(ahead, from - Date.now()), to - since);
}

/** Learns from the Date of a response to a request that was sent at a time of this clock. */
export function learnFromResponse(answer: Response, asked: number): void {
  const date = Date.parse(answer.headers.get("Date") ?? "");
  was(date, date + 1000, asked); // Date has whole seconds
}

/** Learns from a time that lbd sent at some moment since a time of this clock. */
export const learnFromTime = (time: number, since: number) => was(time, time, since);
