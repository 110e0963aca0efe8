// Handlers of undici 6, which the fetch of Node 20 and 22 has, as handlers of undici 7, and back.

import type { Controller, Dispatch, Handler } from "./dispatch.js";

/** Handler of undici 6. */
export interface LegacyHandler {
  onConnect(abort: (reason: Error) => void, context?: unknown): void;
  onUpgrade?(status: number, headers: unknown, socket: NodeJS.EventEmitter): void;
  onResponseStarted?(): void;
  onHeaders?(status: number, headers: unknown, resume: () => void, message?: string): boolean | undefined;
  onData?(chunk: Uint8Array): boolean | undefined;
  onComplete?(trailers: unknown): void;
  onError(error: Error): void;
}

/** dispatch for handlers of both kinds; others and endpoints get handlers of the same kind. */
export function forBothKinds(
  others: Dispatch,
  endpoints: Dispatch,
  intercept: (others: Dispatch, endpoints: Dispatch) => Dispatch,
): Dispatch {
  const old =
    (inner: Dispatch): Dispatch =>
    (options, handler) =>
      inner(options, new Old(handler) as unknown as Handler);
  const modern = intercept(others, endpoints);
  const legacy = intercept(old(others), old(endpoints));
  return (options, handler) =>
    typeof handler.onRequestStart === "function"
      ? modern(options, handler)
      : legacy(options, new New(handler as unknown as LegacyHandler));
}

/** A handler of undici 6 as one of undici 7. */
class New implements Handler {
  readonly #handler: LegacyHandler;

  constructor(handler: LegacyHandler) {
    this.#handler = handler;
  }

  onRequestStart(controller: Controller, context: unknown): void {
    this.#handler.onConnect((reason) => controller.abort(reason), context);
  }

  onRequestUpgrade(_: Controller, status: number, headers: unknown, socket: NodeJS.EventEmitter): void {
    this.#handler.onUpgrade?.(status, headers, socket);
  }

  onResponseStarted(): void {
    this.#handler.onResponseStarted?.();
  }

  onResponseStart(controller: Controller, status: number, headers: unknown, message?: string): void {
    if (this.#handler.onHeaders?.(status, headers, () => controller.resume(), message) === false) controller.pause();
  }

  onResponseData(controller: Controller, chunk: Uint8Array): void {
    if (this.#handler.onData?.(chunk) === false) controller.pause();
  }

  onResponseEnd(_: Controller, trailers: unknown): void {
    this.#handler.onComplete?.(trailers);
  }

  onResponseError(_: Controller, error: Error): void {
    this.#handler.onError(error);
  }
}

/** A handler of undici 7 as one of undici 6. */
class Old implements LegacyHandler {
  readonly #handler: Handler;
  #controller!: OldController;

  constructor(handler: Handler) {
    this.#handler = handler;
  }

  onConnect(abort: (reason: Error) => void, context: unknown): void {
    this.#controller = new OldController(abort);
    this.#handler.onRequestStart(this.#controller, context);
  }

  onUpgrade(status: number, headers: unknown, socket: NodeJS.EventEmitter): void {
    this.#handler.onRequestUpgrade?.(this.#controller, status, headers, socket);
  }

  onResponseStarted(): void {
    this.#handler.onResponseStarted?.();
  }

  onHeaders(status: number, headers: unknown, resume: () => void, message?: string): boolean {
    this.#controller.onResume = resume;
    this.#handler.onResponseStart?.(this.#controller, status, headers, message);
    return !this.#controller.paused;
  }

  onData(chunk: Uint8Array): boolean {
    this.#handler.onResponseData?.(this.#controller, chunk);
    return !this.#controller.paused;
  }

  onComplete(trailers: unknown): void {
    this.#handler.onResponseEnd?.(this.#controller, trailers);
  }

  onError(error: Error): void {
    this.#handler.onResponseError?.(this.#controller, error);
  }
}

class OldController implements Controller {
  reason: Error | null = null;
  paused = false;
  onResume: (() => void) | undefined;
  readonly #abort: (reason: Error) => void;

  constructor(abort: (reason: Error) => void) {
    this.#abort = abort;
  }

  get aborted(): boolean {
    return this.reason !== null;
  }

  abort(reason: Error): void {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#abort(reason);
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    if (!this.paused) return;
    this.paused = false;
    this.onResume?.();
  }
}
