// Validation of a text by a dry run, and its push.

import { call, clusterPath, Refusal, withQuery } from "./api.ts";
import type { Body } from "./body.ts";
import { contentType, formatOf, readDocument, type Document, type Kind, type Message } from "./document.ts";
import type { Problem, PushAnswer } from "./model.ts";

/** The target of a push: a snapshot adds resources, "replace" also removes those that it does not have. */
export type Where = Kind | "replace";

/** The current version, and its ETag. */
export interface LiveDocument {
  value: Message | null;
  etag?: string;
}

/** The text and the options of its push. */
export interface Asked {
  body: Body;
  where: Where;
  cluster: string;
  allowEmpty: boolean;
  /** The part of the picks, in percent, that may move at most; empty for any. */
  maxShift: string;
}

export const same = (a: Asked, b: Asked) => a.body === b.body && a.where === b.where && a.cluster === b.cluster && a.allowEmpty === b.allowEmpty && a.maxShift === b.maxShift;

/** Either answer or problem is set; both if only maxShift is exceeded. */
export interface Verdict extends Asked {
  document: Document | null;
  live: LiveDocument;
  answer?: PushAnswer;
  problem?: Problem;
}

/** The path to push to, and to read the current version from. */
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

/** Pushes on condition that the current version has not changed. */
export function send(v: Asked & { live: LiveDocument }, dryRun: boolean, maxRemoved?: number, signal?: AbortSignal) {
  const condition: Record<string, string> = v.live.etag ? { "If-Match": v.live.etag } : { "If-None-Match": "*" };
  const query = { dry_run: dryRun, allow_empty: v.allowEmpty, max_shift: v.maxShift ? `${v.maxShift}%` : undefined, max_removed: v.where === "replace" && maxRemoved !== undefined ? String(maxRemoved) : undefined };
  const body = v.body.toString();
  return call<PushAnswer>(withQuery(pathOf(v.where, v.cluster), query), {
    method: methodOf(v.where), body, headers: { "Content-Type": contentType[formatOf(body)], ...condition }, signal,
  });
}

/** The maximum number of retries if the resource changes between two calls. */
const mostRounds = 3;

/** Runs a push as a dry run. It rejects if lbd returns no result. */
export async function judge(asked: Asked, signal: AbortSignal): Promise<Verdict> {
  for (let round = 1; ; round++) {
    const [document, live] = await Promise.all([readDocument(asked.body.toString()), liveDocument(asked.where, asked.cluster, signal)]);
    const v: Verdict = { ...asked, document, live };
    try {
      v.answer = (await send(v, true, undefined, signal)).body;
      return v;
    } catch (e) {
      if (!(e instanceof Refusal)) throw e;
      if (e.problem.code === "precondition_failed" && round < mostRounds) continue;
      // A response of a proxy, a rate limit, or a missing role is not a result.
      if (e.problem.status === 0 || e.problem.status === 401 || e.problem.status === 403 || e.problem.status === 429 || e.problem.status >= 500) throw e;
      v.problem = e.problem;
      if (asked.maxShift && e.problem.code === "blocked") {
        v.answer = (await send({ ...v, maxShift: "" }, true, undefined, signal).catch(() => undefined))?.body;
      }
      return v;
    }
  }
}
