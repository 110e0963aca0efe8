// What a client tells lbd in the background: reports, and the ends and renewals of leases.

import { type Api, CALL_TIMEOUT, Unreachable } from "./api.js";
import { inBackground } from "./background.js";
import type { Cluster } from "./cluster.js";
import type { EndpointReport, Outcome, Taken } from "./counts.js";
import { Deadline, pause, within } from "./deadline.js";

/** Leases that one call ends, at most. */
const LEASES_AT_ONCE = 1000;

/** Ends of leases that wait for lbd, at most. The other leases expire. */
const LEASES_WAITING = 100_000;

/** Endpoints in one report, at most. */
const REPORT_ENDPOINTS = 1000;

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

export class Sender {
  readonly #api: Api;
  readonly #clusters: ReadonlyMap<string, Cluster>;
  readonly #reporter: string;
  readonly #interval: number;
  readonly #stop = new AbortController();
  readonly #held = new Set<Lease>();
  #ended: { id: string; outcome: Outcome }[] = [];
  #sending: Promise<void> | undefined;
  #reporting: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(api: Api, clusters: ReadonlyMap<string, Cluster>, reporter: string, interval: number) {
    this.#api = api;
    this.#clusters = clusters;
    this.#reporter = reporter;
    this.#interval = interval;
  }

  /** Begins to send reports. */
  start(): void {
    if (this.#timer !== undefined || this.#stop.signal.aborted) return;
    inBackground(() => {
      this.#timer = setInterval(() => {
        this.#reporting ??= this.#report(CALL_TIMEOUT, true).finally(() => {
          this.#reporting = undefined;
        });
      }, this.#interval).unref();
    });
  }

  /** Renews a lease until it is ended. */
  hold(lease: Lease): void {
    this.#held.add(lease);
    inBackground(() => this.#renewAfter(lease, lease.ttl / 2));
  }

  /** Ends a lease in the background. */
  end(lease: Lease, outcome: Outcome): void {
    clearTimeout(lease.timer);
    if (!this.#held.delete(lease) || this.#stop.signal.aborted || this.#ended.length >= LEASES_WAITING) return;
    this.#ended.push({ id: lease.id, outcome });
    if (this.#sending !== undefined) return;
    inBackground(() => {
      this.#sending = this.#sendEnded().finally(() => {
        this.#sending = undefined;
      });
    });
  }

  /** Ends all leases, and sends the last report. Keeps the process alive for at most timeout milliseconds. */
  async flush(timeout: number): Promise<void> {
    const deadline = new Deadline(timeout);
    for (const lease of [...this.#held]) this.end(lease, "cancelled");
    const sent = async () => {
      await this.#sending;
      await this.#reporting;
      await this.#report(deadline.left(), false);
    };
    await within(sent(), timeout);
  }

  /** Stops the background work. */
  stop(): void {
    clearInterval(this.#timer);
    this.#stop.abort();
  }

  /** Ends leases until none is left. While lbd is unreachable, it tries again; leases whose end is not sent expire. */
  async #sendEnded(): Promise<void> {
    const { signal } = this.#stop;
    while (this.#ended.length > 0 && !signal.aborted) {
      const leases = this.#ended.splice(0, LEASES_AT_ONCE);
      try {
        await this.#api.call({ method: "POST", path: "/v1/leases/done", body: { leases }, background: true, signal });
      } catch (error) {
        if (!(error instanceof Unreachable)) continue; // lbd does not know them
        this.#ended = leases.concat(this.#ended).slice(0, LEASES_WAITING);
        await pause(RETRY_PAUSE, signal);
      }
    }
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
        if (error instanceof Unreachable) this.#renewAfter(lease, Math.min(1000, lease.ttl / 4));
        else this.#held.delete(lease);
      }
    }, time).unref();
  }

  /** Sends the counts of all clusters. With keep, counts that could not be sent are part of the next report. */
  async #report(timeout: number, keep: boolean): Promise<void> {
    for (const { name, counts } of this.#clusters.values()) {
      const taken = counts.take();
      while (taken.endpoints.length > 0) {
        const part = { since: taken.since, endpoints: taken.endpoints.splice(0, REPORT_ENDPOINTS) };
        await this.#sendReport(name, part, timeout).catch(() => {
          if (keep) counts.giveBack(part);
        });
      }
    }
  }

  async #sendReport(cluster: string, { since, endpoints }: Taken, timeout: number): Promise<void> {
    const interval = Math.min(INTERVAL_MAX, Math.max(INTERVAL_MIN, performance.now() - since));
    const body: Report = {
      reporter: this.#reporter,
      interval: `${Math.round(interval)}ms`,
      clusters: [{ cluster, endpoints }],
    };
    await this.#api.call({
      method: "POST",
      path: "/v1/reports",
      body,
      timeout,
      background: true,
      signal: this.#stop.signal,
    });
  }
}

/** The body of POST /v1/reports. */
interface Report {
  readonly reporter: string;
  readonly interval: string;
  readonly clusters: { readonly cluster: string; readonly endpoints: EndpointReport[] }[];
}
