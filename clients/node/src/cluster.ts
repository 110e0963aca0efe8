// The batch of one cluster, and the background task that keeps it up to date.

import { setMaxListeners } from "node:events";

import { type Api, CALL_TIMEOUT } from "./api.js";
import { Asides, Connects } from "./aside.js";
import { Asked, EXCLUDE, TARGET } from "./ask.js";
import { inBackground } from "./background.js";
import { Batch, batchOfAnswer, type Element, refused } from "./batch.js";
import { Budget } from "./budget.js";
import type { Context } from "./call.js";
import { Counts } from "./counts.js";
import { type Deadline, pause, within } from "./deadline.js";
import {
  CircuitBrokenError,
  DroppedError,
  isFinal,
  isTimeout,
  LbdError,
  like,
  timeoutError,
  UnavailableError,
} from "./errors.js";

import type { Hooks } from "./hooks.js";

/** Picks of a batch: those for BATCH_TIME milliseconds. The first one has BATCH_FIRST. */
const BATCH_MIN = 20;
const BATCH_FIRST = 100;
const BATCH_MAX = 1000;
const BATCH_TIME = 2000;

/** Addresses that a request has tried, or that lbd excludes, at most. */
export const TRIED_MAX = 100;

/** Milliseconds after which a batch of nothing but refusals is fetched again, and for which a name is not. */
const REFUSED_AGE = 1000;

/** Milliseconds between two batches, and between two calls that follow a cluster, at least. */
const PAUSE_MIN = 100;

/** Milliseconds that lbd may wait for an endpoint. */
const BATCH_WAIT = 1000;

const FOLLOW_WAIT = 30_000;
const BACKOFF_FIRST = 100;
const BACKOFF_MAX = 5000;
const RETRY_AFTER_MAX = 60_000;

/** Milliseconds without a request after which a cluster is no longer followed. */
const IDLE_TIME = 300_000;

/** What a client knows of one cluster, or of one target. */
export class Cluster {
  readonly name: string;
  /** The cluster or the target in a query. */
  readonly param: { readonly cluster: string } | { readonly target: string };
  readonly budget: Budget;
  readonly counts = new Counts();
  readonly asides = new Asides();
  readonly connects = new Connects();
  #asked = new Asked();
  /** Calls under way, by what is asked. */
  readonly #calls = new Map<string, Promise<Batch>>();
  readonly #api: Api;
  readonly #hooks: Hooks;
  readonly #known: (cluster: string) => Cluster;
  readonly #maxAge: number;
  readonly #staleFor: number;
  readonly #stop = new AbortController();
  /** Set by the client, which has another one for the name if there is a request: the background task ends. */
  forgotten = false;
  /** When lbd gave it an endpoint last, in the modes without a batch. */
  picked = 0;
  #running = false;
  /** Until when #error is the answer to requests, without a background task. */
  #refused = 0;
  #used = performance.now();
  #batch: Batch | undefined;
  #error: LbdError | undefined;
  /** Resolves when the first try to get a batch has ended. */
  #first: Promise<void> = Promise.resolve();
  /** Requests that wait for the next batch. */
  readonly #waiting: (() => void)[] = [];

