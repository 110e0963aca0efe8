// The list of all clusters. An update handles only the clusters that changed, of up to 10,000.

import { limitOf } from "./breaker.ts";
import type { ClusterSummary } from "./model.ts";
import { Pace, type PaceNow, total } from "./rates.ts";

/** A circuit breaker; for an AGGREGATE that of the fullest leaf, which is in "of". */
export interface Breaker {
  in_flight: number;
  max_requests: number;
  share?: number;
  fleet?: { share: number };
  open: boolean;
  of?: string;
}

const filled = (b: Breaker | null) => (b && limitOf(b) > 0 ? b.in_flight / limitOf(b) : b?.open ? 1 : 0);

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
  /** Picks per second, and by result. */
  picks: number;
  results: Record<string, number>;
  /** The severity of problems, by which the list is sorted first. */
  trouble: number;
  breaker: Breaker | null;
  /** How full the circuit breaker is, 0 to 1. */
  fill: number;
  /** When its endpoints were updated, in milliseconds. */
  updated: number;
  pace: Pace | null;
}

/** The part of picks that succeed, 0 to 1; null without picks. */
export const success = (r: PaceNow): number | null => (r.picks > 0 ? Math.min(1, (r.results.ok ?? 0) / r.picks) : null);

/** Results that are not failures: configured drops, and callers that disconnected. */
const harmless = new Set(["ok", "dropped", "cancelled"]);

/** Rejected picks per second, without configured drops. */
export function refused(r: PaceNow): number {
  let sum = 0;
  for (const [k, n] of Object.entries(r.results)) if (!harmless.has(k)) sum += n;
  return sum;
}

/** What is refused or dropped, by reason, most frequent first. */
export const losses = (results: Record<string, number>): [string, number][] =>
  Object.entries(results).filter(([k, n]) => k !== "ok" && n >= 0.05).sort((a, b) => b[1] - a[1]);

/** Endpoints of the priority in use. */
export const serving = (c: ClusterSummary) => c.endpoints_in_use ?? c.endpoints;

/** Failing or failed endpoints of the priority in use. */
const unwell = (c: ClusterSummary) => serving(c).transient_failure + serving(c).ejected;

/**
 * The severity of a cluster's problems: a class, then the power of ten of lost picks, so that
 * the order is stable.
 */
function troubleOf(r: Row): number {
  const lost = refused(r);
  const size = Math.min(9, 1 + Math.floor(Math.log10(1 + lost)));
  switch (true) {
    case r.c.state === "TRANSIENT_FAILURE" || (r.c.trouble !== undefined && r.breaker?.open !== true):
      return 90 + (lost > 0 ? size : 0);
    case lost >= 0.05:
      return 80 + size;
    case r.breaker?.open === true:
      return 70;
    case r.c.priority_in_use > 0:
      return 60;
    case r.c.state === "CONNECTING":
      return 50;
    case unwell(r.c) > 0:
      return 40;
    case r.c.stale:
      return 30;
    case (r.results.dropped ?? 0) >= 0.05:
      return 20;
    case r.c.state === "IDLE":
      return 10;
    default: // also WARMING: a pick builds the tree
      return 0;
  }
}

export interface Sorting {
  by: string;
  down: boolean;
}

export interface Filter {
  label: string;
  /** The color if clusters match. */
  tone?: string;
  takes: (r: Row) => boolean;
}

export const filters: Record<string, Filter> = {
  all: { label: "all", takes: () => true },
  failing: { label: "failing", tone: "bad", takes: (r) => r.c.state === "TRANSIENT_FAILURE" || r.c.trouble !== undefined },
  refusing: { label: "refusing picks", tone: "bad", takes: (r) => refused(r) >= 0.05 },
  waiting: { label: "not READY yet", tone: "busy", takes: (r) => ["CONNECTING", "IDLE", "WARMING"].includes(r.c.state) },
  failedOver: { label: "failed over", tone: "busy", takes: (r) => r.c.priority_in_use > 0 },
  dropping: { label: "dropping", tone: "unwell", takes: (r) => (r.results.dropped ?? 0) > 0 },
  full: { label: "breaker full", tone: "bad", takes: (r) => r.breaker?.open === true },
  stale: { label: "stale", tone: "busy", takes: (r) => r.c.stale },
};

/** The first screen begins with what is worst. */
export const firstSorting: Sorting = { by: "state", down: false };

const sources = ["push", "file", "ads", "cache", "dns"];

/** What is sorted by; smaller comes first. Names settle what is equal. */
const keys: Record<string, (r: Row) => number> = {
  state: (r) => -r.trouble,
  priority: (r) => r.c.priority_in_use,
  ready: (r) => (serving(r.c).total ? serving(r.c).ready / serving(r.c).total : -1),
  picks: (r) => r.picks,
  success: (r) => success(r) ?? 2,
  losses: (r) => total(r.results) - (r.results.ok ?? 0),
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
  /** Rows from before the last reset. Counts are cumulative, so rates continue. */
  private kept = new Map<string, Row>();

  get size(): number {
    return this.rows.size;
  }

  /** Whether rates would change without a message. */
  get busy(): boolean {
    return this.active.size > 0;
  }

  /** A new stream begins: counts since the last one are unknown. */
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
        const { picks, results, breaker, pace } = this.kept.get(c.name) ?? { picks: 0, results: {}, breaker: null, pace: null };
        row = { name: c.name, c, picks, results, trouble: 0, breaker, fill: 0, updated: 0, pace };
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
      row.trouble = troubleOf(row);
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
      row.results = pace.results;
      row.trouble = troubleOf(row);
      if (pace.picks === 0) this.active.delete(row);
    }
  }

  /** How many each filter takes, and the rates of all. */
  sums(): PaceNow & { counts: Record<string, number> } {
    const counts: Record<string, number> = {};
    const each = Object.entries(filters);
    for (const [id] of each) counts[id] = 0;
    for (const row of this.rows.values()) for (const [id, f] of each) if (f.takes(row)) counts[id]!++;
    let picks = 0;
    const results: Record<string, number> = {};
    for (const row of this.active) {
      picks += row.picks;
      for (const [k, n] of Object.entries(row.results)) results[k] = (results[k] ?? 0) + n;
    }
    return { counts, picks, results };
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
