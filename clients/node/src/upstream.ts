// Requests to upstreams with node:http.

import http from "node:http";
import https from "node:https";
import { isIP } from "node:net";
import { Readable } from "node:stream";

import { type Ask, asksOf } from "./ask.js";
import { type Attempt, IDEMPOTENT } from "./call.js";
import type { Client } from "./client.js";
import { Deadline, TIMER_MAX } from "./deadline.js";
import { connectTimeoutError } from "./errors.js";
import { Limit } from "./limit.js";
import { Response } from "./response.js";
import { type Answer, DRAIN_MAX, DRAIN_TIME, sendWithRetries, type Transport } from "./tries.js";

export type { Response };

export interface RequestOptions {
  /** Default: GET. */
  method?: string | undefined;
  headers?: Readonly<Record<string, string | string[] | undefined>> | undefined;
  /** A string or bytes, or else a stream or iterable of bytes, which is not sent again. */
  body?: string | Uint8Array | Readable | AsyncIterable<unknown> | Iterable<unknown> | null | undefined;
  /** Ends the request. */
  signal?: AbortSignal | undefined;
  /** Deadline of all tries and the body together, in milliseconds. Default: that of the client; Infinity for none. */
  timeout?: number | undefined;
  /** Whether retries are permitted. Default: by the method, or a header Idempotency-Key. */
  idempotent?: boolean | undefined;
  /** What the request asks of lbd. */
  lbd?: Ask | undefined;
}

/** Length of a body that is sent with the headers in one write, at most. */
const UNSENT_MAX = 4096;

const AGENT = { keepAlive: true, maxFreeSockets: 32, timeout: 30_000 };

/** The connections of one client to upstreams. */
export class Upstreams {
  readonly #client: Client;
  readonly #connectTimeout: number;
  readonly #http = new http.Agent(AGENT);
  readonly #https = new https.Agent(AGENT);

  constructor(client: Client, connectTimeout: number) {
    this.#client = client;
    this.#connectTimeout = Math.min(connectTimeout, TIMER_MAX);
  }

