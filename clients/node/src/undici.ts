// Requests of undici: new Agent().compose(interceptor(client)).

import { Agent, type Dispatcher } from "undici";

import type { Client } from "./client.js";
import type { Dispatch, Handler } from "./dispatch.js";
import { intercept } from "./exchange.js";
import { forBothKinds } from "./legacy.js";

/**
 * Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. Compose it with an Agent:
 *
 *     setGlobalDispatcher(new Agent().compose(interceptor(client)));
 *
 * It is the first of the interceptors. Requests to endpoints are sent by the dispatcher that it is composed with, or by
 * endpoints; if that dispatcher is an EnvHttpProxyAgent, by an Agent: the proxy of the environment is not for them.
 *
 * The deadline of a request, until the headers of the response, is its headersTimeout, else the timeout of the client.
 * Errors are those of lbd, a DOMException named TimeoutError at the deadline, and otherwise those of undici. The fetch
 * of undici has them as cause of its error.
 */
export function interceptor(client: Client, endpoints?: Dispatcher): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => {
    const others = dispatch as unknown as Dispatch;
    const agent = endpoints ?? (parsesOrigins(others) ? new Agent() : undefined);
    const toEndpoints = agent === undefined ? others : (agent.dispatch.bind(agent) as unknown as Dispatch);
    const both = forBothKinds(others, toEndpoints, (one, other) => intercept(client, one, other));
    return both as unknown as Dispatcher.Dispatch;
  };
}

/**
 * Whether dispatch is that of an EnvHttpProxyAgent, of which an interceptor gets no more than this function. It parses
 * the origin of a request, which is why a request without one, which all of them reject, has another error.
 */
function parsesOrigins(dispatch: Dispatch): boolean {
  let reason: unknown;
  const onError = (...errors: unknown[]) => {
    reason = errors.at(-1);
  };
  const handler = { onRequestStart() {}, onResponseError: onError, onConnect() {}, onError } as unknown as Handler;
  try {
    dispatch({ method: "GET", headers: { host: "none" } }, handler);
  } catch (error) {
    reason = error;
  }
  return reason instanceof TypeError && "code" in reason && reason.code === "ERR_INVALID_URL";
}
