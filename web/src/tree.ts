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

/** Endpoints that a locality shows before somebody asks for more. */
export const endpointsShown = 100;

/**
 * rows flattens what is open. shown tells how many endpoints of a locality are wanted,
 * by its key.
 */
export function rows(state: ClusterState, isOpen: (key: string) => boolean, shown: (key: string) => number): Row[] {
  const out: Row[] = [];
  const priorities = state.priorities;
  priorities.forEach((priority, i) => {
    const key = priorityRowKey(priority);
    const open = isOpen(key);
    out.push({ kind: "priority", key, parent: null, level: 1, position: i + 1, siblings: priorities.length, open, priority });
    if (!open) return;
    const sum = priority.localities.reduce((a, l) => a + l.weight, 0);
    priority.localities.forEach((locality, j) => {
      const localityKey = localityRowKey(priority, locality);
      const endpoints = locality.endpoints ?? [];
      const localityOpen = endpoints.length > 0 && isOpen(localityKey);
      out.push({
        kind: "locality", key: localityKey, parent: key, level: 2, position: j + 1, siblings: priority.localities.length,
        open: endpoints.length > 0 ? localityOpen : null, priority, locality, expected: sum > 0 ? locality.weight / sum : 0,
      });
      if (!localityOpen) return;
      const visible = endpoints.slice(0, shown(localityKey));
      const hidden = endpoints.length - visible.length;
      const siblings = visible.length + (hidden > 0 ? 1 : 0);
      visible.forEach((endpoint, k) => {
        out.push({
          kind: "endpoint", key: `${localityKey} ${endpoint.address}`, parent: localityKey, level: 3, position: k + 1, siblings,
          open: null, priority, locality, endpoint,
        });
      });
      if (hidden > 0) {
        out.push({ kind: "more", key: `${localityKey} more`, parent: localityKey, level: 3, position: siblings, siblings, open: null, hidden });
      }
    });
  });
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
