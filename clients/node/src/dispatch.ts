// What undici and the fetch of Node call dispatchers and handlers, as far as this client uses it.

import type { Ask } from "./ask.js";

export interface DispatchOptions {
  readonly origin?: string | URL;
  readonly path?: string;
  readonly method: string;
  readonly body?: unknown;
  readonly headers?: unknown;
  readonly headersTimeout?: number | null;
  readonly idempotent?: boolean;
  readonly lbd?: Ask;
}

export type Dispatch = (options: DispatchOptions, handler: Handler) => boolean;

export interface Controller {
  readonly aborted: boolean;
  readonly paused: boolean;
  readonly reason: Error | null;
  readonly rawHeaders?: unknown;
  readonly rawTrailers?: unknown;
  abort(reason: Error): void;
  pause(): void;
  resume(): void;
}

/** Handler of undici 7. The types of headers do not matter: they are passed on. */
export interface Handler {
  onRequestStart(controller: Controller, context: unknown): void;
  onRequestUpgrade?(controller: Controller, status: number, headers: unknown, socket: NodeJS.EventEmitter): void;
  onResponseStarted?(): void;
  onResponseStart?(controller: Controller, status: number, headers: unknown, message?: string): void;
  onResponseData?(controller: Controller, chunk: Uint8Array): void;
  onResponseEnd?(controller: Controller, trailers: unknown): void;
  onResponseError?(controller: Controller, error: Error): void;
}
