// A cluster's state as the rows of a tree: priority, locality, endpoint.

import { localityName } from "./format.ts";
import type { ClusterState, EndpointState, LocalityState, PriorityState } from "./model.ts";
import { localityKey } from "./rates.ts";

export type Row = { key: string; parent: string | null; level: 1 | 2 | 3; position: number; siblings: number; open: boolean | null } & (
  | { kind: "priority"; priority: PriorityState }
  | { kind: "locality"; priority: PriorityState; locality: LocalityState; expected: number }
  | { kind: "endpoint"; priority: PriorityState; locality: LocalityState; endpoint: EndpointState }
  | { kind: "more"; hidden: number }
);

export const priorityRowKey = (p: PriorityState) => `p${p.priority}`;
export const localityRowKey = (p: PriorityState, l: LocalityState) => `l${localityKey(p.priority, l.locality)}`;

/** The number of endpoints that a locality shows at first. */
export const endpointsShown = 100;

/**
 * The endpoints of a cluster that have every word of a search in their address, host name,
 * state, health, locality or last error; null where nothing is searched.
 */
export function search(state: ClusterState, text: string): Set<EndpointState> | null {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  const found = new Set<EndpointState>();
  for (const p of state.priorities) {
    for (const l of p.localities) {
      const where = localityName(l.locality);
      for (const e of l.endpoints ?? []) {
        const all = [e.address, ...(e.additional_addresses ?? []), e.hostname, e.state, e.health, e.last_error, where].join(" ").toLowerCase();
        if (words.every((w) => all.includes(w))) found.add(e);
      }
    }
  }
  return found;
}

/** Whether a priority only waits for the ones before it to fail: nothing is wrong with what is IDLE in it. */
export const onStandby = (state: ClusterState, p: PriorityState) =>
  p.state === "IDLE" && state.priority_in_use >= 0 && p.priority > state.priority_in_use;

/**
 * rows flattens what is open. shown is how many endpoints of a locality are wanted, by
 * its key. Where something is searched, only what was found is there, and where it is.
 */
export function rows(state: ClusterState, isOpen: (key: string) => boolean, shown: (key: string) => number, found: Set<EndpointState> | null = null): Row[] {
  const out: Row[] = [];
  const endpointsOf = (l: LocalityState) => (found ? (l.endpoints ?? []).filter((e) => found.has(e)) : (l.endpoints ?? []));
  const priorities = found ? state.priorities.filter((p) => p.localities.some((l) => endpointsOf(l).length > 0)) : state.priorities;
  priorities.forEach((priority, i) => {
    const key = priorityRowKey(priority);
    const open = isOpen(key);
    out.push({ kind: "priority", key, parent: null, level: 1, position: i + 1, siblings: priorities.length, open, priority });
    if (!open) return;
    const sum = priority.localities.reduce((a, l) => a + l.weight, 0);
    const localities = found ? priority.localities.filter((l) => endpointsOf(l).length > 0) : priority.localities;
    localities.forEach((locality, j) => {
      const key = localityRowKey(priority, locality);
      const endpoints = endpointsOf(locality);
      const open = endpoints.length > 0 && isOpen(key);
      out.push({
        kind: "locality", key, parent: priorityRowKey(priority), level: 2, position: j + 1, siblings: localities.length,
        open: endpoints.length > 0 ? open : null, priority, locality, expected: sum > 0 ? locality.weight / sum : 0,
      });
      if (open) out.push(...endpointRows(priority, locality, key, endpoints, shown(key)));
    });
  });
  return out;
}

/** The endpoints of a locality, and a row for those that are not shown. */
function endpointRows(priority: PriorityState, locality: LocalityState, parent: string, endpoints: EndpointState[], most: number): Row[] {
  const visible = endpoints.slice(0, most);
  const hidden = endpoints.length - visible.length;
  const siblings = visible.length + (hidden > 0 ? 1 : 0);
  const out = visible.map((endpoint, k): Row => ({
    kind: "endpoint", key: `${parent} ${endpoint.address}`, parent, level: 3, position: k + 1, siblings, open: null, priority, locality, endpoint,
  }));
  if (hidden > 0) out.push({ kind: "more", key: `${parent} more`, parent, level: 3, position: siblings, siblings, open: null, hidden });
  return out;
}

/** What is open before anybody has touched the tree: all, unless it is much. */
export function openAtFirst(state: ClusterState, key: string): boolean {
  if (state.endpoints.total <= 60) return true;
  return state.priorities.some((p) => {
    if (key === priorityRowKey(p)) return p.in_use || state.priorities.length <= 8;
    // A locality opens where something is wrong that can be seen at a glance.
    return p.localities.some(
      (l) => key === localityRowKey(p, l) && (l.endpoints ?? []).length <= 20 && p.in_use && (l.endpoints ?? []).some((e) => e.state !== "READY"),
    );
  });
}

/**
 * Whether as many of n picks as k are others than a share of them, 0 to 1, lets expect: by
 * more than chance does, and by enough to be of interest.
 */
export function strays(k: number, n: number, share: number): boolean {
  const off = Math.abs(k - n * share);
  return off > 4 * Math.sqrt(n * share * (1 - share)) && off > n / 20;
}

/** The path of a row for people: "priority 0, us-east1/a". */
export const localityTitle = (p: PriorityState, l: LocalityState) => `priority ${p.priority}, ${localityName(l.locality)}`;