  constructor(name: string, { api, hooks, settings }: Context, known: (cluster: string) => Cluster) {
    const { maxAge, staleFor, maxTokens } = settings;
    this.name = name;
    this.param = name.startsWith(TARGET) ? { target: name.slice(TARGET.length) } : { cluster: name };
    this.#known = known;
    this.budget = new Budget(maxTokens);
    this.#api = api;
    this.#hooks = hooks;
    this.#maxAge = maxAge;
    this.#staleFor = staleFor;
    setMaxListeners(0, this.#stop.signal); // each call has one
  }

  /** The counts of a cluster that was chosen. */
  countsOf(cluster: string): Counts {
    return cluster === this.name ? this.counts : this.#known(cluster).counts;
  }

  /** The batch that is followed, if it is not too old, and for what is asked. */
  current(query: string): Batch | undefined {
    this.#used = performance.now();
    const batch = this.#batch;
    return batch?.query === query && !this.#isStale(batch) ? batch : undefined;
  }

  /** The batch for what is asked; waits for it. Rejects with an LbdError if there is none in time. */
  async wait(query: string, deadline: Deadline): Promise<Batch> {
    this.#start(query);
    if (this.#batch === undefined) await within(this.#first, deadline.left());
    const batch = this.current(query);
    if (batch !== undefined) return batch;
    const last = this.#batch && !this.#isStale(this.#batch) ? this.#batch : undefined;
    if (this.#batch !== last && this.#error?.code === "") this.#hooks.stale(this.#error);
    const code = this.#error?.code;
    // The error may be that of what another request asks.
    if (last !== undefined || code === "no_route" || (code === "invalid_argument" && "target" in this.param)) {
      return await this.#ask(query, deadline, last);
    }
    if (this.#error !== undefined) throw like(this.#error);
    const reason = this.#stop.signal.aborted ? "the client is closed" : "lbd did not answer in time";
    throw new UnavailableError(`cluster ${this.name}: ${reason}`, { cluster: this.name });
  }

  /** Whether a batch is too old. */
  #isStale({ made }: Batch): boolean {
    return this.#error !== undefined && performance.now() - made >= this.#staleFor;
  }

  /** The batch for what is asked: the known one, unless it is old. While lbd is unreachable, it may be older, or last. */
  async #ask(query: string, deadline: Deadline, last?: Batch): Promise<Batch> {
    const known = this.#asked.get(query);
    const useful = () => known !== undefined && this.#error?.code === "" && !this.#isStale(known);
    if (known !== undefined && (performance.now() < known.until || useful())) return known;
    try {
      const batch = await within(this.#fetchAsked(query), deadline.left());
      if (batch === undefined) throw timeoutError();
      return batch;
    } catch (error) {
      if (isTimeout(error)) throw error;
      const reason = this.#reason(error);
      if (reason.code || this.#stop.signal.aborted) throw like(reason);
      this.#error = reason;
      if (known !== undefined && useful()) return known;
      // Better another endpoint than none.
      if (last?.generation !== undefined && "cluster" in this.param && !query.includes(EXCLUDE)) return last;
      throw like(reason);
    }
  }

  /** Waits for the next batch, for at most so many milliseconds. */
  async next(milliseconds: number): Promise<void> {
    await within(new Promise<void>((resolve) => this.#waiting.push(resolve)), milliseconds);
  }

  /** An endpoint that accept permits, of the batch; undefined if there is none. */
  draw(accept: (address: string) => boolean): Element | undefined {
    return this.#batch?.draw(accept);
  }

  /** May set an address aside: a try was not sent, or got no answer. */
  failed(address: string, sent: boolean): void {
    // A batch for a hash key, or a path, has only some of the addresses.
    const most = this.#batch?.query === "" ? Math.floor(this.#batch.addresses.size / 2) : TRIED_MAX;
    this.asides.failed(address, sent, most);
  }

  /** Whether lbd knows it, and there were requests in the last minutes; false in the modes without batches. */
  get hasBatch(): boolean {
    return this.#batch !== undefined;
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Begins to follow the cluster. query is that of the first batch, unless lbd has answered another one. */
  #start(query: string): void {
    if (this.#running || this.#stop.signal.aborted || performance.now() < this.#refused) return;
    this.#running = true;
    this.#error = undefined;
    this.#asked.last ??= query.split(EXCLUDE)[0];
    inBackground(() => {
      this.#first = new Promise((resolve) => {
        void this.#run(resolve).finally(() => {
          this.#running = false;
          this.#batch = undefined;
          this.#asked = new Asked();
          resolve();
        });
      });
    });
  }

  async #run(tried: () => void): Promise<void> {
    const { signal } = this.#stop;
    let backoff = BACKOFF_FIRST;
    let next = 0;
    let n = BATCH_FIRST;
    let most = BATCH_MAX;
    do {
      // Replicas behind one address do not count generations alike: each call may find another one.
      const early = next - performance.now();
      if (early > 0) await pause(early, signal);
      const { last: query = "" } = this.#asked;
      const size = query === "" ? n : BATCH_MIN;
      try {
        const batch = await this.#fetch(query, size);
        next = batch.made + PAUSE_MIN;
        this.#batch = batch;
        this.#error = undefined;
        this.#asked.put(batch, true);
        if (batch.generation !== undefined && batch.query === "") this.asides.keep(batch.addresses);
        tried();
        for (const resolve of this.#waiting.splice(0)) resolve();
        await this.#follow(batch);
        backoff = BACKOFF_FIRST;
        const age = performance.now() - batch.made;
        if (age >= PAUSE_MIN) {
          n = Math.min(Math.max(Math.floor((batch.taken * BATCH_TIME) / age), BATCH_MIN), most);
          this.budget.fit(n / BATCH_FIRST);
        }
      } catch (error) {
        if (size > BATCH_FIRST && error instanceof LbdError && error.code === "invalid_argument") {
          most = BATCH_FIRST; // the quota of the caller does not permit more
          n = BATCH_FIRST;
          continue;
        }
        const reason = this.#reason(error);
        this.#error = reason;
        if (this.#batch === undefined && isFinal(reason)) {
          this.#refused = performance.now() + REFUSED_AGE; // names are often input
          return;
        }
        tried();
        await pause(
          Math.max(backoff * (0.8 + Math.random() * 0.4), Math.min(reason.retryAfter, RETRY_AFTER_MAX)),
          signal,
        );
        backoff = Math.min(2 * backoff, BACKOFF_MAX);
      }
    } while (!signal.aborted && !this.forgotten && performance.now() - this.#used < IDLE_TIME);
  }

  /** Gets the batch for what is asked, with one call for all requests that need it at the same time. */
  #fetchAsked(query: string): Promise<Batch> {
    const fetch = async () => {
      try {
        const batch = await this.#fetch(query, BATCH_MIN);
        this.#asked.put(batch, false);
        return batch;
      } finally {
        this.#calls.delete(query);
      }
    };
    const call = this.#calls.get(query) ?? fetch();
    this.#calls.set(query, call);
    return call;
  }

  #reason(error: unknown): LbdError {
    if (error instanceof LbdError) return error;
    const message = `cluster ${this.name}: lbd is unreachable: ${error instanceof Error ? error.message : error}`;
    return new UnavailableError(message, { cluster: this.name });
  }

  async #fetch(query: string, n: number): Promise<Batch> {
    try {
      const answer = await this.#api.call({
        path: "/v1/pick",
        query: { ...this.param, n: String(n), reports: "true", wait: `${BATCH_WAIT}ms` },
        asks: query,
        cluster: this.name,
        timeout: BATCH_WAIT + CALL_TIMEOUT / 2,
        background: true,
        signal: this.#stop.signal,
      });
      // A change makes all clients get a batch at the same time: their next ones are apart.
      return batchOfAnswer(this, query, answer, this.#maxAge * (0.8 + Math.random() * 0.2));
    } catch (error) {
      if (!(error instanceof DroppedError || error instanceof CircuitBrokenError)) throw error;
      return new Batch(query, undefined, [refused(error)], Math.min(REFUSED_AGE, this.#maxAge));
    }
  }

  /** Returns when it is time for a new batch. */
  async #follow({ generation, cluster, until }: Batch): Promise<void> {
    const { signal } = this.#stop;
    if (generation === undefined) return await pause(until - performance.now(), signal);
    while (!signal.aborted) {
      const began = performance.now();
      const left = until - began;
      if (left <= 0) return;
      const wait = Math.ceil(Math.min(left, FOLLOW_WAIT));
      const answer = await this.#api.call({
        path: `/v1/clusters/${segment(cluster)}`,
        query: {
          ...("target" in this.param && this.param),
          endpoints: "false",
          index: String(generation),
          wait: `${wait}ms`,
        },
        cluster: this.name,
        timeout: wait + CALL_TIMEOUT / 2,
        background: true,
        signal,
      });
      if (answer.generation !== generation) return;
      await pause(Math.max(0, began + PAUSE_MIN - performance.now()), signal);
    }
  }
}

/** A cluster's name as a path segment; v1/clusters/watch is the stream of all clusters. */
const segment = (name: string) => (name === "watch" ? "%77atch" : encodeURIComponent(name));
