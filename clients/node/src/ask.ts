// What requests ask of lbd beside their cluster, and what lbd has chosen.

import type { Batch } from "./batch.js";
import { valuesOf } from "./fields.js";

/** Begins the names that are targets. */
export const TARGET = "xds:///";

/** Begins the part of what is asked for another try. */
export const EXCLUDE = "&exclude=";

/** Bytes of a hash key, at most. */
const HASH_MAX = 1024;

/** Batches of a cluster, at most: one for each hash key, or path and headers. */
const ASKED_MAX = 1000;

/** Length of their queries, at most. */
const ASKED_LENGTH = 4 * 1024 * 1024;

/**
 * Bytes of the name of a cluster, and of what a request asks, at most. lbd permits 512, and 32 KiB with all that a retry
 * excludes: its answer to what is much longer has no code.
 */
export const NAME_MAX = 512;
export const ASKS_MAX = 24 * 1024;

/** What requests to a host are for. */
export interface Host {
  /** Default: what is before .lbd in the host, unless there is a target. */
  cluster?: string | undefined;
  /** A target instead, such as shop for xds:///shop: its routes choose the cluster by the path, and by headers. */
  target?: string | undefined;
  /** Names of headers that the routes of the target match, or that their hash policies need. */
  headers?: readonly string[] | undefined;
  /** Where the hash key of a request is: header:NAME or cookie:NAME. */
  hash?: string | undefined;
}

/** What one request asks: the option lbd of client.request, of the fetch of createFetch, and of undici. */
export interface Ask {
  /** The hash key, instead of that of the host. */
  hash?: string | undefined;
  /** What the routes of a target match, instead of the path and the headers of the request. */
  path?: string | undefined;
  headers?: Readonly<Record<string, string | readonly string[]>> | undefined;
  /** Set by the client: what lbd has chosen for the last try. */
  choice?: Choice | undefined;
}

/** What lbd has chosen for a try. A fallback has the address only. */
export interface Choice {
  /** Of a target, the one that its routes chose. */
  readonly cluster: string;
  readonly address: string;
  readonly hostname: string;
  readonly locality: { readonly region: string; readonly zone: string; readonly subZone: string };
  readonly priority: number;
  /** 1 for the first try of the request. */
  readonly attempt: number;
}

/** A pick in an answer of lbd. */
export interface Picked {
  readonly address: string;
  readonly cluster?: string;
  readonly hostname?: string;
  readonly locality?: { readonly region?: string; readonly zone?: string; readonly sub_zone?: string };
  readonly priority?: number;
}

export function choiceOf(pick: Picked, cluster: string, attempt: number): Choice {
  const { address, hostname = "", locality = {}, priority = 0 } = pick;
  const { region = "", zone = "", sub_zone: subZone = "" } = locality;
  return { cluster, address, hostname, locality: { region, zone, subZone }, priority, attempt };
}

/** A Host that is valid. */
export interface Route {
  /** The cluster, or TARGET and the target. */
  readonly name: string;
  readonly headers?: readonly string[] | undefined;
  /** A kind and a name. */
  readonly hash?: readonly string[] | undefined;
}

/** Throws a TypeError if value is not valid. */
export function routeOf(host: string, value: string | Host): Route {
  const { cluster, target, headers, hash, ...others } = typeof value === "string" ? { cluster: value } : value;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`hosts: ${host}: ${unknown}: unknown field`);
  if (cluster && target) throw new TypeError(`hosts: ${host}: set either cluster or target, not both`);
  const place = hash ? /^(header|cookie):(.+)$/s.exec(hash)?.slice(1) : undefined;
  if (hash && !place) throw new TypeError(`hosts: ${host}: hash: ${hash} is not header:NAME or cookie:NAME`);
  const name = target ? (target.startsWith(TARGET) ? target : TARGET + target) : cluster || host.replace(/\.lbd$/, "");
  return { name, headers, hash: place };
}

/** What a request asks, as a part of a query; "" for nothing. */
export function asksOf({ name, headers, hash }: Route, ask: Ask | undefined, path: string, fields: unknown): string {
  const target = name.startsWith(TARGET);
  if (ask === undefined && hash === undefined && !target) return "";
  const params = new URLSearchParams();
  const key = Buffer.from(ask?.hash || (hash && keyOf(hash, fields)) || "").subarray(0, HASH_MAX);
  if (key.length > 0) params.append("hash", new TextDecoder().decode(key, { stream: true }));
  if (target) {
    params.append("path", ask?.path || path.replace(/\?.*/s, "") || "/");
    for (const one of ask?.headers ? Object.keys(ask.headers).sort() : (headers ?? [])) {
      for (const value of valuesOf(ask?.headers ?? fields, one)) params.append(`header.${one}`, value);
    }
  }
  return params.size > 0 ? `&${params}` : "";
}

function keyOf([kind, name = ""]: readonly string[], fields: unknown): string | undefined {
  if (kind === "header") return valuesOf(fields, name)[0];
  for (const pair of valuesOf(fields, "cookie").join(";").split(";")) {
    const [, key, value] = /^\s*(.*?)\s*=\s*"?(.*?)"?\s*$/s.exec(pair) ?? [];
    if (key === name) return value;
  }
  return undefined;
}

/** The batches of a cluster for what requests ask, all of one generation: those that were used last. */
export class Asked {
  /** What lbd has answered last, without what is excluded; before any answer, what was asked first. */
  last: string | undefined;
  #generation = 0;
  /** Of all queries. */
  #length = 0;
  readonly #batches = new Map<string, Batch>();

  get size(): number {
    return this.#batches.size;
  }

  get(query: string): Batch | undefined {
    const batch = this.#batches.get(query);
    if (batch !== undefined) this.#add(batch);
    return batch;
  }

  /**
   * Adds a batch. One of a later generation replaces all others, and so does one that is followed, which has the
   * generation that lbd has: one of an earlier generation comes too late.
   */
  put(batch: Batch, followed: boolean): void {
    const { generation = this.#generation } = batch;
    if (generation > this.#generation || (followed && generation !== this.#generation)) {
      this.#generation = generation;
      for (const old of this.#batches.keys()) this.#delete(old);
    }
    if (generation === this.#generation) this.#add(batch);
  }

  #add(batch: Batch): void {
    const { query } = batch;
    [this.last] = query.split(EXCLUDE);
    this.#delete(query);
    this.#batches.set(query, batch);
    this.#length += query.length;
    for (const oldest of this.#batches.keys()) {
      if (this.#batches.size <= ASKED_MAX && this.#length <= ASKED_LENGTH) return;
      this.#delete(oldest);
    }
  }

  #delete(query: string): void {
    if (this.#batches.delete(query)) this.#length -= query.length;
  }
}
