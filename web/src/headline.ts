// The sentences that explain where picks go and why, and what is lost.

import { brief, percent, plural, rate, span } from "./format.ts";
import type { ClusterState, EndpointState, PriorityState } from "./model.ts";
import { type Counted, dropKey, total } from "./rates.ts";

export interface Headline {
  /** How bad it is. */
  tone: "good" | "warning" | "bad" | "unknown";
  where: string;
  why: string;
  /** Problems of the endpoints of the priority in use; "" for none. */
  unwell: string;
  /** Resources that are in use despite an error; "" for none. */
  kept: string;
  /** Sentences about dropped and rejected picks. */
  lost: string[];
}

/** Rates per second: picks of the tree, drops of the whole process. */
export type Lately = Omit<Counted, "localities">;

export interface Known {
  lately: Lately | null;
  /** The time of lbd's clock. */
  now: number;
  /** The time until which the data is current; null if it is current now. */
  until: number | null;
}

const refusals: Record<string, string> = {
  circuit_broken: "by the circuit breaker",
  no_ready_endpoint: "because no endpoint is READY",
  pick_timeout: "because they waited too long",
  all_excluded: "because callers excluded every READY endpoint",
  shutting_down: "because lbd is shutting down",
};

/** Whether a result is a rejection by lbd, and neither a drop nor a cancellation by the caller. */
const isRefusal = (result: string) => !["ok", "dropped", "cancelled"].includes(result);

/** headline describes the state, the priority in use with its reason and age, and lost picks. */
export function headline(c: ClusterState, k: Known): Headline {
  const used = c.priorities.find((p) => p.in_use);
  const endpoints = endpointsOf(used);
  const failed = c.priority_in_use > 0 ? c.priorities.filter((p) => p.priority < c.priority_in_use) : [];
  const refused = k.lately !== null && Object.entries(k.lately.picks).some(([r, n]) => isRefusal(r) && n >= 0.05);
  const ailing = endpoints.some((e) => e.state === "EJECTED" || e.state === "TRANSIENT_FAILURE");
  const kept = keptOf(c);
  const fails = c.trouble !== undefined || c.state === "TRANSIENT_FAILURE" || c.error !== undefined;
  const warns = kept !== "" || failed.length > 0 || c.state !== "READY" || refused || c.stale || ailing;
  return {
    tone: k.until !== null ? "unknown" : fails ? "bad" : warns ? "warning" : "good",
    where: `${k.until !== null ? `Last known, ${span(k.now - k.until)} ago: ` : ""}${where(c, used, endpoints, k)}`,
    why: why(c, k, used, failed.map((p) => `priority ${p.priority} is ${brief(p.why) || p.state}`)),
    unwell: c.state === "READY" ? unwell(endpoints) : "",
    kept,
    lost: k.lately ? losses(c, used, k.lately) : [],
  };
}

const endpointsOf = (p: PriorityState | undefined): EndpointState[] => (p?.localities ?? []).flatMap((l) => l.endpoints ?? []);

function where(c: ClusterState, used: PriorityState | undefined, endpoints: EndpointState[], k: Known): string {
  if (!used) return `${c.state}${lasting(c.state_since, k)}: no priority is in use.`;
  // Both are so since the later of the two.
  const since = [c.state_since, used.in_use_since].filter((t) => t !== undefined).sort((a, b) => Date.parse(b) - Date.parse(a))[0];
  const of = (state: string) => endpoints.filter((e) => e.state === state).length;
  const idle = of("IDLE") > 0 ? `, ${of("IDLE")} IDLE` : "";
  const blind = [c, ...(c.leaves ?? [])].some((of) => of.connect_mode === "none") ? ", not checked: connect mode none" : "";
  return `${c.state} on priority ${used.priority}${lasting(since, k)}, ${of("READY")} of ${plural(endpoints.length, "endpoint")} READY${idle}${blind}.`;
}

const lasting = (since: string | undefined, k: Known) => (since ? ` for ${span((k.until ?? k.now) - Date.parse(since))}` : "");

function why(c: ClusterState, k: Known, used: PriorityState | undefined, failed: string[]): string {
  if (c.trouble) return `${c.trouble.fails === "picks" ? "Picks" : "Requests"} fail${lasting(c.trouble.since, k)}: ${brief(c.trouble.cause)}.`;
  if (c.error) return `Picks fail: ${brief(c.error)}.`;
  if (failed.length > 0) return `Failed over: ${failed.join("; ")}.`;
  if (used && used.priority === 0) return "This is the highest priority.";
  return used?.why ? `In use: ${used.why}.` : "";
}

/** The maximum number of names in a sentence. */
const named = 3;

function keptOf(c: ClusterState): string {
  const errors = c.ambient_errors ?? [];
  if (errors.length === 0) return "";
  const names = errors.slice(0, named).map((e) => e.resource).join(", ");
  const more = errors.length > named ? ` and ${errors.length - named} more` : "";
  const texts = [...new Set(errors.map((e) => e.error))];
  return `In use despite an error: ${names}${more} (${texts.slice(0, named).map(brief).join("; ")}).`;
}

function unwell(endpoints: EndpointState[]): string {
  const texts: string[] = [];
  for (const state of ["EJECTED", "TRANSIENT_FAILURE", "UNHEALTHY"]) {
    const of = endpoints.filter((e) => e.state === state);
    if (of.length === 0) continue;
    const names = of.slice(0, named).map((e) => e.address).join(", ");
    texts.push(`${of.length} ${of.length === 1 ? "is" : "are"} ${state} (${names}${of.length > named ? ` and ${of.length - named} more` : ""})`);
  }
  return texts.length > 0 ? `Of ${plural(endpoints.length, "endpoint")}, ${texts.join(", ")}.` : "";
}

/** The part by which drop rates may differ from the rates of the tree, which are read a moment later. */
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
  if (out.length === 0) out.push(picks >= 0.05 ? `None of ${rate(picks)} picks/s are dropped or refused.` : "No picks from this cluster now.");
  return out;
}

/**
 * The drop categories in use: of an AGGREGATE those of the leaf in use. Their drops are counted
 * for the whole process; the rate is shown if only picks of this tree are dropped.
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
