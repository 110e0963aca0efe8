// Rates from counters. lbd counts since its start and sends counters once a second, if one has
// changed.

import { localityName } from "./format.ts";
import type { ClusterCounts, ClusterHistory, Locality } from "./model.ts";

/** Counts by result, drop category and locality. */
export interface Counted {
  picks: Record<string, number>;
  /** Those of an AGGREGATE are under "leaf: category". */
  drops: Record<string, number>;
  localities: Record<string, number>;
}

/** Counts in the span that ends at t, in milliseconds, and gauges at t. */
export interface Sample extends Counted {
  t: number;
  /** Zero where counting begins: earlier counts are unknown. */
  span: number;
  /** By leaf; "" is the cluster itself. */
  breakers: Record<string, { inFlight: number; maxRequests: number }>;
  /** The priority in use; -1 for none, undefined if unknown. */
  priority?: number;
}

/** Rates per second over a span of milliseconds. */
export interface Rates extends Counted {
  span: number;
}

/** The minimum length of a span, in milliseconds: the first two messages may arrive together. */
const least = 400;

/** A span without messages is longer than this, in milliseconds. */
const tick = 1600;

const kinds = ["picks", "drops", "localities"] as const;
const nothing = (): Counted => ({ picks: {}, drops: {}, localities: {} });

export const localityKey = (priority: number, l: Locality) => `${priority} ${localityName(l)}`;

/** The name of a drop category, with its leaf if there is one. */
export const dropKey = (leaf: string, category: string) => (leaf ? `${leaf}: ${category}` : category);

/** The growth of a counter. A counter that shrinks was reset to zero. */
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

const dropsOf = (c: ClusterCounts): Record<string, number> =>
  c.leaves ? Object.fromEntries(c.leaves.flatMap((l) => Object.entries(l.drops).map(([category, n]) => [dropKey(l.name, category), n]))) : c.drops;

function breakersOf(c: ClusterCounts): Sample["breakers"] {
  const all = c.breaker ? [{ name: "", breaker: c.breaker }] : (c.leaves ?? []);
  return Object.fromEntries(all.map((l) => [l.name, { inFlight: l.breaker.in_flight, maxRequests: l.breaker.max_requests }]));
}

/** The history of lbd, as samples. */
function samplesOf(h: ClusterHistory): Sample[] {
  const span = h.step === "1s" ? 1000 : 10_000;
  return h.segments.flatMap((s) =>
    s.priority.map((priority, i): Sample => {
      const at = (of: Record<string, number[]>) => Object.fromEntries(Object.entries(of).map(([k, list]) => [k, list[i] ?? 0]));
      return {
        t: Date.parse(s.start) + i * span, span, priority, picks: at(s.picks), localities: {},
        drops: Object.fromEntries(s.drops.map((d) => [dropKey(d.leaf ?? "", d.category), d.dropped[i] ?? 0])),
        breakers: Object.fromEntries(s.breakers.map((b) => [b.leaf ?? "", { inFlight: b.in_flight[i] ?? 0, maxRequests: b.max_requests[i] ?? 0 }])),
      };
    }),
  );
}

/** The maximum overlap of two spans, in milliseconds, that count as different times. */
const overlap = 1000;

/** History has the recent counts of a cluster. */
export class History {
  samples: Sample[] = [];
  private last?: ClusterCounts;
  /** The begin of counting without a gap. */
  private begun = 0;
  /** No counts are received since the last sample. */
  private away = false;
  private readonly keep: number;

  /** @param keep the maximum age of a sample, in milliseconds */
  constructor(keep: number) {
    this.keep = keep;
  }

  /** When the first sample begins. */
  get since(): number {
    const first = this.samples[0];
    return first ? first.t - first.span : 0;
  }

  /** No counts are received from a time on, until add is called. */
  lost(at: number): void {
    const last = this.samples.at(-1);
    if (last && !this.away && at - last.t > tick) this.push({ ...last, ...nothing(), t: at, span: at - last.t });
    this.away = true;
  }

  /** Fills gaps with the history of lbd. Times that lbd does not know stay gaps. */
  fill(h: ClusterHistory): void {
    const known = this.samples.filter((s) => s.span > 0);
    let i = 0;
    const fresh = samplesOf(h).filter((s) => {
      const shared = Math.min(overlap, s.span / 2);
      while (i < known.length && known[i]!.t < s.t - s.span + shared) i++;
      const next = known[i];
      // The stream sends later counts.
      return next ? s.t <= next.t - next.span + shared : s.t <= (this.samples.at(-1)?.t ?? Infinity);
    });
    if (fresh.length > 0) this.samples = [...this.samples, ...fresh].sort((a, b) => a.t - b.t || a.span - b.span);
  }

