// The fetch that is part of Node.

import type { Ask } from "./ask.js";
import type { Client } from "./client.js";
import type { Dispatch } from "./dispatch.js";
import { isTimeout, LbdError } from "./errors.js";
import { intercept } from "./exchange.js";
import { forBothKinds } from "./legacy.js";

type Input = Parameters<typeof globalThis.fetch>[0];
type Dispatching = { readonly dispatch: Dispatch; readonly [key: symbol]: unknown };

/**
 * The fetch of Node, with requests to hosts CLUSTER.lbd sent to the endpoints that lbd picks.
 *
 * Rejects with an LbdError without an endpoint, with a DOMException named TimeoutError if the headers of the response
 * are not there at the timeout of the client or of AbortSignal.timeout, and otherwise as fetch does. A redirect from an
 * endpoint is a response, unless init has redirect.
 */
export function createFetch(client: Client): (input: Input, init?: RequestInit & { lbd?: Ask }) => Promise<Response> {
  return async (input, init) => {
    const dispatch = (init?.dispatcher ?? nodeDispatcher()) as unknown as Dispatching;
    const inner: Dispatch = (options, handler) => dispatch.dispatch(options, handler);
    const direct: Dispatch = (options, handler) => withoutProxy(dispatch).dispatch(options, handler);
    const intercepted = forBothKinds(inner, direct, (one, other) => intercept(client, one, other));
    // fetch makes a stream of every body, which could not be sent again.
    const body = copyOf(init?.body);
    const ask = init?.lbd && { lbd: init.lbd };
    const dispatcher = {
      dispatch: ((options, handler) => {
        const bytes = body && options.body != null ? { body } : undefined;
        return intercepted(ask || bytes ? { ...options, ...ask, ...bytes } : options, handler);
      }) satisfies Dispatch,
    };
    const redirect = init?.redirect ?? (isToCluster(client, input) ? "manual" : undefined);
    try {
      return await globalThis.fetch(input, {
        ...init,
        ...(redirect && { redirect }),
        dispatcher: dispatcher as never,
      });
    } catch (error) {
      const cause = error instanceof TypeError ? error.cause : undefined;
      throw cause instanceof LbdError || isTimeout(cause) ? cause : error;
    }
  };
}

function isToCluster(client: Client, input: Input): boolean {
  const url = typeof input === "object" && "url" in input ? input.url : String(input);
  return URL.canParse(url) && client.clusterOf(new URL(url).hostname) !== undefined;
}

/** The dispatcher of Node's own undici, or that of its setGlobalDispatcher. */
function nodeDispatcher(): unknown {
  void globalThis.Response; // loads Node's undici
  return (globalThis as Record<symbol, unknown>)[Symbol.for("undici.globalDispatcher.1")];
}

/** What an EnvHttpProxyAgent, also that of NODE_USE_ENV_PROXY, uses for hosts in no_proxy; others themselves. */
function withoutProxy(dispatcher: Dispatching): Dispatching {
  const direct = Object.getOwnPropertySymbols(dispatcher).find((key) => key.description === "no proxy agent");
  return direct === undefined ? dispatcher : (dispatcher[direct] as Dispatching);
}

/** The bytes of a body that is no stream. */
function copyOf(body: RequestInit["body"]): Uint8Array | undefined {
  if (typeof body === "string") return Buffer.from(body);
  if (body instanceof URLSearchParams) return Buffer.from(body.toString());
  if (body instanceof ArrayBuffer) return Buffer.from(body.slice());
  if (ArrayBuffer.isView(body))
    return Buffer.from(body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength));
  return undefined;
}
