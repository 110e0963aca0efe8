// What a client tells its program.

import { reasonOf } from "./api.js";
import type { Choice } from "./ask.js";
import type { Outcome } from "./counts.js";
import { LbdError } from "./errors.js";

/** A try of a request that has ended. */
export interface EndedAttempt extends Choice {
  readonly outcome: Outcome;
  /** Milliseconds until the status and the headers were there, or the try had failed. */
  readonly duration: number;
  readonly method: string;
  /** That of the URL of the request, such as http://orders.lbd. */
  readonly origin: string;
  readonly status: number | undefined;
  readonly error: unknown;
}

/**
 * How calls to lbd end. unreachable: one has failed. stale: lbd is unreachable, and the last batch is older than
 * staleFor. recovered: lbd has answered again.
 */
export type State = "unreachable" | "stale" | "recovered";

/** Such as console. */
export interface Logger {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
}

export interface HookSettings {
  readonly onAttempt: ((attempt: EndedAttempt) => void) | undefined;
  readonly onState: ((state: State) => void) | undefined;
  readonly logger: Logger | undefined;
}

export class Hooks {
  closed = false;
  /** Whether the program wants to know of tries. */
  readonly attempts: boolean;
  readonly #settings: HookSettings;
  #state: State | undefined;

  constructor(settings: HookSettings) {
    this.#settings = settings;
    this.attempts = (settings.onAttempt ?? settings.logger) !== undefined;
  }

  attempted(ended: EndedAttempt): void {
    const { cluster, attempt, address, outcome, duration } = ended;
    const { logger, onAttempt } = this.#settings;
    logger?.debug(`lbd: cluster ${cluster}: try ${attempt} at ${address}: ${outcome} in ${duration.toFixed(1)} ms`);
    this.#call(onAttempt, ended);
  }

  /** A call to lbd has ended. */
  reached(error?: unknown): void {
    const away = this.#state === "unreachable" || this.#state === "stale";
    const answered = error === undefined || error instanceof LbdError;
    if (away === answered) this.#changed(away ? "recovered" : "unreachable", error);
  }

  /** A request found that the last batch is too old. */
  stale(error: LbdError): void {
    if (this.#state === "unreachable") this.#changed("stale", error);
  }

  #changed(state: State, error: unknown): void {
    if (this.closed) return;
    this.#state = state;
    const { logger, onState } = this.#settings;
    if (state === "recovered") logger?.info("lbd: lbd answers again");
    else logger?.warn(`lbd: ${state}: ${reasonOf(error)}`);
    this.#call(onState, state);
  }

  /** Calls a hook, which may be an async function. Its error breaks nothing. */
  #call<T>(hook: ((value: T) => void) | undefined, value: T): void {
    if (hook === undefined) return;
    const call = async () => hook(value);
    call().catch((error: unknown) => this.#settings.logger?.warn(`lbd: a hook has failed: ${reasonOf(error)}`));
  }
}
