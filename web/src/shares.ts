// What picks would do with an assignment that holds.

import type { Assignment, AssignedEndpoint, AssignedLocality } from "./document.ts";

export interface PredictedLocality {
  priority: number;
  name: string;
  weight: number;
  usable: number;
  endpoints: number;
  /** The part of the priority's picks, 0 to 1, if every usable endpoint is READY; null if unknown. */
  share: number | null;
}

/** Picks may reach endpoints of these healths only. */
export const usable = (e: AssignedEndpoint) => e.health === "UNKNOWN" || e.health === "HEALTHY";

/** What decides how many picks a locality gets. */
export type Basis = "weights" | "hashes" | "endpoints" | "load" | "unknown";

/** What decides under a policy, by the name that lbd gives it. */
export function basisOf(policy: string): Basis {
  if (policy.startsWith("xds_wrr_locality_experimental/")) return "weights";
  switch (policy) {
    case "ring_hash_experimental":
      return "hashes";
    case "round_robin":
      return "endpoints";
    case "least_request_experimental":
      return "load";
    default:
      return "unknown";
  }
}

export const assignedName = (l: AssignedLocality) =>
  [l.region, l.zone, l.subZone].join("/").replace(/\/+$/, "") || "(no locality)";

/**
 * predict returns the localities by priority with their shares. A locality without a
 * weight is left out; if none has a weight, the weight of each is the number of its
 * usable endpoints. A locality without a usable endpoint has no share.
 */
export function predict(a: Assignment, basis: Basis = "weights"): PredictedLocality[] {
  const weightless = a.localities.some((l) => l.weight === null) && !a.localities.some((l) => (l.weight ?? 0) > 0);
  const found = a.localities
    .map((l): PredictedLocality => {
      const n = l.endpoints.filter(usable).length;
      const weight = l.weight ?? (weightless ? n : 0);
      return { priority: l.priority, name: assignedName(l), weight, usable: n, endpoints: l.endpoints.length, share: null };
    })
    .filter((l) => l.weight > 0)
    .sort((x, y) => x.priority - y.priority);
  if (basis === "unknown") return found;
  // Where endpoints are chosen across localities, these count as much as they have of them.
  const parts = (l: PredictedLocality) => (l.usable === 0 ? 0 : basis === "weights" || basis === "hashes" ? l.weight : l.usable);
  const sums = new Map<number, number>();
  for (const l of found) sums.set(l.priority, (sums.get(l.priority) ?? 0) + parts(l));
  for (const l of found) l.share = parts(l) / (sums.get(l.priority) || 1);
  return found;
}

/** The first priority that has a usable endpoint; -1 where none has. */
export function firstUsed(of: PredictedLocality[]): number {
  return of.find((l) => l.usable > 0)?.priority ?? -1;
}

/** The part of all picks that some category drops, 0 to 1: each draws on its own. */
export function dropped(drops: { perMillion: number }[]): number {
  return 1 - drops.reduce((pass, d) => pass * (1 - d.perMillion / 1_000_000), 1);
}
