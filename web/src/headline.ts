// The sentence that answers why traffic goes where it goes, and what is lost.

import { brief, percent, plural, rate, span } from "./format.ts";
import type { ClusterState, EndpointState, LbdEvent, PriorityState } from "./model.ts";
import { type Counted, dropKey, total } from "./rates.ts";

export interface Headline {
  /** How bad it is. */
  tone: "good" | "warning" | "bad" | "unknown";
  where: string;
  why: string;
  /** What is wrong with endpoints that picks should reach; "" for nothing. */
  unwell: string;
  /** Which resources are in use in spite of an error; "" for none. */
  kept: string;
  /** What is dropped and refused, each a sentence. */
  lost: string[];
}

/** Rates per second; those of picks are of the tree, those of drops of the whole process. */
export type Lately = Omit<Counted, "localities">;

export interface Known {
  lately: Lately | null;
  /** Those of the cluster's tree, the newest first. */
  events: LbdEvent[];
  /** The time, by lbd's clock. */
  now: number;
  /** Until when all else is known; null where that is now. */
  until: number | null;
}

const refusals: Record<string, string> = {
  circuit_broken: "by the circuit breaker",
  no_ready_endpoint: "for want of a READY endpoint",
  pick_timeout: "because they waited too long",
  all_excluded: "because callers excluded every READY endpoint",
  shutting_down: "because lbd is shutting down",
};

/** Whether picks with a result were refused by lbd, and not dropped on purpose or given up by their callers. */
const isRefusal = (result: string) => !["ok", "dropped", "cancelled"].includes(result);

/** headline tells state, priority in use and why, since when, and what is lost. */
export function headline(c: ClusterState, k: Known): Headline {
  const used = c.priorities.find((p) => p.in_use);
  const endpoints = endpointsOf(used);
  const failed = c.priority_in_use > 0 ? c.priorities.filter((p) => p.priority < c.priority_in_use) : [];
  const refused = k.lately !== null && Object.entries(k.lately.picks).some(([r, n]) => isRefusal(r) && n >= 0.05);
  const ailing = endpoints.some((e) => e.state === "EJECTED" || e.state === "TRANSIENT_FAILURE");
  const kept = keptOf(c);
  const warns = kept !== "" || failed.length > 0 || c.state !== "READY" || refused || c.stale || ailing;
  return {
    tone: k.until !== null ? "unknown" : c.state === "TRANSIENT_FAILURE" || c.error ? "bad" : warns ? "warning" : "good",
    where: `${k.until !== null ? `Last known, ${span(k.now - k.until)} ago: ` : ""}${where(c, used, endpoints, k)}`,
    why: why(c, used, failed.map((p) => `priority ${p.priority} is ${brief(p.why) || p.state}`)),
    unwell: c.state === "READY" ? unwell(endpoints) : "",
    kept,
    lost: k.lately ? losses(c, used, k.lately) : [],
  };
}

const endpointsOf = (p: PriorityState | undefined): EndpointState[] => (p?.localities ?? []).flatMap((l) => l.endpoints ?? []);

function where(c: ClusterState, used: PriorityState | undefined, endpoints: EndpointState[], k: Known): string {
  if (!used) {
    const last = k.events.find((e) => e.type === "state_changed");
    return `${c.state}${last?.to === c.state ? lasting(last.time, k) : ""}: no priority is in use.`;
  }
  const of = (state: string) => endpoints.filter((e) => e.state === state).length;
  const idle = of("IDLE") > 0 ? `, ${of("IDLE")} IDLE` : "";
  return `${c.state} on priority ${used.priority}${lasting(used.in_use_since, k)}, ${of("READY")} of ${plural(endpoints.length, "endpoint")} READY${idle}.`;
}

const lasting = (since: string | undefined, k: Known) => (since ? ` for ${span((k.until ?? k.now) - Date.parse(since))}` : "");

function why(c: ClusterState, used: PriorityState | undefined, failed: string[]): string {
  if (c.error) return `Picks fail: ${brief(c.error)}.`;
  if (failed.length > 0) return `Traffic left the first choice: ${failed.join("; ")}.`;
  if (used && used.priority === 0) return "It is the highest priority: traffic is where it should be.";
  return used?.why ? `In use: ${used.why}.` : "";
}

/** How many endpoints of a state are named. */
const named = 3;

function keptOf(c: ClusterState): string {
  const errors = c.ambient_errors ?? [];
  if (errors.length === 0) return "";
  const names = errors.slice(0, named).map((e) => e.resource).join(", ");
  const more = errors.length > named ? ` and ${errors.length - named} more` : "";
  const texts = [...new Set(errors.map((e) => e.error))];
  return `In use in spite of an error: ${names}${more} (${texts.slice(0, named).map(brief).join("; ")}).`;
}

function unwell(endpoints: EndpointState[]): string {
  const told: string[] = [];
  for (const state of ["EJECTED", "TRANSIENT_FAILURE", "UNHEALTHY"]) {
    const of = endpoints.filter((e) => e.state === state);
    if (of.length === 0) continue;
    const names = of.slice(0, named).map((e) => e.address).join(", ");
    told.push(`${of.length} ${of.length === 1 ? "is" : "are"} ${state} (${names}${of.length > named ? ` and ${of.length - named} more` : ""})`);
  }
  return told.length > 0 ? `Of its ${plural(endpoints.length, "endpoint")} ${told.join(", ")}.` : "";
}

/** Part of the picks that drop rates may differ by from those of the tree, which are read a moment apart. */
const apart = 0.05;

function losses(c: ClusterState, used: PriorityState | undefined, lately: Lately): string[] {
  const picks = total(lately.picks);
  const out: string[] = [];
  const dropped = lately.picks.dropped ?? 0;
  if (dropped > 0.005 && picks > 0) {
    const by = categories(c, used, lately.drops, dropped);
    out.push(`Dropped: ${rate(dropped)} picks/s (${percent(dropped / picks)})${by && `, by ${by}`}.`);
  }
  for (const [result, r] of Object.entries(lately.picks)) {
    if (isRefusal(result) && r >= 0.05) out.push(`Refused ${refusals[result] ?? `with ${result}`}: ${rate(r)} picks/s (${percent(r / picks)}).`);
  }
  if (out.length === 0) out.push(picks >= 0.05 ? `Nothing is dropped or refused of ${rate(picks)} picks/s.` : "Nobody picks from it now.");
  return out;
}

/**
 * The drop categories that picks meet now: of an AGGREGATE those of the leaf in use. What
 * each drops is counted for the whole process, and told where that is these picks alone.
 */
function categories(c: ClusterState, used: PriorityState | undefined, drops: Record<string, number>, dropped: number): string {
  const leaf = used?.cluster ?? "";
  const set = (c.leaves?.find((l) => l.name === leaf) ?? c).drops;
  const alone = Math.abs(total(drops) - dropped) <= apart * dropped;
  return set
    .map((d) => ({ ...d, rate: drops[dropKey(leaf, d.category)] ?? 0 }))
    .filter((d) => !alone || d.rate > 0)
    .sort((a, b) => (alone ? b.rate - a.rate : b.per_million - a.per_million))
    .map((d) => `${d.category}${leaf && ` of ${leaf}`}${alone ? ` ${rate(d.rate)}/s` : ""}, set to ${percent(d.per_million / 1e6)}`)
    .join("; ");
}
