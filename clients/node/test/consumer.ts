// A program that uses the types of the package; it is compiled only.

import { Client, type LbdError, type Response as LbdResponse, type Settings } from "lbd-client";
import { createFetch } from "lbd-client/fetch";
import { interceptor } from "lbd-client/undici";
import { Agent, setGlobalDispatcher } from "undici";

const settings: Settings = { lbd: "unix:/run/lbd.sock", mode: "lease", hosts: { shop: "eu/orders" } };
export const client = new Client(settings);
export const response: LbdResponse = await client.request("http://orders.lbd/", { method: "POST", body: "x" });
export const status: number = response.status;
export const text: string = await response.text();
export const answer: globalThis.Response = await createFetch(client)(new URL("http://orders.lbd/"), { method: "PUT" });
setGlobalDispatcher(new Agent().compose(interceptor(client)));
setGlobalDispatcher(new Agent().compose(interceptor(client, new Agent())));
export const code = (error: LbdError): string => error.code;
// @ts-expect-error: there is no such mode
export const wrong: Settings = { mode: "turbo" };
