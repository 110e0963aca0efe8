// One request of undici to a cluster.

import { asksOf, type Route } from "./ask.js";
import { type Attempt, IDEMPOTENT, RETRIED_STATUSES } from "./call.js";
import type { Client } from "./client.js";
import { endConnecting, whenConnecting } from "./connecting.js";
import { Deadline, TIMER_MAX } from "./deadline.js";
import type { Controller, Dispatch, DispatchOptions, Handler } from "./dispatch.js";
import { connectTimeoutError, orderError } from "./errors.js";
import { fieldsOf } from "./fields.js";
import { Limit } from "./limit.js";
import { type Answer, DRAIN_MAX, DRAIN_TIME, sendWithRetries, type Transport } from "./tries.js";

/** Sends requests to hosts of clusters to the endpoints that lbd picks, with endpoints, and the others as others does. */
export function intercept(client: Client, others: Dispatch, endpoints: Dispatch): Dispatch {
  return (options, handler) => {
    const { origin = "", method } = options;
    const url = typeof origin !== "string" ? origin : URL.canParse(origin) ? new URL(origin) : undefined;
    const route = url && /^https?:$/.test(url.protocol) ? client.routeOf(url.hostname) : undefined;
    if (url === undefined || route === undefined || method === "CONNECT") return others(options, handler);
    void new Exchange(client, endpoints, options, url, handler).run(route, url);
    return true;
  };
}

/** A request with all of its tries; the controller that handler gets. */
class Exchange implements Transport<Try>, Controller {
  readonly handler: Handler;
  paused = false;
  readonly #client: Client;
  readonly #dispatch: Dispatch;
  readonly #options: DispatchOptions;
  readonly #protocol: string;
  readonly #repeatable: boolean;
  readonly #limit: Limit;
  #try: Try | undefined;

  constructor(client: Client, dispatch: Dispatch, options: DispatchOptions, url: URL, handler: Handler) {
    const { method, body, headersTimeout } = options;
    const fields = fieldsOf(options.headers, url.host);
    this.handler = handler;
    this.#client = client;
    this.#dispatch = dispatch;
    this.#options = { ...options, headers: fields.headers };
    this.#protocol = url.protocol;
    const idempotent = options.idempotent ?? (IDEMPOTENT.has(method.toUpperCase()) || fields.idempotencyKey);
    const bytes = typeof body === "string" || body instanceof Uint8Array || body instanceof ArrayBuffer;
    this.#repeatable = idempotent && (body == null || bytes);
    this.#limit = new Limit(new Deadline((headersTimeout ?? client.timeout) || Number.POSITIVE_INFINITY));
  }

