// What a client remembers of the addresses of a cluster to which tries have failed, and of its connects.

/** Milliseconds for which an address is set aside. */
const ASIDE_FIRST = 1000;
export const ASIDE_MAX = 10_000;

/** Tries in a row that were sent and got no answer, after which an address is set aside. */
const UNKNOWN_ENDS = 3;

/** Milliseconds after which an address is forgotten, in the modes without a batch. */
export const FORGET_TIME = 300_000;

/** What is remembered of an address. It is set aside if pause is not 0. */
interface Aside {
  /** Ends in a row without an answer. */
  unknown: number;
  pause: number;
  /** When the next request is a trial. */
  until: number;
  /** Whether the trial is under way. */
  trial: boolean;
}

/** The addresses of a cluster that are set aside, or that may be. */
export class Asides {
  readonly #now: () => number;
  readonly #addresses = new Map<string, Aside>();

  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** How many addresses it remembers. */
  get size(): number {
    return this.#addresses.size;
  }

  /** Whether requests avoid an address. When its time is over, one request is permitted: the trial. */
  avoids(address: string): boolean {
    const known = this.#addresses.get(address);
    if (known === undefined || known.pause === 0) return false;
    const now = this.#now();
    if (now < known.until) return true;
    known.trial = true;
    known.until = now + ASIDE_MAX; // the next one if this never ends
    return false;
  }

  /** The addresses that requests avoid. The trial of another one begins when lbd has picked it. */
  avoided(): string[] {
    const now = this.#now();
    for (const [address, { until }] of this.#addresses) {
      if (now > until + FORGET_TIME) this.#addresses.delete(address);
    }
    return [...this.#addresses].filter(([, { pause, until }]) => pause > 0 && now < until).map(([address]) => address);
  }

  /** A try was not sent, or got no answer. most is the number of addresses that may be set aside. */
  failed(address: string, sent: boolean, most: number): void {
    const now = this.#now();
    let known = this.#addresses.get(address);
    if (known === undefined) {
      known = { unknown: 0, pause: 0, until: now, trial: false };
      this.#addresses.set(address, known);
    }
    if (sent && ++known.unknown < UNKNOWN_ENDS) {
      if (known.trial) Object.assign(known, { pause: 0, trial: false }); // it was connected
      return;
    }
    const aside = [...this.#addresses.values()].filter(({ pause }) => pause > 0).length;
    if (known.pause === 0 && aside < most) known.pause = ASIDE_FIRST;
    else if (known.trial) known.pause = Math.min(2 * known.pause, ASIDE_MAX);
    else return; // there are too many, or the request began before
    known.trial = false;
    known.until = now + known.pause * (0.8 + Math.random() * 0.4);
  }

  /** An endpoint has answered. */
  answered(address: string): void {
    this.#addresses.delete(address);
  }

  /** Forgets the other addresses. */
  keep(addresses: ReadonlySet<string>): void {
    for (const address of this.#addresses.keys()) if (!addresses.has(address)) this.#addresses.delete(address);
  }
}

/** Milliseconds that a connect has while there are other endpoints, at least. */
const HURRY_MIN = 250;

/** The milliseconds that the last successful connects of a cluster took. */
export class Connects {
  readonly #took: number[] = [];
  /** Milliseconds that a connect has while there are other endpoints. */
  limit = HURRY_MIN;

  add(took: number): void {
    this.#took.push(took);
    if (this.#took.length > 16) this.#took.shift();
    this.limit = Math.max(HURRY_MIN, 3 * Math.max(...this.#took));
  }
}
