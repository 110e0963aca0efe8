import { isAddress } from "./address.js";
import { CircuitBrokenError, DroppedError, type LbdError } from "./errors.js";

/** An address, or the error of a pick that lbd refused. */
export type Element = string | LbdError;

/** The picks of one answer of lbd, shuffled. Requests take them in turn. */
export class Batch {
  /** That of the cluster; undefined if lbd refused all picks, because then it does not say. */
  readonly generation: number | undefined;
  readonly made = performance.now();
  readonly addresses: ReadonlySet<string>;
  /** How many elements were taken. */
  taken = 0;
  readonly #elements: Element[];
  #turn = 0;

  constructor(generation: number | undefined, elements: Element[]) {
    this.generation = generation;
    this.#elements = shuffle(elements);
    this.addresses = new Set(elements.filter((element) => typeof element === "string"));
  }

  /** The next element whose address is not avoided: of the others, each keeps its share. */
  take(avoids: (address: string) => boolean): Element {
    const { length } = this.#elements;
    this.taken++;
    for (let left = length; ; left--) {
      const element = this.#elements[this.#turn]!;
      this.#turn = (this.#turn + 1) % length;
      if (left === 0 || typeof element !== "string" || !avoids(element)) return element;
    }
  }

  /** An address that accept permits, drawn so that each keeps its share; undefined if there is none. */
  draw(accept: (address: string) => boolean): string | undefined {
    const { length } = this.#elements;
    const random = () => Math.floor(Math.random() * length);
    const first = random();
    for (let i = -8; i < length; i++) {
      const element = this.#elements[i < 0 ? random() : (first + i) % length]!;
      if (typeof element === "string" && accept(element)) return element;
    }
    return undefined;
  }
}

/** The batch in the answer to a pick with n. Throws a TypeError if it is not one. */
export function batchOfAnswer(cluster: string, answer: Record<string, unknown>): Batch {
  const { generation, picks } = answer;
  if (!Number.isSafeInteger(generation) || !Array.isArray(picks)) throw new TypeError("not a batch of picks");
  if (picks.length > PICKS_MAX) throw new TypeError(`more than ${PICKS_MAX} picks`);
  const elements: Element[] = picks.map((pick: { address?: unknown } | null) => {
    if (!isAddress(pick?.address)) throw new TypeError("a pick without a valid address");
    return pick.address;
  });
  for (const [category, count] of Object.entries(answer.dropped ?? {})) {
    const message = `cluster ${cluster}: drop category ${category} dropped the request`;
    refuse(elements, count, new DroppedError(message, { cluster, code: "dropped" }));
  }
  const message = `cluster ${cluster}: the circuit breaker is full`;
  const full = new CircuitBrokenError(message, { cluster, code: "circuit_broken" });
  refuse(elements, answer.circuit_broken ?? 0, full);
  if (elements.length === 0) throw new TypeError("a batch without picks");
  return new Batch(generation as number, elements);
}

const PICKS_MAX = 1000; // lbd gives no more picks at once

/** Adds an error for each of count picks. */
function refuse(elements: Element[], count: unknown, error: LbdError): void {
  if (!Number.isSafeInteger(count) || (count as number) < 0 || elements.length + (count as number) > PICKS_MAX) {
    throw new TypeError(`${count} picks with ${error.code}`);
  }
  for (let i = 0; i < (count as number); i++) elements.push(error);
}

function shuffle<T>(elements: T[]): T[] {
  for (let last = elements.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [elements[last], elements[other]] = [elements[other]!, elements[last]!];
  }
  return elements;
}