  async run(route: Route, url: URL): Promise<void> {
    const { path = "/", headers, lbd, method } = this.#options;
    try {
      this.handler.onRequestStart(this, {});
      const asks = asksOf(route, lbd, path, headers);
      const request = { lbd, method, url };
      const call = this.#client.call(route.name, this.#limit.deadline, this.#repeatable, asks, request);
      const last = await sendWithRetries(call, this.#limit, this);
      last.release();
    } catch (error) {
      this.handler.onResponseError?.(this, error as Error);
    } finally {
      this.#limit.release();
    }
  }

  send(attempt: Attempt): Promise<Try> {
    return new Promise((resolve, reject) => {
      const current = new Try(this, attempt, resolve, reject);
      this.#try = current;
      this.#limit.end = (reason) => current.giveUp(reason);
      if (this.#limit.reason !== undefined) return;
      try {
        this.#dispatch({ ...this.#options, origin: `${this.#protocol}//${attempt.address}` }, current);
      } catch (error) {
        current.giveUp(error as Error);
      }
    });
  }

  get bodyFailed(): boolean {
    const { body } = this.#options;
    return typeof body === "object" && body !== null && "errored" in body && body.errored != null;
  }

  get aborted(): boolean {
    return this.reason !== null;
  }

  get reason(): Error | null {
    return this.#limit.reason ?? this.#try?.controller?.reason ?? null;
  }

  get rawHeaders(): unknown {
    return this.#try?.controller?.rawHeaders;
  }

  get rawTrailers(): unknown {
    return this.#try?.controller?.rawTrailers;
  }

  abort(reason: Error): void {
    if (this.#try?.open) this.#try.controller?.abort(reason);
    else this.#limit.abort(reason);
  }

  pause(): void {
    this.paused = true;
    this.#try?.controller?.pause();
  }

  resume(): void {
    this.paused = false;
    this.#try?.controller?.resume();
  }
}

/** The handler of one try. */
class Try implements Handler, Answer {
  status = 0;
  controller: Controller | undefined;
  /** Whether the handler of the request has the headers. */
  open = false;
  readonly #exchange: Exchange;
  readonly #attempt: Attempt;
  readonly #resolve: (answer: Try) => void;
  readonly #reject: (error: Error) => void;
  /** The rest is of no interest: the request goes on without this try. */
  #over: Error | undefined;
  /** Headers with a status after which there may be another try. */
  #held: { readonly headers: unknown; readonly message: string | undefined } | undefined;
  /** How the response ended while it was held. */
  #end: { readonly trailers: unknown } | undefined;
  #error: Error | undefined;
  /** When its connect began. */
  #began: number | undefined;
  #connecting: NodeJS.Timeout | undefined;
  /** Ends the rest of a discarded response. */
  #draining: NodeJS.Timeout | undefined;
  #drained = 0;

  constructor(exchange: Exchange, attempt: Attempt, resolve: (answer: Try) => void, reject: (error: Error) => void) {
    this.#exchange = exchange;
    this.#attempt = attempt;
    this.#resolve = resolve;
    this.#reject = reject;
    whenConnecting(attempt.address, this.#connects);
  }

  readonly #connects = (): void => {
    const { connectTime, address } = this.#attempt;
    endConnecting(address, this.#connects);
    this.#began = performance.now();
    if (connectTime > TIMER_MAX) return;
    const late = () => {
      if (this.#connecting === undefined) return;
      this.#attempt.cut = true;
      this.giveUp(connectTimeoutError(address, connectTime));
    };
    // If this process was busy, the connect has succeeded as well, and its event comes between these two.
    this.#connecting = setTimeout(() => setImmediate(late), connectTime).unref();
  };

  /** The connect has ended. */
  #connected(): void {
    endConnecting(this.#attempt.address, this.#connects);
    clearTimeout(this.#connecting);
    this.#connecting = undefined;
  }

  /** Ends the try, which may have no connection yet. */
  giveUp(reason: Error): void {
    if (this.open) return;
    this.#connected();
    this.#over = reason;
    this.controller?.abort(reason);
    this.#reject(reason);
  }

  discard(): void {
    this.#attempt.finish();
    const reason = new Error("the request is sent to another endpoint");
    this.#over = reason;
    if (this.#end !== undefined || this.#error !== undefined) return;
    this.#draining = setTimeout(() => this.controller?.abort(reason), DRAIN_TIME).unref();
    this.controller?.resume();
  }

  /** Passes on what has been held. */
  release(): void {
    if (this.#held === undefined || this.open) return;
    this.open = true;
    if (this.#error !== undefined) throw this.#error;
    const { headers, message } = this.#held;
    const { handler } = this.#exchange;
    handler.onResponseStart?.(this.#exchange, this.status, headers, message);
    if (this.#end !== undefined) handler.onResponseEnd?.(this.#exchange, this.#end.trailers);
    else if (!this.#exchange.paused) this.controller?.resume();
  }

  onRequestStart(controller: Controller, context: unknown): void {
    this.#connected();
    if (typeof context === "object" && context !== null && "history" in context) this.giveUp(orderError());
    // undici calls this just before it sends. abort would destroy the body, which another try may be sending.
    if (this.#over !== undefined) throw this.#over;
    this.controller = controller;
    this.#attempt.connected(this.#began && performance.now() - this.#began);
  }

  onRequestUpgrade(_: Controller, status: number, headers: unknown, socket: NodeJS.EventEmitter): void {
    this.#answered(status);
    this.open = true;
    socket.once("close", () => this.#attempt.finish());
    this.#exchange.handler.onRequestUpgrade?.(this.#exchange, status, headers, socket);
  }

  onResponseStarted(): void {
    this.#exchange.handler.onResponseStarted?.();
  }

  onResponseStart(controller: Controller, status: number, headers: unknown, message?: string): void {
    if (this.#over !== undefined) return;
    if (status >= 200) this.#answered(status);
    if (RETRIED_STATUSES.has(status)) {
      this.#held = { headers, message };
      controller.pause();
    } else {
      this.open = status >= 200;
      this.#exchange.handler.onResponseStart?.(this.#exchange, status, headers, message);
    }
  }

  onResponseData(_: Controller, chunk: Uint8Array): void {
    if (this.open) this.#exchange.handler.onResponseData?.(this.#exchange, chunk);
    else if (this.#over !== undefined) {
      this.#drained += chunk.length;
      if (this.#drained > DRAIN_MAX) this.controller?.abort(this.#over);
    }
  }

  onResponseEnd(_: Controller, trailers: unknown): void {
    clearTimeout(this.#draining);
    this.#attempt.finish();
    if (this.open) this.#exchange.handler.onResponseEnd?.(this.#exchange, trailers);
    else this.#end = { trailers };
  }

  onResponseError(_: Controller, error: Error): void {
    this.#connected();
    clearTimeout(this.#draining);
    if (this.#over !== undefined) return;
    if (this.open || this.#held) this.#attempt.finish();
    if (this.open) this.#exchange.handler.onResponseError?.(this.#exchange, error);
    else if (this.#held) this.#error = error;
    else this.#reject(error);
  }

  #answered(status: number): void {
    this.status = status;
    this.#attempt.answered(status);
    this.#resolve(this);
  }
}
