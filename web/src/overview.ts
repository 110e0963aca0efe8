// All clusters, of which there may be ten thousand: what changes is worked on, and no more.

import type { ClusterSummary } from "./model.ts";
import { Pace } from "./rates.ts";

/** A circuit breaker: of the leaves of an AGGREGATE the fullest, which "of" names. */
export interface Breaker {
  in_flight: number;
  max_requests: number;
  open: boolean;
  of?: string;
}

const filled = (b: Breaker | null) => (b && b.max_requests > 0 ? b.in_flight / b.max_requests : b?.open ? 1 : 0);

function breakerOf(c: ClusterSummary): Breaker | null {
  let out: Breaker | null = c.counts?.breaker ?? c.circuit_breaker ?? null;
  for (const l of c.counts?.leaves ?? []) {
    const b = { ...l.breaker, of: l.name };
    if (!out || (b.open && !out.open) || (b.open === out.open && filled(b) > filled(out))) out = b;
  }
  return out;
}

export interface Row {
  name: string;
  c: ClusterSummary;
  /** Picks per second, and the part of them that is dropped. */
  picks: number;
  dropped: number;
  breaker: Breaker | null;
  /** How full the circuit breaker is, 0 to 1. */
  fill: number;
  /** When its endpoints were updated, in milliseconds. */
  updated: number;
  pace: Pace | null;
}

export interface Sorting {
  by: string;
  down: boolean;
}

export interface Filter {
  label: string;
  takes: (r: Row) => boolean;
}

export const filters: Record<string, Filter> = {
  all: { label: "all", takes: () => true },
  failing: { label: "failing", takes: (r) => r.c.state === "TRANSIENT_FAILURE" },
  waiting: { label: "not READY yet", takes: (r) => r.c.state === "CONNECTING" || r.c.state === "IDLE" },
  failedOver: { label: "failed over", takes: (r) => r.c.priority_in_use > 0 },
  dropping: { label: "dropping", takes: (r) => r.dropped > 0 },
  full: { label: "breaker full", takes: (r) => r.breaker?.open === true },
  stale: { label: "stale", takes: (r) => r.c.stale },
};

const severity: Record<string, number> = { TRANSIENT_FAILURE: 0, CONNECTING: 1, IDLE: 2, READY: 3 };
const sources = ["push", "file", "ads", "cache", "dns"];

/** What is sorted by; smaller comes first. Names settle what is equal. */
const keys: Record<string, (r: Row) => number> = {
  state: (r) => severity[r.c.state] ?? 4,
  priority: (r) => r.c.priority_in_use,
  ready: (r) => (r.c.endpoints.total ? r.c.endpoints.ready / r.c.endpoints.total : -1),
  picks: (r) => r.picks,
  drops: (r) => r.dropped,
  breaker: (r) => r.fill,
  source: (r) => sources.indexOf(r.c.source),
  age: (r) => -r.updated,
};

export class Overview {
  private rows = new Map<string, Row>();
  /** Those that were picked from lately: the others' rates are zero and stay so. */
  private active = new Set<Row>();
  private byName: Row[] = [];
  private members = false; // others than in byName
  private stream = 0;
  /** What was there before it was all forgotten: rates go on, for counts are cumulative. */
  private kept = new Map<string, Row>();

  get size(): number {
    return this.rows.size;
  }

  /** Whether rates would change without a message. */
  get busy(): boolean {
    return this.active.size > 0;
  }

  /** What is taken from now on is told by another stream: nothing is known of the time in between. */
  opened(): void {
    this.stream++;
  }

  /** Forgets all; what comes next is everything. */
  clear(): void {
    this.kept = this.rows;
    this.rows = new Map();
    this.active.clear();
    this.members = true;
  }

  take(changed: ClusterSummary[], removed: string[] = []): void {
    for (const c of changed) {
      let row = this.rows.get(c.name);
      if (!row) {
        const { picks, dropped, breaker, pace } = this.kept.get(c.name) ?? { picks: 0, dropped: 0, breaker: null, pace: null };
        row = { name: c.name, c, picks, dropped, breaker, fill: 0, updated: 0, pace };
        this.rows.set(c.name, row);
        if (picks > 0) this.active.add(row);
        this.members = true;
      }
      row.c = c;
      row.updated = c.updated_at ? Date.parse(c.updated_at) : 0;
      if (c.counts || c.circuit_breaker) row.breaker = breakerOf(c);
      row.fill = filled(row.breaker);
      if (c.counts) {
        row.pace ??= new Pace();
        row.pace.add(c.counts, this.stream);
        this.active.add(row);
      }
    }
    for (const name of removed) {
      const row = this.rows.get(name);
      if (!row) continue;
      this.rows.delete(name);
      this.active.delete(row);
      this.members = true;
    }
    this.kept.clear();
  }

  /** Brings the rates up to a time. */
  tick(now: number): void {
    for (const row of this.active) {
      const pace = row.pace!.at(now);
      row.picks = pace.picks;
      row.dropped = pace.dropped;
      if (pace.picks === 0) this.active.delete(row);
    }
  }

  /** How many each filter takes, and the rates of all. */
  sums(): { counts: Record<string, number>; picks: number; dropped: number } {
    const counts: Record<string, number> = {};
    const each = Object.entries(filters);
    for (const [id] of each) counts[id] = 0;
    for (const row of this.rows.values()) for (const [id, f] of each) if (f.takes(row)) counts[id]!++;
    let picks = 0;
    let lost = 0;
    for (const row of this.active) {
      picks += row.picks;
      lost += row.picks * row.dropped;
    }
    return { counts, picks, dropped: picks > 0 ? lost / picks : 0 };
  }

  /** The rows whose names have every word of a search, and which a filter takes. */
  shown(search: string, filter: string, sorting: Sorting): Row[] {
    if (this.members) {
      this.byName = [...this.rows.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
      this.members = false;
    }
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const takes = (filters[filter] ?? filters.all!).takes;
    const out = this.byName.filter((r) => takes(r) && words.every((w) => r.name.toLowerCase().includes(w)));
    const key = keys[sorting.by];
    if (!key) return sorting.down ? out.reverse() : out;
    const sign = sorting.down ? -1 : 1;
    return out.sort((a, b) => (key(a) - key(b)) * sign); // stable: names settle what is equal
  }
}
