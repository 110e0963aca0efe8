// How the requests to the endpoints of one cluster ended, for POST /v1/reports.

/** A try that is unreachable was not sent: it is no request. */
export type Outcome = "success" | "error" | "cancelled" | "unreachable";

/** One endpoint in a report. */
export interface EndpointReport {
  address: string;
  requests: number;
  errors: number;
  cancelled: number;
  in_flight_seconds: number;
  latency_seconds: number;
}

/** Counts since a time of performance.now(). */
export interface Taken {
  readonly since: number;
  readonly endpoints: EndpointReport[];
}

/** Milliseconds after which counts that could not be sent are forgotten. */
export const REPORT_AGE = 60_000;

/** What happened at one endpoint since the last report. Times are in milliseconds. */
class Count {
  requests = 0;
  errors = 0;
  cancelled = 0;
  latency = 0;
  inFlightTime = 0;
  inFlight = 0;
  #since: number;

  constructor(now: number) {
    this.#since = now;
  }

  advance(now: number): void {
    this.inFlightTime += this.inFlight * (now - this.#since);
    this.#since = now;
  }
}

/** The counts of one cluster. */
export class Counts {
  readonly #now: () => number;
  readonly #endpoints = new Map<string, Count>();
  #since: number;
  /** Requests since the counts were taken that ended so. */
  errors = 0;

  constructor(now = () => performance.now()) {
    this.#now = now;
    this.#since = now();
  }

  /** Counts a request as in flight, and returns the time. */
  begin(address: string): number {
    const now = this.#now();
    const count = this.#count(address, now);
    count.advance(now);
    count.inFlight++;
    return now;
  }

  /** Counts the outcome of a request that is in flight since begin. */
  ended(address: string, outcome: Outcome, begin: number): void {
    if (outcome === "unreachable") return;
    const now = this.#now();
    const count = this.#count(address, now);
    count.requests++;
    count.latency += now - begin;
    if (outcome === "error") {
      count.errors++;
      this.errors++;
    }
    if (outcome === "cancelled") count.cancelled++;
  }

  /** Counts a request as no longer in flight. */
  finish(address: string): void {
    const now = this.#now();
    const count = this.#count(address, now);
    count.advance(now);
    count.inFlight--;
  }

  /** Takes the counts since they were taken last. */
  take(): Taken {
    const now = this.#now();
    const taken: Taken = { since: this.#since, endpoints: [] };
    this.#since = now;
    this.errors = 0;
    for (const [address, count] of this.#endpoints) {
      count.advance(now);
      if (count.requests > 0 || count.inFlightTime > 0) taken.endpoints.push(report(address, count));
      if (count.inFlight === 0) {
        this.#endpoints.delete(address);
      } else {
        const rest = new Count(now);
        rest.inFlight = count.inFlight;
        this.#endpoints.set(address, rest);
      }
    }
    return taken;
  }

  /** Adds counts that could not be sent to the next report, unless they are too old. */
  giveBack({ since, endpoints }: Taken): void {
    const now = this.#now();
    if (now - since > REPORT_AGE) return;
    this.#since = Math.min(this.#since, since);
    for (const endpoint of endpoints) {
      const count = this.#count(endpoint.address, now);
      count.requests += endpoint.requests;
      count.errors += endpoint.errors;
      this.errors += endpoint.errors;
      count.cancelled += endpoint.cancelled;
      count.inFlightTime += endpoint.in_flight_seconds * 1000;
      count.latency += endpoint.latency_seconds * 1000;
    }
  }

  #count(address: string, now: number): Count {
    let count = this.#endpoints.get(address);
    if (count === undefined) {
      count = new Count(now);
      this.#endpoints.set(address, count);
    }
    return count;
  }
}

function report(address: string, count: Count): EndpointReport {
  return {
    address,
    requests: count.requests,
    errors: count.errors,
    cancelled: count.cancelled,
    in_flight_seconds: seconds(count.inFlightTime),
    latency_seconds: seconds(count.latency),
  };
}

const seconds = (milliseconds: number) => Math.round(milliseconds * 1000) / 1e6;
