// Calls of the HTTP API. URLs are relative to the page.

import { learnFromResponse } from "./clock.ts";
import { span } from "./format.ts";
import type { ClusterList, ClusterSummary, Problem } from "./model.ts";
import { session } from "./session.ts";

/** An error of the API, or a failure to call it. */
export class Refusal extends Error {
  readonly problem: Problem;
  /** The version of the session that the call was part of. */
  readonly version: number;
  constructor(problem: Problem, version = session.version) {
    super(problem.detail);
    this.problem = problem;
    this.version = version;
  }
}

/** Whether a caller that was refused should wait for another token. The page asks for one. */
export const waitsForToken = (why: unknown) => why instanceof Refusal && session.refuse(why.problem, why.version);

/** The API's path of a cluster; v1/clusters/watch is the stream of all clusters. */
export const clusterPath = (name: string, rest = "") =>
  `v1/clusters/${name === "watch" && rest === "" ? "%77atch" : encodeURIComponent(name)}${rest}`;
/** Whether a name can be a path segment: URLs resolve . and .., even percent-encoded. */
export const hasPath = (name: string) => name !== "." && name !== "..";
export const targetPath = (name: string) => `v1/targets/${encodeURIComponent(name)}`;

export function withQuery(path: string, query: Record<string, string | string[] | boolean | undefined>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) {
    if (Array.isArray(v)) v.forEach((each) => q.append(k, each));
    else if (v !== undefined && v !== "" && v !== false) q.set(k, String(v));
  }
  const tail = q.toString();
  return tail ? `${path}?${tail}` : path;
}

export interface Answer<T> {
  body: T;
  etag?: string;
  stale: boolean;
}

/** Timeout of a call, in milliseconds. A pick may queue, and a push may be large. */
const patience = (path: string, init: RequestInit) => ((init.method && init.method !== "GET") || /^pick\b/.test(path) ? 120_000 : 30_000);

/** Sends a request, with the token. It rejects with a Refusal if the status is not 2xx, and with the error of fetch. */
export async function request(path: string, init: RequestInit): Promise<Response> {
  const sent = Date.now();
  const { version } = session;
  const headers = new Headers(init.headers);
  const isOther = headers.has("Authorization");
  if (!isOther) for (const [k, v] of Object.entries(session.headers())) headers.set(k, v);
  const response = await fetch(path, { cache: "no-store", ...init, headers });
  learnFromResponse(response, sent);
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (!isOther) session.reject(problem, version);
  throw new Refusal(problem, version);
}

/** Calls the API and reads its response. It rejects with a Refusal if the status is not 2xx or the response is not complete in time. */
export async function call<T>(path: string, init: RequestInit = {}, read = (r: Response) => r.json() as Promise<T>): Promise<Answer<T>> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error(`no answer within ${span(patience(path, init))}`)), patience(path, init));
  const signal = init.signal ? AbortSignal.any([init.signal, late.signal]) : late.signal;
  let step = "lbd cannot be reached";
  try {
    const response = await request(path, { ...init, signal });
    step = "cannot read the response";
    return {
      body: await read(response),
      etag: response.headers.get("ETag") ?? undefined,
      stale: response.headers.get("Lbd-Stale") === "true",
    };
  } catch (e) {
    if (e instanceof Refusal || init.signal?.aborted) throw e;
    throw new Refusal(local(step, e));
  } finally {
    clearTimeout(timer);
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await call<T>(path, { signal })).body;
}

/** All clusters, read in pages. */
export async function allClusters(signal?: AbortSignal): Promise<ClusterSummary[]> {
  const all: ClusterSummary[] = [];
  let after: string | undefined;
  do {
    const page = await get<ClusterList>(withQuery("v1/clusters", { after, limit: "10000" }), signal);
    all.push(...page.clusters);
    after = page.next;
  } while (after);
  return all;
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const problem = (await response.json()) as Problem;
    if (typeof problem.detail === "string" && typeof problem.code === "string") return problem;
  } catch {
    // a response of a proxy
  }
  return {
    ...local(`HTTP status ${response.status} ${response.statusText}`.trim()),
    status: response.status,
    title: "Unexpected response",
  };
}

function local(what: string, why?: unknown): Problem {
  const detail = why instanceof Error ? `${what}: ${why.message}` : what;
  return { type: "about:blank", title: "Unreachable", status: 0, code: "internal", grpc_code: "UNAVAILABLE", detail };
}

/** The text of an error. */
export function says(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}
