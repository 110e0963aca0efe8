// Rates from counters. lbd counts from its start on and tells once a second, and
// only when a count has changed.

import { localityName } from "./format.ts";
import type { ClusterCounts, Locality } from "./model.ts";

/** What was counted in the span that ends at t. Both are in milliseconds. */
export interface Sample {
  t: number;
  span: number;
  picks: Record<string, number>;
  drops: Record<string, number>;
  localities: Record<string, number>;
  inFlight: number;
  maxRequests: number;
}

/** A span is at least so long, in milliseconds: the first two messages may come at once. */
const least = 400;

/** A span in which nothing is told is longer than this, in milliseconds. */
const tick = 1600;

export const localityKey = (priority: number, l: Locality) => `${priority} ${localityName(l)}`;

/** The growth of a counter; one that shrank began anew at zero. */
export function growth(before: number, now: number): number {
  return now < before ? now : now - before;
}

function growths(before: Record<string, number>, now: Record<string, number>): Record<string, number> {
  const grown: Record<string, number> = {};
  for (const [k, v] of Object.entries(now)) grown[k] = growth(before[k] ?? 0, v);
  return grown;
}

const localityPicks = (c: ClusterCounts): Record<string, number> =>
  Object.fromEntries((c.localities ?? []).map((l) => [localityKey(l.priority, l.locality), l.picks]));

/** History is what one cluster counted lately. */
export class History {
  samples: Sample[] = [];
  private last?: ClusterCounts;
  private readonly keep: number;

  /** @param keep how long a sample is kept, in milliseconds */
  constructor(keep: number) {
    this.keep = keep;
  }

  /** When the first sample begins. */
  get since(): number {
    const first = this.samples[0];
    return first ? first.t - first.span : 0;
  }

  add(c: ClusterCounts): void {
    const before = this.last;
    const t = Date.parse(c.time);
    const past = before ? Date.parse(before.time) : 0;
    if (before && t - past < least) return; // the next one has it all
    this.last = c;
    if (!before) return;
    const inFlight = c.breaker?.in_flight ?? c.leases;
    const maxRequests = c.breaker?.max_requests ?? 0;
    let span = t - past;
    if (span > tick) {
      // Silence: all of the growth is of the last second.
      this.push({
        t: t - 1000, span: span - 1000, picks: {}, drops: {}, localities: {},
        inFlight: before.breaker?.in_flight ?? before.leases, maxRequests: before.breaker?.max_requests ?? 0,
      });
      span = 1000;
    }
    this.push({
      t, span, inFlight, maxRequests,
      picks: growths(before.picks, c.picks),
      drops: growths(before.drops, c.drops),
      localities: growths(localityPicks(before), localityPicks(c)),
    });
  }

  private push(s: Sample): void {
    this.samples.push(s);
    const old = s.t - this.keep;
    const first = this.samples.findIndex((each) => each.t > old);
    if (first > 0) this.samples.splice(0, first);
  }

  /**
   * The rates per second of the last milliseconds before now; empty until something was
   * counted twice.
   */
  over(ms: number, now: number): { picks: Record<string, number>; drops: Record<string, number>; localities: Record<string, number> } {
    const from = Math.max(now - ms, this.since);
    const sums = { picks: {}, drops: {}, localities: {} } as Pick<Sample, "picks" | "drops" | "localities">;
    const seconds = Math.max(now - from, 1) / 1000;
    for (const s of this.samples) {
      if (s.t <= from) continue;
      const part = Math.min(1, (s.t - from) / s.span) / seconds;
      for (const kind of ["picks", "drops", "localities"] as const) {
        for (const [k, v] of Object.entries(s[kind])) sums[kind][k] = (sums[kind][k] ?? 0) + v * part;
      }
    }
    return sums;
  }

  /**
   * Columns for a chart: times in seconds, and a line per key. Where nothing was
   * told there was nothing to count.
   */
  columns(keys: string[], of: (s: Sample, key: string) => number, now: number): { x: number[]; lines: number[][] } {
    const x: number[] = [];
    const lines = keys.map(() => [] as number[]);
    const put = (t: number, value: (key: string) => number) => {
      x.push(t / 1000);
      keys.forEach((k, i) => lines[i]!.push(value(k)));
    };
    for (const s of this.samples) {
      if (s.span > tick) put(s.t - s.span + 1, (k) => of(s, k));
      put(s.t, (k) => of(s, k));
    }
    const last = this.samples.at(-1);
    if (last && now - last.t > tick) {
      const still: Sample = { ...last, picks: {}, drops: {}, localities: {} };
      put(last.t + 1000, (k) => of(still, k));
      put(now, (k) => of(still, k));
    }
    return { x, lines };
  }
}

/** The rate per second of one key in a sample. */
export const perSecond = (s: Sample, kind: "picks" | "drops" | "localities", key: string) => ((s[kind][key] ?? 0) * 1000) / s.span;

/** Sum of a record's values. */
export const total = (r: Record<string, number>) => Object.values(r).reduce((a, b) => a + b, 0);

/** Pace is the rate of a cluster's picks, and what is dropped of them, for a list of thousands. */
export class Pace {
  private readonly window = 5000;
  private ts: number[] = [];
  private totals: number[] = [];
  private dropped: number[] = [];

  add(c: ClusterCounts): void {
    const t = Date.parse(c.time);
    const sum = total(c.picks);
    if (sum < (this.totals.at(-1) ?? 0)) this.ts.length = this.totals.length = this.dropped.length = 0;
    const last = this.ts.at(-1);
    if (last !== undefined && t - last > tick) {
      this.ts.push(t - 1000);
      this.totals.push(this.totals.at(-1)!);
      this.dropped.push(this.dropped.at(-1)!);
    }
    this.ts.push(t);
    this.totals.push(sum);
    this.dropped.push(c.picks.dropped ?? 0);
    while (this.ts.length > 2 && this.ts[1]! < t - this.window) {
      this.ts.shift();
      this.totals.shift();
      this.dropped.shift();
    }
  }

  /** Picks per second, and the part of them that drop categories took. */
  at(now: number): { picks: number; dropped: number } {
    const first = this.ts[0];
    if (first === undefined || this.ts.length < 2 || now - this.ts.at(-1)! > this.window) return { picks: 0, dropped: 0 };
    // The window begins between the first two.
    const from = Math.max(first, now - this.window);
    const part = Math.min(1, (from - first) / (this.ts[1]! - first));
    const since = (of: number[]) => of.at(-1)! - (of[0]! + part * (of[1]! - of[0]!));
    const grown = since(this.totals);
    return {
      picks: (grown * 1000) / Math.max(now - from, 1000),
      dropped: grown > 0 ? since(this.dropped) / grown : 0,
    };
  }
}