  /** @param priority the priority in use */
  add(c: ClusterCounts, priority?: number): void {
    const before = this.last;
    const t = Date.parse(c.time);
    const past = before ? Date.parse(before.time) : 0;
    const away = this.away;
    this.away = false;
    if (before && t - past < least) return; // the next message includes these counts
    this.last = c;
    const breakers = breakersOf(c);
    const latest = this.samples.at(-1)?.t ?? 0;
    if (!before || (away && t - past > tick) || t <= latest) {
      // The time of these counts within the gap is unknown.
      this.begun = Math.max(t, latest + 2);
      this.push({ ...nothing(), t: this.begun, span: 0, breakers, priority });
      return;
    }
    let span = t - latest;
    if (span > tick) {
      // Without messages nothing was counted: the growth belongs to the last second.
      this.push({ ...nothing(), t: t - 1000, span: span - 1000, breakers: breakersOf(before), priority: this.samples.at(-1)?.priority });
      span = 1000;
    }
    this.push({
      t, span, breakers, priority,
      picks: growths(before.picks, c.picks),
      drops: growths(dropsOf(before), dropsOf(c)),
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
   * The rates of the last milliseconds before a time, or of the known part; null if it is
   * unknown.
   */
  over(ms: number, until: number): Rates | null {
    const last = this.samples.at(-1);
    if (!last || (last.span === 0 && (this.away || until - last.t <= tick))) return null;
    // Counts since the last sample are not received yet.
    if (this.away || until - last.t <= tick) until = last.t;
    const from = Math.max(until - ms, this.begun);
    const sums = nothing();
    const seconds = Math.max(until - from, 1) / 1000;
    for (const s of this.samples) {
      if (s.t <= from || s.span === 0) continue;
      const part = Math.min(1, (s.t - from) / s.span) / seconds;
      for (const kind of kinds) {
        for (const [k, v] of Object.entries(s[kind])) sums[kind][k] = (sums[kind][k] ?? 0) + v * part;
      }
    }
    return { ...sums, span: until - from };
  }

  /**
   * Columns for a chart: times in seconds, and a line per key. Without messages values are
   * zero; unknown values are null.
   */
  columns(keys: string[], of: (s: Sample, key: string) => number | null, until: number): { x: number[]; lines: (number | null)[][] } {
    const x: number[] = [];
    const lines = keys.map(() => [] as (number | null)[]);
    const put = (t: number, value: (key: string) => number | null) => {
      x.push(t / 1000);
      keys.forEach((k, i) => lines[i]!.push(value(k)));
    };
    let before: Sample | undefined;
    for (const s of this.samples) {
      const away = before ? s.t - s.span - before.t : 0;
      if (before && away > tick) put(before.t + 1, () => null);
      if (s.span === 0 && before && away <= tick) continue; // it continues the history of lbd
      if (s.span > tick) put(Math.max(s.t - s.span, before?.t ?? 0) + 1, (k) => of(s, k));
      put(s.t, (k) => of(s, k));
      before = s;
    }
    if (before && !this.away && until - before.t > tick) {
      const still: Sample = { ...before, ...nothing(), span: 1000 };
      put(before.t + 1000, (k) => of(still, k));
      put(until, (k) => of(still, k));
    }
    return { x, lines };
  }
}

/** The rate per second of a key in a sample; null if unknown. */
export const perSecond = (s: Sample, kind: keyof Counted, key: string) => (s.span === 0 ? null : ((s[kind][key] ?? 0) * 1000) / s.span);

/** Sum of a record's values. */
export const total = (r: Record<string, number>) => Object.values(r).reduce((a, b) => a + b, 0);

/** Picks per second, in total and by result. */
export interface PaceNow {
  picks: number;
  results: Record<string, number>;
}

/** Pace is the rate of a cluster's picks by result, for a list of thousands. */
export class Pace {
  private readonly window = 5000;
  private counted: { t: number; sum: number; picks: Record<string, number> }[] = [];
  private stream = 0;

  /** @param stream the number of the stream; counts between two streams are spread evenly */
  add(c: ClusterCounts, stream: number): void {
    const t = Date.parse(c.time);
    const sum = total(c.picks);
    const last = this.counted.at(-1);
    if (last && sum < last.sum) this.counted = [];
    else if (last && t - last.t > tick && stream === this.stream) this.counted.push({ ...last, t: t - 1000 });
    this.stream = stream;
    this.counted.push({ t, sum, picks: c.picks });
    while (this.counted.length > 2 && this.counted[1]!.t < t - this.window) this.counted.shift();
  }

  /** The rates of the last seconds before a time. */
  at(now: number): PaceNow {
    const [first, second] = this.counted;
    const last = this.counted.at(-1);
    if (!first || !second || !last || now - last.t > this.window) return { picks: 0, results: {} };
    // The window begins between the first two.
    const from = Math.max(first.t, now - this.window);
    const part = Math.min(1, (from - first.t) / (second.t - first.t));
    const seconds = Math.max(now - from, 1000) / 1000;
    const since = (end: number, a: number, b: number) => (end - (a + part * (b - a))) / seconds;
    const results: Record<string, number> = {};
    for (const [k, n] of Object.entries(last.picks)) {
      const r = since(n, first.picks[k] ?? 0, second.picks[k] ?? 0);
      if (r > 0) results[k] = r;
    }
    return { picks: since(last.sum, first.sum, second.sum), results };
  }
}
