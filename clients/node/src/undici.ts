// Requests of undici: new Agent().compose(interceptor(client)).

import type { Dispatcher } from "undici";

import type { Client } from "./client.js";
import type { Dispatch } from "./dispatch.js";
import { intercept } from "./exchange.js";
import { forBothKinds } from "./legacy.js";

/**
 * Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. Compose it with an Agent:
 *
 *     setGlobalDispatcher(new Agent().compose(interceptor(client)));
 *
 * The deadline of a request, until the headers of the response, is its headersTimeout, else the timeout of the client.
 * Errors are those of lbd, a DOMException named TimeoutError at the deadline, and otherwise those of undici. The fetch
 * of undici has them as cause of its error.
 */
export function interceptor(client: Client): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) =>
    forBothKinds(dispatch as unknown as Dispatch, (inner) =>
      intercept(client, inner),
    ) as unknown as Dispatcher.Dispatch;
}
