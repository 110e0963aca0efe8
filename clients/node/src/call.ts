// One request to a cluster, with all of its tries. Adapters of HTTP libraries use it.

import { AsyncResource } from "node:async_hooks";
import { setTimeout as sleep } from "node:timers/promises";

import { isAddress } from "./address.js";
import { type Api, CALL_TIMEOUT, Unreachable } from "./api.js";
import { type Ask, type Choice, choiceOf, EXCLUDE, type Picked } from "./ask.js";
import { Element } from "./batch.js";
import { type Cluster, TRIED_MAX } from "./cluster.js";
import type { Outcome } from "./counts.js";
import type { Deadline } from "./deadline.js";
import { blamesEndpoint, isTimeout, LbdError, like, timeoutError, UnavailableError } from "./errors.js";
import type { EndedAttempt, Hooks } from "./hooks.js";
import type { Limit } from "./limit.js";
import { Lease, type Sender } from "./sender.js";
import type { Resolved } from "./settings.js";

/** Methods of requests that may be repeated. */
export const IDEMPOTENT: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/** Statuses of responses after which a request is repeated. */
export const RETRIED_STATUSES: ReadonlySet<number> = new Set([502, 503, 504]);

/** Connects of a request that have less time, at most. */
const HURRIED = 3;

/** Milliseconds that a request waits for other endpoints after none has answered, and after which it asks again. */
const OTHER_TIME = 1000;
const OTHER_PAUSE = 200;

const WAIT_MAX = 5000;
const LEASE_GRACE = 5000;
const TTL_MAX = 600_000; // lbd's --max-ttl

/** What the calls of a client have in common. */
export interface Context {
  readonly settings: Resolved;
  readonly owner: string;
  readonly api: Api;
  readonly sender: Sender;
  readonly hooks: Hooks;
}

/** What the HTTP library knows of a request. */
export interface Asking {
  readonly lbd: Ask | undefined;
  readonly method: string;
  readonly url: URL;
}

export class Call {
  readonly deadline: Deadline;
  readonly #context: Context;
  readonly #cluster: Cluster;
  readonly #tried: string[] = [];
  readonly #repeatable: boolean;
  readonly #asks: string;
  readonly #request: Asking | undefined;
  /** The async context of the request, if the program wants to know of tries. */
  readonly #scope: AsyncResource | undefined;
  #moves = 0; // tries that were not sent
  #fallback = false; // the address of the last try is not from lbd
  #cut = false; // a try was not sent for want of time to connect, and its address was not tried again
  #lease: Lease | undefined; // of the last try

  constructor(
    context: Context,
    cluster: Cluster,
    deadline: Deadline,
    repeatable: boolean,
    asks: string,
    request?: Asking,
  ) {
    this.deadline = deadline;
    this.#asks = asks;
    this.#request = request;
    this.#scope = context.hooks.attempts ? new AsyncResource("lbd") : undefined;
    this.#context = context;
    this.#cluster = cluster;
    this.#repeatable = repeatable;
  }

