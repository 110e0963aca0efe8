// The picture of what a change does to picks: where they go before and after it.

import type { ClusterEffect, EndpointEffect } from "./model.ts";

/** A part of the picks of a cluster before and after a change. The spans are parts of all picks, from 0 to 1. */
export interface Flow {
  label: string;
  /** "others" are the endpoints that have no flow of their own, and "dropped" are picks that are dropped. */
  kind: "endpoint" | "others" | "dropped";
  before: [from: number, to: number];
  after: [from: number, to: number];
}

/** The number of endpoints that have a flow of their own. */
export const mostFlows = 8;

/** flowsOf returns the flows of a cluster, of the endpoints that change most first; none if shares are not known. */
export function flowsOf(c: ClusterEffect): Flow[] {
  const known = (e: EndpointEffect) => e.share_before !== undefined || e.share_after !== undefined;
  if (!c.endpoints.some(known)) return [];
  const served = (o: { dropped: number; error?: string }) => (o.error ? 0 : 1 - o.dropped);
  const parts: [string, Flow["kind"], number, number][] = c.endpoints
    .slice(0, mostFlows)
    .map((e) => [e.address, "endpoint", e.share_before ?? 0, e.share_after ?? 0]);
  // Rounding leaves a rest that is no endpoint.
  const rest = (at: 2 | 3, is: { error?: string }) => (is.error ? 0 : Math.max(0, 1 - parts.reduce((sum, p) => sum + p[at], 0)));
  const others = [rest(2, c.before), rest(3, c.after)] as const;
  if (c.endpoints.length + c.more_endpoints > parts.length && others.some((n) => n > 1e-6)) parts.push(["others", "others", ...others]);
  const [before, after] = [served(c.before), served(c.after)];
  const flows: Flow[] = [];
  let [left, right] = [0, 0];
  for (const [label, kind, was, is] of parts) {
    flows.push({ label, kind, before: [left, left + was * before], after: [right, right + is * after] });
    [left, right] = [left + was * before, right + is * after];
  }
  if (c.before.dropped > 0 || c.after.dropped > 0) {
    flows.push({ label: "dropped", kind: "dropped", before: [1 - c.before.dropped, 1], after: [1 - c.after.dropped, 1] });
  }
  return flows;
}

/** ribbon is the path of a flow in a picture. */
export function ribbon(f: Flow, width: number, height: number): string {
  const n = (x: number) => Math.round(x * 10) / 10;
  const [a, b, c, d] = [f.before[0], f.before[1], f.after[0], f.after[1]].map((y) => n(y * height)) as [number, number, number, number];
  const [left, right, middle] = [width * 0.08, width * 0.92, width / 2];
  return `M0 ${a}H${left}C${middle} ${a} ${middle} ${c} ${right} ${c}H${width}V${d}H${right}C${middle} ${d} ${middle} ${b} ${left} ${b}H0Z`;
}
