// What picks would do with an assignment that holds.

import type { Assignment, AssignedEndpoint, AssignedLocality } from "./document.ts";

export interface PredictedLocality {
  priority: number;
  name: string;
  weight: number;
  usable: number;
  endpoints: number;
  /** The part of the priority's picks, 0 to 1, while every usable endpoint is READY. */
  share: number;
}

/** Picks may reach endpoints of these healths only. */
export const usable = (e: AssignedEndpoint) => e.health === "UNKNOWN" || e.health === "HEALTHY" || e.health === "DEGRADED";

export const assignedName = (l: AssignedLocality) =>
  [l.region, l.zone, l.subZone].join("/").replace(/\/+$/, "") || "(no locality)";

/**
 * predict returns the localities by priority with their shares. A locality without a
 * weight is left out; where not one bears a weight, each weighs as many as its usable
 * endpoints. One without a usable endpoint gets nothing.
 */
export function predict(a: Assignment): PredictedLocality[] {
  const weightless = a.localities.some((l) => l.weight === null) && !a.localities.some((l) => (l.weight ?? 0) > 0);
  const found = a.localities
    .map((l) => {
      const n = l.endpoints.filter(usable).length;
      const weight = l.weight ?? (weightless ? n : 0);
      return { priority: l.priority, name: assignedName(l), weight, usable: n, endpoints: l.endpoints.length, share: 0 };
    })
    .filter((l) => l.weight > 0);
  const sums = new Map<number, number>();
  for (const l of found) if (l.usable > 0) sums.set(l.priority, (sums.get(l.priority) ?? 0) + l.weight);
  for (const l of found) if (l.usable > 0) l.share = l.weight / sums.get(l.priority)!;
  return found.sort((x, y) => x.priority - y.priority);
}

/** The first priority that has a usable endpoint; -1 where none has. */
export function firstUsed(of: PredictedLocality[]): number {
  return of.find((l) => l.usable > 0)?.priority ?? -1;
}

/** The part of all picks that some category drops, 0 to 1: each draws on its own. */
export function dropped(drops: { perMillion: number }[]): number {
  return 1 - drops.reduce((pass, d) => pass * (1 - d.perMillion / 1_000_000), 1);
}