  /** Whether it takes an element of the batch, for it asks nothing. */
  get #plain(): boolean {
    return this.#asks === "" && this.#context.settings.mode === "batch";
  }

  /** The first try. Rejects with an LbdError if there is no endpoint for it. */
  async first(): Promise<Attempt> {
    try {
      return await (this.#plain ? this.#take("") : this.#get());
    } catch (error) {
      const { settings, sender } = this.#context;
      const { fallback } = settings;
      // An error with a code is an answer of lbd.
      if (fallback === undefined || !(error instanceof UnavailableError) || error.code || sender.closed) throw error;
      this.#fallback = true;
      return this.#attempt(new Element({ address: fallback }, this.#cluster.name), { fallback: true });
    }
  }

  /**
   * The next try after one that failed: it was not sent, its connection ended before the status line, or it has one of
   * RETRIED_STATUSES. One that was not sent may be of any request, and is no retry for the limits. Undefined if the
   * result of the last try is the result of the request, or limit ends it. It waits for others if last was not answered.
   */
  async retry(last: Attempt, limit: Limit, answered = false): Promise<Attempt | undefined> {
    const { sender, settings } = this.#context;
    if (last.outcome === "unreachable") {
      this.#moves++;
      this.#cut ||= last.cut;
    } else {
      const permitted = this.#cluster.budget.failed();
      if (!permitted || !this.#repeatable || this.#tried.length - this.#moves > settings.retries) return undefined;
    }
    const over = () => limit.reason !== undefined || this.deadline.passed() || sender.closed;
    if (this.#fallback || this.#tried.length >= TRIED_MAX || over()) return undefined;
    const end = performance.now() + OTHER_TIME;
    const mayWait = () => !answered && !over() && performance.now() < end;
    if (this.#plain && this.#cluster.current("") !== undefined) {
      let other = this.#other();
      // lbd hears now of connects that failed, and may choose endpoints of another priority.
      while (other === undefined && mayWait()) {
        await this.#cluster.next(Math.min(end - performance.now(), this.deadline.left()));
        if (!over()) other = this.#other();
      }
      return other;
    }
    try {
      if (this.#lease !== undefined) {
        // lbd may need its place in the circuit breaker.
        const timeout = Math.min(CALL_TIMEOUT, this.deadline.left());
        if (!(await sender.endFailed(this.#lease, last.outcome ?? "error", timeout)) || over()) return undefined;
      }
      for (;;) {
        try {
          return await this.#get();
        } catch (error) {
          if (!isAllExcluded(error)) throw error;
          if (this.#cut) return await this.#get([]);
          if (!mayWait()) throw error;
          await sleep(Math.min(OTHER_PAUSE, this.deadline.left()));
        }
      }
    } catch (error) {
      if (error instanceof LbdError) return undefined;
      throw error;
    }
  }

  /** A try at an address of the batch that was not tried; the last resort is one that had too little time. */
  #other(): Attempt | undefined {
    const cluster = this.#cluster;
    const untried = (address: string) => !this.#tried.includes(address);
    const element =
      cluster.draw((one) => untried(one) && !cluster.asides.avoids(one)) ??
      cluster.draw(untried) ??
      (this.#cut ? cluster.draw((one) => !untried(one)) : undefined);
    return element === undefined ? undefined : this.#at(element);
  }

  /** A try at the next endpoint of the batch for what is asked. */
  async #take(query: string): Promise<Attempt> {
    const batch = this.#cluster.current(query) ?? (await this.#cluster.wait(query, this.deadline));
    const element = batch.take((address) => this.#cluster.asides.avoids(address));
    if (element.error !== undefined) throw like(element.error);
    if (this.deadline.passed()) throw timeoutError(); // no endpoint is to blame
    this.#context.sender.start();
    return this.#at(element);
  }

  #at(element: Element, lease?: Lease): Attempt {
    const { address, counts } = element;
    const { asides, connects } = this.#cluster;
    const again = this.#tried.includes(address);
    if (again) this.#cut = false;
    this.#tried.push(address);
    this.#lease = lease;
    if (counts === undefined) {
      this.#cluster.picked = performance.now();
      asides.avoids(address); // this may be the trial
    }
    const connectTime = this.#moves < HURRIED && !again ? connects.limit : Number.POSITIVE_INFINITY;
    return this.#attempt(element, { lease, connectTime });
  }

  #attempt(element: Element, options: AttemptOptions): Attempt {
    const lbd = this.#request?.lbd;
    const scope = this.#scope;
    let ended: ((end: End) => void) | undefined;
    if (lbd !== undefined || scope !== undefined) {
      const choice = choiceOf(element.pick, element.cluster, this.#tried.length || 1);
      if (lbd !== undefined) lbd.choice = choice;
      if (scope !== undefined) ended = (end) => scope.runInAsyncScope(() => this.#tell(choice, end));
    }
    return new Attempt(this.#context.sender, this.#cluster, element, options, ended);
  }

  #tell(choice: Choice, end: End): void {
    const { method = "", url } = this.#request ?? {};
    this.#context.hooks.attempted({ ...choice, ...end, method, origin: url?.origin ?? "" });
  }

  /** The attempt, unless lbd has taken all of the time. */
  #inTime(attempt: Attempt): Attempt {
    if (!this.deadline.passed()) return attempt;
    attempt.finish();
    throw timeoutError();
  }

  /** A try at an address that lbd picks, none of tried; one that is set aside if there is no other. */
  async #get(tried: readonly string[] = this.#tried): Promise<Attempt> {
    const exclude = new Set([...tried, ...this.#cluster.asides.avoided().sort()]);
    return await this.#pick([...exclude].slice(0, TRIED_MAX)).catch((error: unknown) => {
      if (exclude.size === tried.length || !isAllExcluded(error)) throw error;
      return this.#pick(tried);
    });
  }

  async #pick(exclude: readonly string[]): Promise<Attempt> {
    const { settings, api, owner, sender } = this.#context;
    if (settings.mode === "batch") {
      return await this.#take(this.#asks + exclude.map((one) => EXCLUDE + encodeURIComponent(one)).join(""));
    }
    const { name, param } = this.#cluster;
    const asks = this.#asks;
    const left = this.deadline.left();
    const wait = Math.min(Math.ceil(left), WAIT_MAX);
    const query = { ...param, wait: `${wait}ms`, exclude };
    const timeout = wait + CALL_TIMEOUT / 2;
    try {
      if (settings.mode === "pick") {
        const answer = await api.call({ path: "/v1/pick", query, asks, cluster: name, timeout });
        return this.#inTime(this.#at(this.#element(answer)));
      }
      const ttl = Math.ceil(Math.min(left === Number.POSITIVE_INFINITY ? settings.ttl : left + LEASE_GRACE, TTL_MAX));
      const answer = await api.call({
        method: "POST",
        path: "/v1/pick",
        query: { ...query, ttl: `${ttl}ms`, owner },
        asks,
        cluster: name,
        timeout,
      });
      const to = this.#element(answer);
      const lease = new Lease(leaseId(answer), ttl);
      if (!sender.hold(lease)) {
        throw new UnavailableError(`cluster ${name}: the client is closed`, { cluster: name });
      }
      return this.#inTime(this.#at(to, lease));
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      throw new UnavailableError(`cluster ${name}: lbd is unreachable: ${error.message}`, { cluster: name });
    }
  }

  #element(answer: Partial<Picked>): Element {
    if (!isAddress(answer.address)) throw new Unreachable("the answer has no valid address");
    return new Element(answer as Picked, answer.cluster || this.#cluster.name);
  }
}

interface AttemptOptions {
  readonly lease?: Lease | undefined;
  /** Milliseconds to connect while there are other endpoints. */
  readonly connectTime?: number;
  /** Whether its address is not from lbd. */
  readonly fallback?: boolean;
}

type End = Pick<EndedAttempt, "outcome" | "duration" | "status" | "error">;

/** One try of a request, at one address: answered or failed, then finish. */
export class Attempt {
  readonly address: string;
  /** Milliseconds to connect; Infinity for those of the settings. */
  readonly connectTime: number;
  /** Set by the HTTP library: whether there is a connection, so that a part of the request may have been sent. */
  sent = false;
  /** Set by the HTTP library: whether the connect took longer than connectTime. */
  cut = false;
  outcome: Outcome | undefined;
  readonly #sender: Sender;
  readonly #cluster: Cluster;
  readonly #lease: Lease | undefined;
  readonly #element: Element;
  readonly #fallback: boolean;
  readonly #ended: ((end: End) => void) | undefined;
  readonly #begin: number;
  #finished = false;

  /** ended is called when the outcome is known. */
  constructor(sender: Sender, cluster: Cluster, element: Element, options: AttemptOptions, ended?: (end: End) => void) {
    const { lease, connectTime = Number.POSITIVE_INFINITY, fallback = false } = options;
    this.address = element.address;
    this.connectTime = connectTime;
    this.#sender = sender;
    this.#cluster = cluster;
    this.#lease = lease;
    this.#element = element;
    this.#fallback = fallback;
    this.#ended = ended;
    this.#begin = element.counts?.begin(element.address) ?? performance.now();
  }

  /** There is a connection; took is the milliseconds of its connect. */
  connected(took?: number): void {
    this.sent = true;
    if (took !== undefined) this.#cluster.connects.add(took);
  }

  /** The status and the headers of the response are there; the request is in flight until finish. */
  answered(status: number): void {
    this.#end(status >= 500 ? "error" : "success", status);
    if (!RETRIED_STATUSES.has(status)) this.#cluster.budget.succeeded();
    this.#cluster.asides.answered(this.address);
  }

  /**
   * There is no response: finishes the try, and says whether another one may help. own says that the error is one of the
   * caller, such as that of the stream of its body.
   */
  failed(error: unknown, own = false): boolean {
    const timeout = isTimeout(error);
    const blamed = !own && (timeout || blamesEndpoint(error));
    const unsent = blamed && !timeout && !this.sent;
    const late = blamed && timeout && !this.sent;
    const outcome = unsent ? "unreachable" : blamed && !late ? "error" : "cancelled";
    this.#end(outcome, undefined, error, !late); // of one that is late, lbd hears nothing
    if (blamed && !this.#fallback) {
      this.#cluster.failed(this.address, !unsent);
      if (unsent && this.#lease === undefined) this.#sender.unreachable(this.#element.cluster, this.address);
    }
    this.finish();
    return blamed && !timeout;
  }

  /** The request is no longer in flight. Without an outcome, its caller has given it up. */
  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#end("cancelled");
    this.#element.counts?.finish(this.address);
    if (this.#lease !== undefined) this.#sender.end(this.#lease, this.outcome!);
  }

  #end(outcome: Outcome, status?: number, error?: unknown, counted = true): void {
    if (this.outcome !== undefined) return;
    this.outcome = outcome;
    if (counted) this.#element.counts?.ended(this.address, outcome, this.#begin);
    this.#ended?.({ outcome, duration: performance.now() - this.#begin, status, error });
  }
}

function isAllExcluded(error: unknown): boolean {
  return error instanceof LbdError && error.code === "all_excluded";
}

function leaseId({ lease }: Record<string, unknown>): string {
  const id = typeof lease === "object" && lease !== null && "id" in lease ? lease.id : undefined;
  if (typeof id !== "string" || id === "") throw new Unreachable("the answer has no lease");
  return id;
}