  /** Closes the idle connections; the others are closed after their responses. */
  close(): void {
    for (const agent of [this.#http, this.#https]) {
      agent.maxFreeSockets = 0;
      for (const socket of Object.values(agent.freeSockets).flat()) socket?.destroy();
    }
  }

  async request(url: string | URL, options: RequestOptions): Promise<Response> {
    const target = new URL(url);
    if (!/^https?:$/.test(target.protocol)) throw new TypeError(`url: ${target.protocol} is not http: or https:`);
    const limit = new Limit(new Deadline(options.timeout ?? this.#client.timeout), options.signal);
    let upstream: Upstream | undefined;
    try {
      upstream = new Upstream(target, options, target.protocol === "https:" ? this.#https : this.#http, limit);
      const route = this.#client.routeOf(target.hostname);
      if (route === undefined) return follow(await upstream.sendTo(target.host), limit);
      upstream.connectTimeout = this.#connectTimeout;
      const asks = asksOf(route, options.lbd, target.pathname, upstream.headers);
      const request = { lbd: options.lbd, method: upstream.method, url: target };
      const call = this.#client.call(route.name, limit.deadline, upstream.repeatable, asks, request);
      const { message } = await sendWithRetries(call, limit, upstream);
      return follow(message, limit);
    } catch (error) {
      limit.release();
      upstream?.discard();
      throw error;
    }
  }
}

interface Received extends Answer {
  readonly message: http.IncomingMessage;
}

/** One request of node:http, with all of its tries. */
class Upstream implements Transport<Received> {
  readonly repeatable: boolean;
  readonly method: string;
  readonly headers: http.OutgoingHttpHeaders = {};
  connectTimeout = TIMER_MAX;
  readonly #options: http.RequestOptions & https.RequestOptions;
  readonly #tls: boolean;
  readonly #bytes: string | Uint8Array | undefined;
  /** A body that is no bytes. Nothing of it is read before there is a connection. */
  readonly #stream: Readable | undefined;
  readonly #limit: Limit;
  bodyFailed = false;
  #request: http.ClientRequest | undefined;

  constructor(target: URL, options: RequestOptions, agent: http.Agent, limit: Limit) {
    const { method = "GET", headers = {}, body, idempotent } = options;
    this.#limit = limit;
    this.#tls = target.protocol === "https:";
    if (typeof body === "string" || body instanceof Uint8Array) this.#bytes = body;
    else if (body != null) this.#stream = body instanceof Readable ? body : Readable.from(body);
    const fields = this.headers;
    for (const [name, value] of Object.entries(headers)) if (value !== undefined) fields[name.toLowerCase()] = value;
    fields.host ??= target.host;
    if (body != null && fields["content-length"] === undefined) {
      // node:http sends neither with a GET or DELETE.
      if (this.#bytes !== undefined) fields["content-length"] = Buffer.byteLength(this.#bytes);
      else fields["transfer-encoding"] ??= "chunked";
    }
    this.method = method.toUpperCase();
    const harmless = idempotent ?? (IDEMPOTENT.has(this.method) || fields["idempotency-key"] !== undefined);
    this.repeatable = harmless && this.#stream === undefined;
    const servername = isIP(target.hostname) === 0 ? { servername: target.hostname } : undefined;
    const auth = target.username && { auth: decodeURIComponent(`${target.username}:${target.password}`) };
    this.#options = {
      ...servername,
      ...auth,
      agent,
      method: this.method,
      path: target.pathname + target.search,
      headers: fields,
    };
  }

  async send(attempt: Attempt): Promise<Received> {
    const message = await this.sendTo(attempt.address, attempt);
    const { statusCode: status = 0 } = message;
    attempt.answered(status);
    onClose(message, () => attempt.finish());
    const discard = () => {
      attempt.finish();
      drain(message);
    };
    return { status, message, discard };
  }

  /** Sends the request to an address, again if its connection had been idle and ended: it was not received then. */
  async sendTo(address: string, attempt?: Attempt): Promise<http.IncomingMessage> {
    try {
      return await this.#send(address, attempt);
    } catch (error) {
      const { code, syscall } = error as NodeJS.ErrnoException;
      const ended = this.#request?.reusedSocket && (code === "ECONNRESET" || code === "EPIPE");
      // The system has rejected the only write.
      const unsent = syscall === "write" && this.#stream === undefined && (this.#bytes?.length ?? 0) <= UNSENT_MAX;
      if (!ended || !(this.repeatable || unsent) || this.#limit.reason !== undefined) throw error;
      return await this.#send(address, attempt, { agent: false });
    }
  }

  /** Destroys a body of which nothing was read, because there was no connection. */
  discard(): void {
    if (this.#request !== undefined) this.#stream?.destroy();
  }

  #send(address: string, attempt?: Attempt, options?: http.RequestOptions): Promise<http.IncomingMessage> {
    const colon = /:\d+$/.exec(address)?.index ?? address.length;
    const host = address.slice(0, colon).replace(/^\[|\]$/g, "");
    const port = address.slice(colon + 1) || (this.#tls ? 443 : 80);
    if (attempt !== undefined) attempt.sent = false;
    if (this.#request === undefined) {
      this.#stream?.on("error", (error) => {
        this.bodyFailed = true;
        this.#request?.destroy(error);
      });
    }
    return new Promise((resolve, reject) => {
      let received = false;
      const request = (this.#tls ? https : http).request({ ...this.#options, ...options, host, port }, (message) => {
        received = true;
        resolve(message);
      });
      request.on("socket", (socket) => {
        const connected = (took?: number) => {
          attempt?.connected(took);
          this.#stream?.pipe(request);
        };
        if (!socket.connecting) return connected();
        const began = performance.now();
        let ended = false;
        const time = Math.min(this.connectTimeout, attempt?.connectTime ?? TIMER_MAX);
        const late = () => {
          if (ended) return;
          if (attempt !== undefined) attempt.cut = time < this.connectTimeout;
          request.destroy(connectTimeoutError(address, time));
        };
        const timer = setTimeout(() => setImmediate(late), time).unref(); // as Try of exchange.ts
        const end = () => {
          ended = true;
          clearTimeout(timer);
        };
        socket.once("close", end);
        socket.once(this.#tls ? "secureConnect" : "connect", () => {
          end();
          connected(performance.now() - began);
        });
      });
      request.on("error", (error) => reject(this.#limit.reason ?? error));
      request.on("close", () => {
        if (attempt?.sent !== false) this.#stream?.destroy();
        if (received) return;
        const error = new Error("the connection ended without a response");
        reject(Object.assign(error, { code: "ECONNRESET" }));
      });
      this.#request = request;
      this.#limit.end = (reason) => request.destroy(reason);
      if (this.#stream === undefined) request.end(this.#bytes);
    });
  }
}

/** The response; limit ends it, or else is released at its end. */
function follow(message: http.IncomingMessage, limit: Limit): Response {
  limit.end = (reason) => message.destroy(reason);
  onClose(message, () => limit.release());
  const { statusCode, headers } = message;
  const { method } = (message as http.IncomingMessage & { req: http.ClientRequest }).req;
  const empty = method === "HEAD" || statusCode === 204 || statusCode === 304 || headers["content-length"] === "0";
  if (empty) message.resume();
  return new Response(message);
}

/** Reads the rest of a response if it is short and comes soon, so that the connection can be used again. */
function drain(message: http.IncomingMessage): void {
  let left = DRAIN_MAX;
  const timer = setTimeout(() => message.destroy(), DRAIN_TIME).unref();
  message.on("data", (chunk: Buffer) => {
    left -= chunk.length;
    if (left < 0) message.destroy();
  });
  message.on("error", () => {});
  onClose(message, () => clearTimeout(timer));
}

function onClose(message: http.IncomingMessage, end: () => void): void {
  if (message.closed) end();
  else message.on("close", end);
}
