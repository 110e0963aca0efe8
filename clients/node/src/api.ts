// Calls to lbd.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";

import { LbdError, ofAnswer } from "./errors.js";
import type { Hooks } from "./hooks.js";
import type { Resolved } from "./settings.js";

/** Milliseconds for a call that does not wait. */
export const CALL_TIMEOUT = 2000;

/** Bytes of an answer of lbd, at most. */
const ANSWER_MAX = 16 * 1024 * 1024;

const IDLE_TIME = 30_000;

/** Statuses of answers that reject without a code: a proxy before lbd gives them, too. */
const PLAIN_REJECTIONS: ReadonlySet<number> = new Set([401, 403, 429]);

/** A call failed: lbd is unreachable, or what came is not a complete answer. */
export class Unreachable extends Error {}

export interface ApiCall {
  readonly method?: "GET" | "POST";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[]>>;
  /** Added to query. */
  readonly asks?: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** For the message of an error. */
  readonly cluster?: string;
  /** In milliseconds. */
  readonly timeout?: number;
  /** Whether the process may end during the call. */
  readonly background?: boolean;
  /** Ends the call. */
  readonly signal?: AbortSignal;
  /** Whether timeout is that of a request, so that lbd is not to blame for it. */
  readonly limited?: boolean;
}

interface Answer {
  readonly status: number;
  readonly retryAfter: number;
  readonly content: string;
}

/** lbd's HTTP API at one address. */
export class Api {
  readonly #agent: http.Agent;
  readonly #request: typeof http.request;
  readonly #target: http.RequestOptions;
  readonly #tokenFile: string;
  readonly #place: string;
  readonly #hooks: Hooks;
  #token: string;

  constructor({ lbd, found, token, tokenFile, ca }: Resolved, hooks: Hooks) {
    this.#place = `${lbd} (${found})`;
    this.#hooks = hooks;
    const options = { keepAlive: true, maxFreeSockets: 32, timeout: IDLE_TIME };
    this.#target = parse(lbd);
    if (lbd.startsWith("https:")) {
      this.#agent = new https.Agent({ ...options, ...(ca && { ca: readFileSync(ca) }) });
      this.#request = https.request;
    } else {
      this.#agent = new http.Agent(options);
      this.#request = http.request;
    }
    this.#tokenFile = token ? "" : tokenFile;
    this.#token = token;
    if (this.#tokenFile) this.#token = readFileSync(this.#tokenFile, "utf8").trim();
  }

  /** The answer to a call. Rejects with Unreachable, or with the LbdError for an answer that rejects. */
  async call(call: ApiCall): Promise<Record<string, unknown>> {
    try {
      const answer = await this.#call(call);
      this.#hooks.reached();
      return answer;
    } catch (reason) {
      const message = `${call.method ?? "GET"} ${call.path} at ${this.#place}: ${reasonOf(reason)}`;
      const error = reason instanceof LbdError ? reason : new Unreachable(message, { cause: reason });
      if (!call.signal?.aborted && !call.limited) this.#hooks.reached(error);
      throw error;
    }
  }

  async #call(call: ApiCall): Promise<Record<string, unknown>> {
    const used = this.#token;
    let answer = await this.#try(call);
    if (answer.status === 401 && this.#tokenFile) {
      const token = await readFile(this.#tokenFile, "utf8").then(
        (text) => text.trim(),
        () => used,
      );
      if (token !== used) {
        this.#token = token;
        answer = await this.#try(call);
      }
    }
    const { status, content, retryAfter } = answer;
    const decoded = decode(content);
    if (status === 200 || status === 201) {
      if (decoded === undefined) throw new Error("the answer is not JSON");
      if (call.path === "/v1/pick" && !("picks" in decoded || "address" in decoded)) {
        throw new Error("the answer has no picks");
      }
      return decoded;
    }
    const code = typeof decoded?.code === "string" && decoded.code !== "";
    if (status < 400 || !(code || PLAIN_REJECTIONS.has(status))) {
      throw new Error(`status ${status} without a code of lbd`);
    }
    throw ofAnswer(call.cluster ?? "", status, decoded ?? {}, retryAfter);
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Repeats a call once whose connection had been idle: lbd closes those at times, then the call never reached it. */
  async #try(call: ApiCall): Promise<Answer> {
    let reused = false;
    const onReused = () => {
      reused = true;
    };
    return await this.#send(call, this.#agent, onReused).catch((error: NodeJS.ErrnoException) => {
      if (!reused || (error.code !== "ECONNRESET" && error.code !== "EPIPE")) throw error;
      return this.#send(call, false, onReused);
    });
  }

  #send(call: ApiCall, agent: http.Agent | false, onReused: () => void): Promise<Answer> {
    const { method = "GET", path, query, asks = "", body, timeout = CALL_TIMEOUT, background = false, signal } = call;
    const data = body === undefined ? undefined : JSON.stringify(body);
    const headers: http.OutgoingHttpHeaders = { accept: "application/json", "user-agent": "lbd-client-node" };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    if (data !== undefined) headers["content-type"] = "application/json";
    return new Promise((resolve, reject) => {
      const request = this.#request({
        ...this.#target,
        agent,
        method,
        path: query === undefined ? path : `${path}?${encode(query)}${asks}`,
        headers,
        ...(signal && { signal }),
      });
      const timer = setTimeout(() => request.destroy(new Error(`no answer in ${timeout} ms`)), timeout);
      if (background) {
        timer.unref();
        request.on("socket", (socket) => socket.unref());
      }
      let received = false;
      request.on("response", (response) => {
        received = true;
        const { statusCode: status = 0, headers } = response;
        resolve(
          read(response).then((content) => ({ status, content, retryAfter: retryAfter(headers["retry-after"]) })),
        );
      });
      request.on("error", (error) => {
        if (request.reusedSocket) onReused();
        reject(error);
      });
      request.on("close", () => {
        clearTimeout(timer);
        if (!received) reject(new Error("the connection ended before the answer"));
      });
      request.end(data);
    });
  }
}

/** What an error says. That of a host with several addresses has no message, but an error of each of them. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join(", ");
  return error instanceof Error ? error.message : String(error);
}

/** The content of a response that is complete. */
async function read(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > ANSWER_MAX) throw new Error(`the answer has more than ${ANSWER_MAX} bytes`);
  }
  if (!response.complete) throw new Error("the connection ended within the answer");
  return Buffer.concat(chunks).toString();
}

function parse(lbd: string): http.RequestOptions {
  if (/^unix:./.test(lbd)) return { socketPath: lbd.replace(/^unix:(\/\/)?/, "") };
  const url = URL.canParse(lbd) ? new URL(lbd) : undefined;
  if (!url?.hostname || !/^https?:$/.test(url.protocol) || url.pathname !== "/") {
    throw new TypeError(`lbd: ${lbd.replace(/^.*@/s, "…@")} is not unix:PATH, http://HOST:PORT or https://HOST:PORT`);
  }
  if (url.username || url.password) throw new TypeError("lbd: a user in the address is not supported: use token");
  return {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port || (url.protocol === "https:" ? 443 : 80),
  };
}

function encode(query: NonNullable<ApiCall["query"]>): string {
  const pairs = Object.entries(query).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  return new URLSearchParams(pairs as [string, string][]).toString();
}

function decode(content: string): Record<string, unknown> | undefined {
  try {
    const answer: unknown = JSON.parse(content);
    return typeof answer === "object" && answer !== null && !Array.isArray(answer)
      ? (answer as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

const retryAfter = (seconds = "") => (/^\d{1,5}$/.test(seconds) ? Number(seconds) * 1000 : 0);
