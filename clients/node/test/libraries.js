// The HTTP libraries with a client. Each sends a request, and resolves with its status and body.

import { createFetch } from "lbd-client/fetch";
import { interceptor } from "lbd-client/undici";
import * as undici from "undici";

/** @type {Record<string, (client) => (method, url, options?) => Promise<any[]>>} */
export const libraries = {
  core: (client) => async (method, url, options) => {
    const response = await client.request(url, { method, ...options });
    return [response.status, await response.text()];
  },
  undici: (client) => withUndici(undici, client),
  fetch: (client) => withFetch(createFetch(client)),
  "undici's fetch": (client) => {
    const dispatcher = new undici.Agent().compose(interceptor(client));
    const fetch = /** @type {any} */ (undici.fetch);
    return withFetch((url, options) => fetch(url, { dispatcher, ...options }));
  },
  "fetch with a dispatcher of undici": (client) => {
    const dispatcher = /** @type {any} */ (new undici.Agent().compose(interceptor(client)));
    return withFetch((url, options) => fetch(url, { dispatcher, ...options }));
  },
};

export function withUndici({ Agent, request }, client) {
  const dispatcher = new Agent().compose(interceptor(client));
  return async (method, url, { timeout = undefined, ...options } = {}) => {
    const response = await request(url, { dispatcher, method, headersTimeout: timeout, ...options });
    return [response.statusCode, await response.body.text()];
  };
}

function withFetch(fetch) {
  return async (method, url, { timeout = undefined, ...options } = {}) => {
    const limit = timeout === undefined ? {} : { signal: AbortSignal.timeout(timeout) };
    const response = await fetch(url, { method, ...limit, ...options });
    return [response.status, await response.text()];
  };
}

/** The error of lbd or of a timeout, which some libraries have as a cause. */
export const causeOf = (error) => (error.message === "fetch failed" ? error.cause : error);
