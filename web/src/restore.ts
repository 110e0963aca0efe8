// A restore of the history: its preview, and the restore if nothing has changed since.

import { type Answer, call, clusterPath, hasPath, Refusal, withQuery } from "./api.ts";
import type { Problem, PushAnswer } from "./model.ts";

/** What to restore: a resource, a cluster, or, without both, everything. */
export interface Part {
  resource?: string;
  cluster?: string;
}

export interface Wanted {
  index: number;
  part: Part;
  allowEmpty: boolean;
}

/** Either answer or problem is set. */
export interface Preview extends Wanted {
  /** The header that makes the restore conditional on what the preview was made of. */
  condition: Record<string, string>;
  answer?: PushAnswer;
  problem?: Problem;
}

/** Type and name of a resource: "ClusterLoadAssignment/orders". */
export function resourceName(resource: string): { type: string; name: string } {
  const at = resource.indexOf("/");
  return { type: resource.slice(0, at), name: resource.slice(at + 1) };
}

const documents: Record<string, string> = { ClusterLoadAssignment: "/endpoints", Cluster: "/config" };

/** The path that has the ETag of a resource. Undefined if there is none: the resource cannot be restored alone. */
export function documentPath(resource: string): string | undefined {
  const { type, name } = resourceName(resource);
  const rest = documents[type];
  return rest && hasPath(name) ? clusterPath(name, rest) : undefined;
}

/** The parts that can be restored, of the resources of a change. */
export function partsOf(resources: string[]): Part[] {
  const ofClusters = resources.filter((r) => documents[resourceName(r).type]);
  const clusters = [...new Set(ofClusters.map((r) => resourceName(r).name))];
  return [...ofClusters.filter(documentPath).map((resource) => ({ resource })), ...clusters.map((cluster) => ({ cluster })), {}];
}

export const partWords = (p: Part) => p.resource ?? (p.cluster !== undefined ? `cluster ${p.cluster}: config and endpoints` : "everything");

/** Why a text cannot be a message, or "". Headers of a browser's requests have no other characters. */
export function messageError(text: string): string {
  if (/[^\x20-\x7e]/.test(text)) return "Only ASCII characters are possible here; the API accepts UTF-8.";
  return text.length > 500 ? "At most 500 characters." : "";
}

async function conditionOf(part: Part, signal: AbortSignal): Promise<Record<string, string>> {
  const path = part.resource ? (documentPath(part.resource) ?? "") : "v1/snapshot";
  try {
    const { etag } = await call(path, { headers: { Accept: "application/json" }, signal }, async (r) => void (await r.body?.cancel()));
    return etag ? { "If-Match": etag } : {};
  } catch (e) {
    if (e instanceof Refusal && e.problem.status === 404) return { "If-None-Match": "*" };
    throw e;
  }
}

/** Restores on condition that the current version has not changed. */
export function sendRestore(p: Wanted & Pick<Preview, "condition">, dryRun: boolean, message = "", signal?: AbortSignal): Promise<Answer<PushAnswer>> {
  const { resource, cluster } = p.part;
  const all = resource === undefined && cluster === undefined;
  return call<PushAnswer>(withQuery(`v1/history/${p.index}/restore`, { resource, cluster, all, allow_empty: p.allowEmpty, dry_run: dryRun }), {
    method: "POST", headers: { ...p.condition, ...(message ? { "Lbd-Message": message } : {}) }, signal,
  });
}

/** The maximum number of retries if a resource changes between two calls. */
const mostRounds = 3;

/** Runs a restore as a dry run. It rejects if lbd returns no result. */
export async function previewRestore(wanted: Wanted, signal: AbortSignal): Promise<Preview> {
  for (let round = 1; ; round++) {
    const p: Preview = { ...wanted, condition: await conditionOf(wanted.part, signal) };
    try {
      p.answer = (await sendRestore(p, true, "", signal)).body;
      return p;
    } catch (e) {
      if (!(e instanceof Refusal)) throw e;
      const { code, status } = e.problem;
      if (code === "precondition_failed" && round < mostRounds) continue;
      // A response of a proxy, a rate limit, or a missing role is not a result.
      if (status === 0 || status === 401 || status === 403 || status === 429 || status >= 500) throw e;
      p.problem = e.problem;
      return p;
    }
  }
}
