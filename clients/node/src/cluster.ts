// The batch of one cluster, and the background task that keeps it up to date.

import { type Api, CALL_TIMEOUT } from "./api.js";
import { Asides, Connects } from "./aside.js";
import { inBackground } from "./background.js";
import { Batch, batchOfAnswer } from "./batch.js";
import { Budget } from "./budget.js";
import { Counts } from "./counts.js";
import { type Deadline, pause, within } from "./deadline.js";
import { CircuitBrokenError, DroppedError, LbdError, like, UnavailableError } from "./errors.js";
import type { Resolved } from "./settings.js";

/** Picks of a batch: those for BATCH_TIME milliseconds. The first one has BATCH_FIRST. */
const BATCH_MIN = 20;
const BATCH_FIRST = 100;
const BATCH_MAX = 1000;
const BATCH_TIME = 2000;

/** Addresses that a request has tried, or that lbd excludes, at most. */
export const TRIED_MAX = 100;

/** Milliseconds after which a batch of nothing but refusals is fetched again. */
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

/** What a client knows of one cluster. */
export class Cluster {
  readonly name: string;
  readonly budget: Budget;
  readonly counts = new Counts();
  readonly asides = new Asides();
  readonly connects = new Connects();
  readonly #api: Api;
  readonly #maxAge: number;
  readonly #staleFor: number;
  readonly #stop = new AbortController();
  #running = false;
  #used = performance.now();
  #batch: Batch | undefined;
  #error: LbdError | undefined;
  /** Resolves when the first try to get a batch has ended. */
  #first: Promise<void> = Promise.resolve();
  /** Requests that wait for the next batch. */
  readonly #waiting: (() => void)[] = [];

  constructor(name: string, api: Api, { maxAge, staleFor, maxTokens }: Resolved) {
    this.name = name;
    this.budget = new Budget(maxTokens);
    this.#api = api;
    this.#maxAge = maxAge;
    this.#staleFor = staleFor;
  }

  /** The batch, if there is one that is not too old. */
  current(): Batch | undefined {
    const now = performance.now();
    this.#used = now;
    const batch = this.#running ? this.#batch : undefined;
    return batch !== undefined && now - batch.made < this.#staleFor ? batch : undefined;
  }

  /** The batch; waits for the first one. Rejects with an LbdError if there is none in time. */
  async wait(deadline: Deadline): Promise<Batch> {
    this.#start();
    await within(this.#first, deadline.left());
    const batch = this.current();
    if (batch !== undefined) return batch;
    if (this.#error !== undefined) throw like(this.#error);
    const reason = this.#stop.signal.aborted ? "the client is closed" : "lbd did not answer in time";
    throw new UnavailableError(`cluster ${this.name}: ${reason}`, { cluster: this.name });
  }

  /** Waits for the next batch, for at most so many milliseconds. */
  async next(milliseconds: number): Promise<void> {
    await within(new Promise<void>((resolve) => this.#waiting.push(resolve)), milliseconds);
  }

  /** An address that accept permits, of the batch; undefined if there is none. */
  draw(accept: (address: string) => boolean): string | undefined {
    return this.#batch?.draw(accept);
  }

  /** May set an address aside: a try was not sent, or got no answer. */
  failed(address: string, sent: boolean): void {
    const most = this.#batch === undefined ? TRIED_MAX : Math.floor(this.#batch.addresses.size / 2);
    this.asides.failed(address, sent, most);
  }

  /** Whether there were requests in the last minutes; false in the modes without batches. */
  get followed(): boolean {
    return this.#running;
  }

  stop(): void {
    this.#stop.abort();
  }

  #start(): void {
    if (this.#running || this.#stop.signal.aborted) return;
    this.#running = true;
    this.#error = undefined;
    inBackground(() => {
      this.#first = new Promise((resolve) => {
        void this.#run(resolve).finally(() => {
          this.#running = false;
          this.#batch = undefined;
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
    while (!signal.aborted && performance.now() - this.#used < IDLE_TIME) {
      try {
        // Replicas behind one address do not count generations alike: each call may find another one.
        const early = next - performance.now();
        if (early > 0) await pause(early, signal);
        const batch = await this.#fetch(n);
        next = batch.made + PAUSE_MIN;
        this.#batch = batch;
        this.#error = undefined;
        if (batch.generation !== undefined) this.asides.keep(batch.addresses);
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
        if (n > BATCH_FIRST && error instanceof LbdError && error.code === "invalid_argument") {
          most = BATCH_FIRST; // the quota of the caller does not permit more
          n = BATCH_FIRST;
          continue;
        }
        const reason = this.#reason(error);
        this.#error = reason;
        tried();
        await pause(
          Math.max(backoff * (0.8 + Math.random() * 0.4), Math.min(reason.retryAfter, RETRY_AFTER_MAX)),
          signal,
        );
        backoff = Math.min(2 * backoff, BACKOFF_MAX);
      }
    }
  }

  #reason(error: unknown): LbdError {
    if (error instanceof LbdError) return error;
    const message = `cluster ${this.name}: lbd is unreachable: ${error instanceof Error ? error.message : error}`;
    return new UnavailableError(message, { cluster: this.name });
  }

  async #fetch(n: number): Promise<Batch> {
    try {
      const answer = await this.#api.call({
        path: "/v1/pick",
        query: { cluster: this.name, n: String(n), reports: "true", wait: `${BATCH_WAIT}ms` },
        cluster: this.name,
        timeout: BATCH_WAIT + CALL_TIMEOUT / 2,
        background: true,
        signal: this.#stop.signal,
      });
      return batchOfAnswer(this.name, answer);
    } catch (error) {
      if (error instanceof DroppedError || error instanceof CircuitBrokenError) return new Batch(undefined, [error]);
      throw error;
    }
  }

  /** Returns when it is time for a new batch. */
  async #follow({ generation }: Batch): Promise<void> {
    const { signal } = this.#stop;
    if (generation === undefined) return await pause(Math.min(REFUSED_AGE, this.#maxAge), signal);
    // A change makes all clients get a batch at the same time: their next ones are apart.
    const age = this.#maxAge * (0.8 + Math.random() * 0.2);
    const end = performance.now() + age;
    for (let left = age; left > 0 && !signal.aborted; left = end - performance.now()) {
      const began = performance.now();
      const wait = Math.ceil(Math.min(left, FOLLOW_WAIT));
      const answer = await this.#api.call({
        path: `/v1/clusters/${segment(this.name)}`,
        query: { endpoints: "false", index: String(generation), wait: `${wait}ms` },
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
