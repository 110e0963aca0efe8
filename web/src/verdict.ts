// What lbd says of a text before it is pushed, and pushing it.

import { call, clusterPath, Refusal, withQuery } from "./api.ts";
import { contentType, formatOf, readDocument, type Document, type Kind, type Message } from "./document.ts";
import type { Problem, PushAnswer } from "./model.ts";

/** Where a text is pushed to: a snapshot adds, "replace" also removes what it does not name. */
export type Where = Kind | "replace";

/** What is live now, and what it is known by. */
export interface LiveDocument {
  value: Message | null;
  etag?: string;
}

/** What is asked about. */
export interface Asked {
  body: string;
  where: Where;
  cluster: string;
  allowEmpty: boolean;
}

export const same = (a: Asked, b: Asked) => a.body === b.body && a.where === b.where && a.cluster === b.cluster && a.allowEmpty === b.allowEmpty;

/** Of answer and problem there is one. */
export interface Verdict extends Asked {
  document: Document | null;
  live: LiveDocument;
  answer?: PushAnswer;
  problem?: Problem;
}

/** Where it is pushed to, and where what is live is read. */
export const pathOf = (where: Where, cluster: string) =>
  where === "endpoints" ? clusterPath(cluster, "/endpoints") : where === "config" ? clusterPath(cluster, "/config") : "v1/snapshot";
const methodOf = (where: Where) => (where === "snapshot" ? "POST" : "PUT");

async function liveDocument(where: Where, cluster: string, signal: AbortSignal): Promise<LiveDocument> {
  try {
    const a = await call<Message>(pathOf(where, cluster), { headers: { Accept: "application/json" }, signal });
    return { value: a.body, etag: a.etag };
  } catch (e) {
    if (e instanceof Refusal && e.problem.status === 404) return { value: null };
    throw e;
  }
}

/** Sends it as what was live allows: where somebody else has pushed since, it is refused. */
export function send(v: Asked & { live: LiveDocument }, dryRun: boolean, maxRemoved?: number, signal?: AbortSignal) {
  const condition: Record<string, string> = v.live.etag ? { "If-Match": v.live.etag } : { "If-None-Match": "*" };
  const query = { dry_run: dryRun, allow_empty: v.allowEmpty, max_removed: v.where === "replace" && maxRemoved !== undefined ? String(maxRemoved) : undefined };
  return call<PushAnswer>(withQuery(pathOf(v.where, v.cluster), query), {
    method: methodOf(v.where), body: v.body, headers: { "Content-Type": contentType[formatOf(v.body)], ...condition }, signal,
  });
}

/** How often it is asked again where somebody else pushes between two questions. */
const mostRounds = 3;

/** Asks what pushing it would do. It rejects where lbd does not say. */
export async function judge(asked: Asked, signal: AbortSignal): Promise<Verdict> {
  for (let round = 1; ; round++) {
    const [document, live] = await Promise.all([readDocument(asked.body), liveDocument(asked.where, asked.cluster, signal)]);
    const v: Verdict = { ...asked, document, live };
    try {
      v.answer = (await send(v, true, undefined, signal)).body;
      return v;
    } catch (e) {
      if (!(e instanceof Refusal)) throw e;
      if (e.problem.code === "precondition_failed" && round < mostRounds) continue;
      // What is no answer of lbd's, or says that there are too many, judges nothing.
      if (e.problem.status === 0 || e.problem.status === 429 || e.problem.status >= 500) throw e;
      v.problem = e.problem;
      return v;
    }
  }
}
