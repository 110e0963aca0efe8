// One request to a cluster, with all of its tries. Adapters of HTTP libraries use it.

import { isAddress } from "./address.js";
import { type Api, CALL_TIMEOUT, Unreachable } from "./api.js";
import type { Cluster } from "./cluster.js";
import type { Outcome } from "./counts.js";
import type { Deadline } from "./deadline.js";
import { blamesEndpoint, isTimeout, LbdError, like, timeoutError, UnavailableError } from "./errors.js";
import type { Limit } from "./limit.js";
import { Lease, type Sender } from "./sender.js";
import type { Resolved } from "./settings.js";

/** Methods of requests that may be repeated. */
export const IDEMPOTENT: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/** Statuses of responses after which a request is repeated. */
export const RETRIED_STATUSES: ReadonlySet<number> = new Set([502, 503, 504]);

const WAIT_MAX = 5000;
const LEASE_GRACE = 5000;
const TTL_MAX = 600_000; // lbd's --max-ttl

/** What the calls of a client have in common. */
export interface Context {
  readonly settings: Resolved;
  readonly owner: string;
  readonly api: Api;
  readonly sender: Sender;
}

export class Call {
  readonly deadline: Deadline;
  readonly #context: Context;
  readonly #cluster: Cluster;
  readonly #tried: string[] = [];
  #repeatable: boolean;
  #lease: Lease | undefined; // of the last try

  constructor(context: Context, cluster: Cluster, deadline: Deadline, repeatable: boolean) {
    this.deadline = deadline;
    this.#context = context;
    this.#cluster = cluster;
    this.#repeatable = repeatable;
  }

  /** The first try. Rejects with an LbdError if there is no endpoint for it. */
  async first(): Promise<Attempt> {
    try {
      return await this.#take();
    } catch (error) {
      const { settings, sender } = this.#context;
      const { fallback } = settings;
      // An error with a code is an answer of lbd.
      if (fallback === undefined || !(error instanceof UnavailableError) || error.code || sender.closed) throw error;
      this.#repeatable = false;
      return new Attempt(sender, this.#cluster, fallback, undefined, false);
    }
  }

  /**
   * The next try after one that failed: its connection could not be made or ended before the status line, or it has
   * one of RETRIED_STATUSES. Undefined if the result of that try is the result of the request, or limit ends it.
   */
  async retry(limit: Limit): Promise<Attempt | undefined> {
    const { sender, settings } = this.#context;
    const { retries, mode } = settings;
    const permitted = this.#cluster.budget.failed();
    if (!permitted || !this.#repeatable || this.#tried.length > retries) return undefined;
    const over = () => limit.reason !== undefined || this.deadline.passed() || sender.closed;
    if (over()) return undefined;
    if (mode === "batch") {
      const address = this.#cluster.current()?.takeOther(this.#tried);
      return address === undefined ? undefined : this.#at(address);
    }
    try {
      if (this.#lease !== undefined) {
        // lbd may need its place in the circuit breaker.
        const timeout = Math.min(CALL_TIMEOUT, this.deadline.left());
        if (!(await sender.endFailed(this.#lease, timeout)) || over()) return undefined;
      }
      return await this.#pick();
    } catch (error) {
      if (error instanceof LbdError) return undefined;
      throw error;
    }
  }

  async #take(): Promise<Attempt> {
    if (this.#context.settings.mode !== "batch") return await this.#pick();
    const batch = this.#cluster.current() ?? (await this.#cluster.wait(this.deadline));
    const element = batch.take();
    if (typeof element !== "string") throw like(element);
    if (this.deadline.passed()) throw timeoutError(); // no endpoint is to blame
    this.#context.sender.start();
    return this.#at(element);
  }

  #at(address: string, lease?: Lease): Attempt {
    this.#tried.push(address);
    this.#lease = lease;
    const { sender, settings } = this.#context;
    return new Attempt(sender, this.#cluster, address, lease, settings.mode === "batch");
  }

  /** The attempt, unless lbd has taken all of the time. */
  #inTime(attempt: Attempt): Attempt {
    if (!this.deadline.passed()) return attempt;
    attempt.finish();
    throw timeoutError();
  }

  async #pick(): Promise<Attempt> {
    const { settings, api, owner, sender } = this.#context;
    const { name } = this.#cluster;
    const left = this.deadline.left();
    const wait = Math.min(Math.ceil(left), WAIT_MAX);
    const query = { cluster: name, wait: `${wait}ms`, exclude: this.#tried };
    const timeout = wait + CALL_TIMEOUT / 2;
    try {
      if (settings.mode === "pick") {
        const answer = await api.call({ path: "/v1/pick", query, cluster: name, timeout });
        return this.#inTime(this.#at(address(answer)));
      }
      const ttl = Math.ceil(Math.min(left === Number.POSITIVE_INFINITY ? settings.ttl : left + LEASE_GRACE, TTL_MAX));
      const answer = await api.call({
        method: "POST",
        path: "/v1/pick",
        query: { ...query, ttl: `${ttl}ms`, owner },
        cluster: name,
        timeout,
      });
      const to = address(answer);
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
}

/** One try of a request, at one address: answered or failed, then finish. */
export class Attempt {
  readonly address: string;
  readonly #sender: Sender;
  readonly #cluster: Cluster;
  readonly #lease: Lease | undefined;
  readonly #counted: boolean;
  readonly #begin: number;
  #outcome: Outcome | undefined;
  #finished = false;

  constructor(sender: Sender, cluster: Cluster, address: string, lease: Lease | undefined, counted: boolean) {
    this.address = address;
    this.#sender = sender;
    this.#cluster = cluster;
    this.#lease = lease;
    this.#counted = counted;
    this.#begin = counted ? cluster.counts.begin(address) : 0;
  }

  /** The status and the headers of the response are there; the request is in flight until finish. */
  answered(status: number): void {
    this.#end(status >= 500 ? "error" : "success");
    if (!RETRIED_STATUSES.has(status)) this.#cluster.budget.succeeded();
  }

  /**
   * There is no response: finishes the try, and says whether a retry may help. own says that the error is one of the
   * caller, such as that of the stream of its body.
   */
  failed(error: unknown, own = false): boolean {
    const timeout = isTimeout(error);
    const blamed = !own && (timeout || blamesEndpoint(error));
    this.#end(blamed ? "error" : "cancelled");
    this.finish();
    return blamed && !timeout;
  }

  /** The request is no longer in flight. Without an outcome, its caller has given it up. */
  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#end("cancelled");
    if (this.#counted) this.#cluster.counts.finish(this.address);
    if (this.#lease !== undefined) this.#sender.end(this.#lease, this.#outcome!);
  }

  #end(outcome: Outcome): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = outcome;
    if (this.#counted) this.#cluster.counts.ended(this.address, outcome, this.#begin);
  }
}

function address(answer: Record<string, unknown>): string {
  if (!isAddress(answer.address)) throw new Unreachable("the answer has no valid address");
  return answer.address;
}

function leaseId({ lease }: Record<string, unknown>): string {
  const id = typeof lease === "object" && lease !== null && "id" in lease ? lease.id : undefined;
  if (typeof id !== "string" || id === "") throw new Unreachable("the answer has no lease");
  return id;
}
