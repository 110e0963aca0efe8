// What a client tells lbd in the background: reports, and the ends and renewals of leases.

import { type Api, type ApiCall, CALL_TIMEOUT } from "./api.js";
import { inBackground } from "./background.js";
import type { Cluster } from "./cluster.js";
import type { EndpointReport, Outcome, Taken } from "./counts.js";
import { Deadline, pause, within } from "./deadline.js";
import { LbdError } from "./errors.js";

/** Calls that end leases at the same time, at most: one that gets no answer does not hold up the others. */
const ENDS_AT_ONCE = 8;

/** Leases that one call ends, at most. */
const LEASES_AT_ONCE = 1000;

/** Ends of leases that wait for lbd, at most. The other leases expire. */
const LEASES_WAITING = 100_000;

/** Endpoints in one report, at most. */
const REPORT_ENDPOINTS = 1000;

/** Milliseconds for which connects that failed are collected. */
const TELL_PAUSE = 50;

/** A cluster with so many errors is reported after so many milliseconds already. */
const EARLY_ERRORS = 5;
const EARLY_INTERVAL = 1000;

const INTERVAL_MIN = 100;
const INTERVAL_MAX = 300_000;
const RETRY_PAUSE = 500;

/** A lease of a request in flight. */
export class Lease {
  readonly id: string;
  readonly ttl: number;
  timer: NodeJS.Timeout | undefined;

  constructor(id: string, ttl: number) {
    this.id = id;
    this.ttl = ttl;
  }
}

/** How many connects to an endpoint have failed. */
interface Failures {
  readonly cluster: string;
  readonly address: string;
  connect_failures: number;
}

interface Ended {
  readonly id: string;
  readonly outcome: Outcome;
}

