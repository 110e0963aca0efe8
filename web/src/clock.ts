// lbd's clock. What lbd tells has times by it, which the clock here may be far from.

let ahead = 0;

/** The time by lbd's clock in milliseconds, as well as its answers tell. */
export const now = () => Date.now() + ahead;

/** Learns from an answer to what was asked at a time of the clock here. */
export function heard(answer: Response, asked: number): void {
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (Number.isNaN(date)) return;
  // It was written between asking and now, and is cut to whole seconds.
  ahead = Math.min(Math.max(ahead, date - Date.now()), date + 1000 - asked);
}

/** Asks, for a page that has nothing but a stream, whose Date is not to be seen. */
export async function ask(): Promise<void> {
  const asked = Date.now();
  heard(await fetch("livez", { method: "HEAD", cache: "no-store" }), asked);
}
