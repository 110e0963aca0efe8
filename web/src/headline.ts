// The sentence that answers why traffic goes where it goes, and what is lost.

import { brief, percent, plural, rate, span } from "./format.ts";
import type { ClusterState, LbdEvent } from "./model.ts";
import { total } from "./rates.ts";

export interface Headline {
  /** How bad it is. */
  tone: "good" | "warning" | "bad";
  where: string;
  why: string;
  /** What is dropped and refused, each a sentence. */
  lost: string[];
}

/** Rates per second, by result and by category; null until they are known. */
export interface Lately {
  picks: Record<string, number>;
  drops: Record<string, number>;
}

const refusals: Record<string, string> = {
  circuit_broken: "by the circuit breaker",
  no_ready_endpoint: "for want of a READY endpoint",
  pick_timeout: "because they waited too long",
  all_excluded: "because callers excluded every READY endpoint",
  shutting_down: "because lbd is shutting down",
};

/**
 * headline tells state, priority in use and why, since when, and what is lost.
 * events are the cluster's, the newest first.
 */
export function headline(c: ClusterState, lately: Lately | null, events: LbdEvent[], now: number): Headline {
  const failed = c.priority_in_use > 0 ? c.priorities.filter((p) => p.priority < c.priority_in_use) : [];
  const lost = lately ? losses(c, lately) : [];
  const refused = lately ? Object.keys(refusals).some((r) => (lately.picks[r] ?? 0) >= 0.05) : false;
  return {
    tone: c.state === "TRANSIENT_FAILURE" || c.error ? "bad" : failed.length > 0 || c.state !== "READY" || refused || c.stale ? "warning" : "good",
    where: where(c, events, now),
    why: why(c, failed.map((p) => `priority ${p.priority} is ${brief(p.why) || p.state}`)),
    lost,
  };
}

function where(c: ClusterState, events: LbdEvent[], now: number): string {
  const since = events.find((e) =>
    e.type === "priority_switched" ? e.to === String(c.priority_in_use) : e.type === "state_changed" && e.to === c.state,
  );
  const long = since ? ` for ${span(now - Date.parse(since.time))}` : "";
  if (c.priority_in_use < 0) return `${c.state}${long}: no priority is in use.`;
  const ready = `${c.endpoints.ready} of ${plural(c.endpoints.total, "endpoint")} READY`;
  return `${c.state} on priority ${c.priority_in_use}${long}, ${ready}.`;
}

function why(c: ClusterState, failed: string[]): string {
  if (c.error) return `Picks fail: ${brief(c.error)}.`;
  if (failed.length > 0) return `Traffic left the first choice: ${failed.join("; ")}.`;
  const used = c.priorities.find((p) => p.in_use);
  if (used && used.priority === 0) return "It is the highest priority: traffic is where it should be.";
  return used?.why ? `In use: ${used.why}.` : "";
}

function losses(c: ClusterState, lately: Lately): string[] {
  const picks = total(lately.picks);
  const out: string[] = [];
  const dropped = lately.picks.dropped ?? 0;
  const chance = new Map(c.drops.map((d) => [d.category, d.per_million / 1e6]));
  for (const l of c.leaves ?? []) for (const d of l.drops) chance.set(d.category, d.per_million / 1e6);
  if (dropped > 0.005 && picks > 0) {
    const by = Object.entries(lately.drops)
      .filter(([, r]) => r > 0)
      .sort((a, b) => b[1] - a[1])
      .map(([category, r]) => `${category} ${rate(r)}/s${chance.has(category) ? `, set to ${percent(chance.get(category)!)}` : ""}`);
    out.push(`Dropped: ${rate(dropped)} picks/s (${percent(dropped / picks)})${by.length ? `, by ${by.join("; ")}` : ""}.`);
  }
  for (const [result, words] of Object.entries(refusals)) {
    const r = lately.picks[result] ?? 0;
    if (r >= 0.05) out.push(`Refused ${words}: ${rate(r)} picks/s (${percent(r / picks)}).`);
  }
  if (out.length === 0) out.push(picks >= 0.05 ? `Nothing is dropped or refused of ${rate(picks)} picks/s.` : "Nobody picks from it now.");
  return out;
}
