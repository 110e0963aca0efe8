// A program that uses the types of the package; it is compiled only.

import {
  type Ask,
  type Choice,
  Client,
  type EndedAttempt,
  type Host,
  type LbdError,
  type Response as LbdResponse,
  type Settings,
  type State,
} from "lbd-client";
import { createFetch } from "lbd-client/fetch";
import { interceptor } from "lbd-client/undici";
import { Agent, request, setGlobalDispatcher } from "undici";

const settings: Settings = { lbd: "unix:/run/lbd.sock", mode: "lease", hosts: { shop: "eu/orders" } };
export const client = new Client(settings);
export const response: LbdResponse = await client.request("http://orders.lbd/", { method: "POST", body: "x" });
export const status: number = response.status;
export const text: string = await response.text();
export const answer: globalThis.Response = await createFetch(client)(new URL("http://orders.lbd/"), { method: "PUT" });
setGlobalDispatcher(new Agent().compose(interceptor(client)));
setGlobalDispatcher(new Agent().compose(interceptor(client, new Agent())));
export const code = (error: LbdError): string => error.code;
export const tries: EndedAttempt[] = [];
export const states: State[] = [];
const shop: Host = { target: "shop", headers: ["tenant"] };
export const observed: Settings = {
  hosts: (host) => (host === "shop" ? shop : undefined),
  onAttempt: (attempt) => tries.push(attempt),
  onState: async (state) => void states.push(state),
  logger: console,
};
const lbd: Ask = { hash: "alice", path: "/items", headers: { tenant: ["a", "b"] } };
await client.request("http://orders.lbd/", { lbd });
await createFetch(client)("http://orders.lbd/", { lbd });
await request("http://orders.lbd/", { dispatcher: new Agent(), ...{ lbd } });
export const choice: Choice | undefined = lbd.choice;
// @ts-expect-error: hosts have no such field
export const misspelled: Host = { clusters: "orders" };
// @ts-expect-error: there is no such mode
export const wrong: Settings = { mode: "turbo" };
