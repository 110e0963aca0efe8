import { isAddress } from "./address.js";
import { type Picked, TARGET } from "./ask.js";
import type { Counts } from "./counts.js";
import { CircuitBrokenError, DroppedError, type LbdError } from "./errors.js";

/** An endpoint, or the error of a pick that lbd refused. */
export class Element {
  readonly pick: Picked;
  readonly address: string;
  /** The one that lbd chose. */
  readonly cluster: string;
  /** Where requests are counted. */
  readonly counts: Counts | undefined;
  readonly error: LbdError | undefined;

  constructor(pick: Picked, cluster: string, counts?: Counts, error?: LbdError) {
    this.pick = pick;
    this.address = pick.address;
    this.cluster = cluster;
    this.counts = counts;
    this.error = error;
  }
}

/** The picks of one answer of lbd, shuffled. Requests take them in turn. */
export class Batch {
  /** What was asked. */
  readonly query: string;
  /** That of the cluster; undefined if lbd refused all picks, because then it does not say. */
  readonly generation: number | undefined;
  readonly made = performance.now();
  /** When lbd is asked again. */
  readonly until: number;
  /** The cluster of the first pick. */
  readonly cluster: string;
  readonly addresses: ReadonlySet<string>;
  /** How many elements were taken. */
  taken = 0;
  readonly #elements: Element[];
  #turn = 0;

  constructor(query: string, generation: number | undefined, elements: Element[], age: number) {
    this.query = query;
    this.generation = generation;
    this.until = this.made + age;
    this.cluster = elements[0]!.cluster;
    this.#elements = shuffle(elements);
    this.addresses = new Set(elements.filter(({ error }) => error === undefined).map(({ address }) => address));
  }

  /** The next element whose address is not avoided: of the others, each keeps its share. */
  take(avoids: (address: string) => boolean): Element {
    const { length } = this.#elements;
    this.taken++;
    for (let left = length; ; left--) {
      const element = this.#elements[this.#turn]!;
      this.#turn = (this.#turn + 1) % length;
      if (left === 0 || element.error !== undefined || !avoids(element.address)) return element;
    }
  }

  /** An endpoint that accept permits, drawn so that each keeps its share; undefined if there is none. */
  draw(accept: (address: string) => boolean): Element | undefined {
    const { length } = this.#elements;
    const random = () => Math.floor(Math.random() * length);
    const first = random();
    for (let i = -8; i < length; i++) {
      const element = this.#elements[i < 0 ? random() : (first + i) % length]!;
      if (element.error === undefined && accept(element.address)) return element;
    }
    return undefined;
  }
}

/** The batch in the answer to a pick with n, for what is asked of asked. Throws a TypeError if it is not one. */
export function batchOfAnswer(asked: AskedOf, query: string, answer: Record<string, unknown>, age: number): Batch {
  const { name: cluster } = asked;
  const { generation, picks } = answer;
  if (!Number.isSafeInteger(generation) || !Array.isArray(picks)) throw new TypeError("not a batch of picks");
  if (picks.length > PICKS_MAX) throw new TypeError(`more than ${PICKS_MAX} picks`);
  const elements = picks.map((pick: Picked | null) => {
    if (!isAddress(pick?.address)) throw new TypeError("a pick without a valid address");
    const chosen = pick.cluster || cluster;
    if (chosen.startsWith(TARGET)) throw new TypeError("a pick without a cluster");
    return new Element(pick, chosen, asked.countsOf(chosen));
  });
  for (const [category, count] of Object.entries(answer.dropped ?? {})) {
    const message = `cluster ${cluster}: drop category ${category} dropped the request`;
    refuse(elements, count, new DroppedError(message, { cluster, code: "dropped" }));
  }
  const message = `cluster ${cluster}: the circuit breaker is full`;
  const full = new CircuitBrokenError(message, { cluster, code: "circuit_broken" });
  refuse(elements, answer.circuit_broken ?? 0, full);
  if (elements.length === 0) throw new TypeError("a batch without picks");
  return new Batch(query, generation as number, elements, age);
}

/** The cluster or target that is asked. */
interface AskedOf {
  readonly name: string;
  countsOf(cluster: string): Counts;
}

export const refused = (error: LbdError) => new Element({ address: "" }, error.cluster, undefined, error);

const PICKS_MAX = 1000; // lbd gives no more picks at once

/** Adds an error for each of count picks. */
function refuse(elements: Element[], count: unknown, error: LbdError): void {
  if (!Number.isSafeInteger(count) || (count as number) < 0 || elements.length + (count as number) > PICKS_MAX) {
    throw new TypeError(`${count} picks with ${error.code}`);
  }
  const element = refused(error);
  for (let i = 0; i < (count as number); i++) elements.push(element);
}

function shuffle<T>(elements: T[]): T[] {
  for (let last = elements.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [elements[last], elements[other]] = [elements[other]!, elements[last]!];
  }
  return elements;
}
