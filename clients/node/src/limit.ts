import { type Deadline, TIMER_MAX } from "./deadline.js";
import { timeoutError } from "./errors.js";

/** Why a request has to end before its response does: its deadline, or the signal of its caller. */
export class Limit {
  readonly deadline: Deadline;
  /** Set when the request has to end. */
  reason: Error | undefined;
  #end: ((reason: Error) => void) | undefined;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort = () => this.abort(this.#signal?.reason);

  constructor(deadline: Deadline, signal?: AbortSignal) {
    this.deadline = deadline;
    this.#signal = signal;
    if (signal?.aborted) this.reason = toError(signal.reason);
    else signal?.addEventListener("abort", this.#onAbort);
    const left = deadline.left();
    // The sockets of the request keep the process alive.
    if (left <= TIMER_MAX) this.#timer = setTimeout(() => this.abort(timeoutError()), left).unref();
  }

  /** Calls end with the reason, at once if there is one already. Replaces the end before. */
  set end(end: ((reason: Error) => void) | undefined) {
    this.#end = end;
    if (this.reason !== undefined) end?.(this.reason);
  }

  /** The result of promise. If the request has to end first, rejects with the reason, and passes the result to late. */
  race<T>(promise: Promise<T>, late: (result: T) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      this.end = reject;
      promise.then((result) => (this.reason === undefined ? resolve(result) : late(result)), reject);
    });
  }

  /** The request has ended. */
  release(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#end = undefined;
  }

  /** Says that the request has to end. */
  abort(reason: unknown): void {
    if (this.reason !== undefined) return;
    this.reason = toError(reason);
    this.#end?.(this.reason);
  }
}

/** The reason of a signal, which may be of any type. */
const toError = (reason: unknown) => (reason instanceof Error ? reason : new Error("aborted", { cause: reason }));
