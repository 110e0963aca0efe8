import { isAddress } from "./address.js";
import { CircuitBrokenError, DroppedError, type LbdError } from "./errors.js";

/** An address, or the error of a pick that lbd refused. */
export type Element = string | LbdError;

/** The picks of one answer of lbd, shuffled. Requests take them in turn. */
export class Batch {
  /** That of the cluster; undefined if lbd refused all picks, because then it does not say. */
  readonly generation: number | undefined;
  readonly made = performance.now();
  readonly #elements: Element[];
  readonly #addresses: Set<string>;
  #turn = 0;

  constructor(generation: number | undefined, elements: Element[]) {
    this.generation = generation;
    this.#elements = shuffle(elements);
    this.#addresses = new Set(elements.filter((element) => typeof element === "string"));
  }

  /** The next element. */
  take(): Element {
    const element = this.#elements[this.#turn]!;
    this.#turn = (this.#turn + 1) % this.#elements.length;
    return element;
  }

  /** The next address that was not tried; undefined if there is no other. */
  takeOther(tried: readonly string[]): string | undefined {
    const others = [...this.#addresses].some((address) => !tried.includes(address));
    while (others) {
      const element = this.take();
      if (typeof element === "string" && !tried.includes(element)) return element;
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