export class Sender {
  readonly #api: Api;
  readonly #clusters: ReadonlyMap<string, Cluster>;
  readonly #reporter: string;
  readonly #interval: number;
  readonly #stop = new AbortController();
  readonly #held = new Set<Lease>();
  #ended: Ended[] = [];
  readonly #sending = new Set<Promise<void>>();
  #failures = new Map<string, Failures>();
  #telling: Promise<void> | undefined;
  #reporting: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(api: Api, clusters: ReadonlyMap<string, Cluster>, reporter: string, interval: number) {
    this.#api = api;
    this.#clusters = clusters;
    this.#reporter = reporter;
    this.#interval = Math.min(interval, INTERVAL_MAX);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Begins to send reports. */
  start(): void {
    if (this.#timer !== undefined || this.#closed) return;
    const pause = Math.min(this.#interval, EARLY_INTERVAL);
    let reported = performance.now();
    inBackground(() => {
      this.#timer = setInterval(() => {
        if (this.#reporting !== undefined) return;
        const early = performance.now() - reported < this.#interval - pause / 2;
        if (!early) reported = performance.now();
        this.#reporting = this.#report(CALL_TIMEOUT, early ? EARLY_ERRORS : 0).finally(() => {
          this.#reporting = undefined;
        });
      }, pause).unref();
    });
  }

  /** Renews a lease until it is ended. If the client is closed, ends it, and returns false. */
  hold(lease: Lease): boolean {
    if (this.#closed) {
      void this.#callDone([{ id: lease.id, outcome: "cancelled" }]).catch(() => {});
      return false;
    }
    this.#held.add(lease);
    inBackground(() => this.#renewAfter(lease, lease.ttl / 2));
    return true;
  }

  /** Ends a lease in the background. */
  end(lease: Lease, outcome: Outcome): void {
    clearTimeout(lease.timer);
    if (!this.#held.delete(lease) || this.#stop.signal.aborted || this.#ended.length >= LEASES_WAITING) return;
    this.#ended.push({ id: lease.id, outcome });
    if (this.#sending.size >= ENDS_AT_ONCE) return;
    inBackground(() => {
      const sending = this.#sendEnded().finally(() => this.#sending.delete(sending));
      this.#sending.add(sending);
    });
  }

  /**
   * Ends the lease of a try that failed, and waits for it, for at most timeout milliseconds. end does so again: lbd
   * answers both alike. Resolves with whether lbd has confirmed it: if not, it would not grant another lease.
   */
  async endFailed(lease: Lease, outcome: Outcome, timeout: number): Promise<boolean> {
    const options = { background: false, timeout, limited: true, signal: this.#stop.signal };
    return await this.#callDone([{ id: lease.id, outcome }], options).then(
      () => true,
      () => false,
    );
  }

  /** Tells lbd of a connect that failed, with all others of the next 50 ms. What cannot be sent is forgotten. */
  unreachable(cluster: string, address: string): void {
    const key = `${cluster} ${address}`;
    const known = this.#failures.get(key);
    if (known !== undefined) known.connect_failures++;
    else if (this.#failures.size < REPORT_ENDPOINTS) {
      this.#failures.set(key, { cluster, address, connect_failures: 1 });
    }
    if (this.#telling !== undefined || this.#closed) return;
    inBackground(() => {
      this.#telling = this.#tellAll().finally(() => {
        this.#telling = undefined;
      });
    });
  }

  /** Ends all leases, and sends the last report. Keeps the process alive for at most timeout milliseconds. */
  async flush(timeout: number): Promise<void> {
    const deadline = new Deadline(timeout);
    for (const lease of [...this.#held]) this.end(lease, "cancelled");
    const sent = async () => {
      await Promise.all([...this.#sending, this.#tell(timeout)]);
      await this.#reporting;
      await this.#report(deadline.left());
    };
    await within(sent(), timeout);
  }

  /** Stops the background work after a flush. */
  async close(timeout: number): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await this.flush(timeout);
    this.#stop.abort();
  }

  /** Ends leases until none is left. After an error, it tries again; leases whose end is not sent expire. */
  async #sendEnded(): Promise<void> {
    const { signal } = this.#stop;
    await Promise.resolve(); // more may end at once
    while (this.#ended.length > 0 && !signal.aborted) {
      const leases = this.#ended.splice(0, LEASES_AT_ONCE);
      try {
        await this.#callDone(leases, { signal });
      } catch (error) {
        if (codeOf(error) === "invalid_argument") continue; // it would be the answer to the next call, too
        this.#ended = leases.concat(this.#ended).slice(0, LEASES_WAITING);
        await pause(RETRY_PAUSE, signal);
      }
    }
  }

  async #callDone(leases: Ended[], options: Partial<ApiCall> = {}): Promise<void> {
    await this.#api.call({ method: "POST", path: "/v1/leases/done", body: { leases }, background: true, ...options });
  }

  async #tellAll(): Promise<void> {
    while (this.#failures.size > 0 && !this.#stop.signal.aborted) {
      await pause(TELL_PAUSE, this.#stop.signal);
      await this.#tell(CALL_TIMEOUT);
    }
  }

  /** Tells lbd of the connects that failed. */
  async #tell(timeout: number): Promise<void> {
    if (this.#failures.size === 0) return;
    const failures = [...this.#failures.values()];
    this.#failures = new Map();
    const clusters = [...new Set(failures.map(({ cluster }) => cluster))].map((cluster) => ({
      cluster,
      endpoints: failures.filter((one) => one.cluster === cluster).map(({ cluster: _, ...endpoint }) => endpoint),
    }));
    await this.#send({ reporter: this.#reporter, clusters }, timeout).catch(() => {});
  }

  #renewAfter(lease: Lease, time: number): void {
    if (!this.#held.has(lease)) return;
    lease.timer = setTimeout(async () => {
      const ttl = `${Math.ceil(lease.ttl)}ms`;
      const path = `/v1/leases/${encodeURIComponent(lease.id)}/renew`;
      try {
        await this.#api.call({ method: "POST", path, query: { ttl }, background: true, signal: this.#stop.signal });
        this.#renewAfter(lease, lease.ttl / 2);
      } catch (error) {
        // A lease that has expired is not renewed: its request goes on without it.
        if (codeOf(error) === "unknown_lease") this.#held.delete(lease);
        else this.#renewAfter(lease, Math.min(1000, lease.ttl / 4));
      }
    }, time).unref();
  }

  /** Sends the counts of all clusters with so many errors. Counts that could not be sent are part of the next report, if there is one. */
  async #report(timeout: number, errors = 0): Promise<void> {
    for (const { name, counts } of this.#clusters.values()) {
      if (counts.errors < errors) continue;
      const taken = counts.take();
      while (taken.endpoints.length > 0) {
        const part = { since: taken.since, endpoints: taken.endpoints.splice(0, REPORT_ENDPOINTS) };
        await this.#sendReport(name, part, timeout).catch(() => {
          if (!this.#closed) counts.giveBack(part);
        });
      }
    }
  }

  async #sendReport(cluster: string, { since, endpoints }: Taken, timeout: number): Promise<void> {
    const interval = Math.min(INTERVAL_MAX, Math.max(INTERVAL_MIN, performance.now() - since));
    const clusters = [{ cluster, endpoints }];
    await this.#send({ reporter: this.#reporter, interval: `${Math.round(interval)}ms`, clusters }, timeout);
  }

  async #send(body: Report, timeout: number): Promise<void> {
    const { signal } = this.#stop;
    await this.#api.call({ method: "POST", path: "/v1/reports", body, timeout, background: true, signal });
  }
}

const codeOf = (error: unknown) => (error instanceof LbdError ? error.code : "");

/** The body of POST /v1/reports. */
interface Report {
  readonly reporter: string;
  readonly interval?: string;
  readonly clusters: {
    readonly cluster: string;
    readonly endpoints: (EndpointReport | Omit<Failures, "cluster">)[];
  }[];
}
