// The HTTP libraries that the runner sends requests with: with a client of lbd, or alone if client is undefined.
// Each sends a request to url, and resolves with its status and body. timeout is in milliseconds, and so is
// connectTimeout, which is a setting of the client for core, and of the library for others. lbd is what it asks.

import http from "node:http";
import { text } from "node:stream/consumers";

import { createFetch } from "lbd-client/fetch";
import { interceptor } from "lbd-client/undici";
import { Agent, request } from "undici";

function core(client) {
  if (client !== undefined) {
    return async (url, { timeout, ...options }) => {
      const response = await client.request(url, { timeout, ...options });
      return [response.status, await response.text()];
    };
  }
  const agent = new http.Agent({ keepAlive: true });
  return (url, { body, timeout, ...options }) =>
    new Promise((resolve, reject) => {
      const sent = http.request(url, { agent, signal: signal(timeout), ...options }, (response) => {
        text(response).then((content) => resolve([response.statusCode, content]), reject);
      });
      sent.on("error", reject);
      sent.end(body);
    });
}

function undici(client, connectTimeout = 5000) {
  const agent = new Agent({ connect: { timeout: connectTimeout } });
  const dispatcher = client === undefined ? agent : agent.compose(interceptor(client));
  return async (url, { timeout, ...options }) => {
    const limits = { headersTimeout: timeout, signal: signal(timeout) };
    const response = await request(url, { dispatcher, ...limits, ...options });
    return [response.statusCode, await response.body.text()];
  };
}

function withFetch(client) {
  const send = client === undefined ? fetch : createFetch(client);
  return async (url, { timeout, ...options }) => {
    const response = await send(url, { signal: signal(timeout) ?? null, redirect: "manual", ...options });
    return [response.status, await response.text()];
  };
}

const signal = (timeout) => (timeout === undefined ? undefined : AbortSignal.timeout(timeout));

export const adapters = { core, undici, fetch: withFetch };
