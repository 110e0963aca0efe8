// Drives the client as the conformance tests say (clients/conformance/README.md).

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import {
  CircuitBrokenError,
  Client,
  DroppedError,
  PermissionDeniedError,
  UnavailableError,
  UnknownClusterError,
} from "lbd-client";

import { adapters } from "./adapters.js";

const ms = (seconds) => seconds * 1000;
const options = {
  stale_for: (value) => ({ staleFor: ms(value) }),
  report_interval: (value) => ({ reportInterval: ms(value) }),
  connect_timeout: (value) => ({ connectTimeout: ms(value) }),
  max_age: (value) => ({ maxAge: ms(value) }),
  retries: (value) => ({ retries: value }),
  max_tokens: (value) => ({ maxTokens: value }),
  fallback: (value) => ({ fallback: value }),
  ttl: (value) => ({ ttl: ms(value) }),
  hooks: hooksOf,
};

let client, send, plain, hash, choice, events;

const commands = {
  async open({ lbd, token, token_file: tokenFile, cluster, mode, adapter = "core", options: asked }) {
    await client?.close();
    events = { attempts: [], states: [] };
    if (!Object.hasOwn(adapters, adapter)) return { unsupported: "no such adapter" };
    let target, headers, others;
    ({ target, headers, hash, choice, ...others } = /** @type {any} */ (asked ?? {}));
    const unknown = Object.keys(others).filter((name) => !Object.hasOwn(options, name));
    if (unknown.length > 0) return { unsupported: `options ${unknown}` };
    const settings = Object.entries(others).map(([name, value]) => options[name](value));
    const named = target ? { target, headers } : { cluster };
    const hosts = { "upstream.test": { ...named, hash: hash === "code" ? undefined : hash } };
    client = new Client(Object.assign({ lbd, token, tokenFile, mode, hosts }, ...settings));
    const { connectTimeout } = Object.assign({}, ...settings);
    if (connectTimeout !== undefined && adapter === "fetch") return { unsupported: "fetch of Node has no such option" };
    send = adapters[adapter](client, connectTimeout);
    plain = adapters[adapter]();
    return { ok: true };
  },

  async request(command) {
    const lbd = {};
    const [result, text] = await one(command, lbd);
    const answer = typeof result === "number" ? { status: result, body: text } : { error: result, message: text };
    if (!choice || lbd.choice === undefined) return answer;
    return { ...answer, choice: { ...lbd.choice, zone: lbd.choice.locality.zone } };
  },

  events() {
    const answer = events;
    events = { attempts: [], states: [] };
    return answer;
  },

  async load(command) {
    const began = performance.now();
    const answer = { statuses: {}, errors: {}, seconds: 0, p99: [] };
    const took = []; // lists by the second in which the requests were due
    let sent = 0;
    const task = async () => {
      while (sent < command.n) {
        const i = ++sent;
        const due = command.rate ? began + ms(i / command.rate) : 0;
        if (due > performance.now()) await sleep(due - performance.now());
        const key = command.keys ? `${command.key}-${i % command.keys}` : command.key;
        const [result] = await one({ ...command, key });
        if (due) {
          const second = Math.floor((due - began) / 1000);
          took[second] ??= [];
          took[second].push((performance.now() - due) / 1000);
        }
        const counts = typeof result === "number" ? answer.statuses : answer.errors;
        counts[result] = (counts[result] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: command.threads ?? 1 }, task));
    answer.seconds = (performance.now() - began) / 1000;
    answer.p99 = [...took].map((second = []) => second.sort((a, b) => a - b)[Math.floor(second.length * 0.99)] ?? 0);
    return answer;
  },

  fork: () => ({ unsupported: "processes of Node do not fork" }),

  async close() {
    await client?.close();
    return { ok: true };
  },
};

/** Hooks that remember what they get, and fail if they should. */
function hooksOf(value) {
  const fail = () => {
    if (value === "fail") throw new Error("a hook of the test");
  };
  return {
    onAttempt({ cluster, address, attempt: number, outcome, duration }) {
      events.attempts.push({ cluster, address, number, outcome, seconds: duration / 1000 });
      fail();
    },
    onState(state) {
      events.states.push(state);
      fail();
    },
  };
}

/** A status and body, or an error and a message. */
async function one({ url, method = "GET", path = "/", timeout, body, idempotent, headers: others, key }, lbd = {}) {
  const headers = { ...(idempotent && { "idempotency-key": "1" }), ...others };
  const [kind, name] = hash?.split(":") ?? [];
  if (key && kind === "header") headers[name] = key;
  if (key && kind === "cookie") headers.cookie = `${name}=${key}`;
  if (key && kind === "code") lbd.hash = key;
  const asks = choice || kind === "code" ? { lbd } : {};
  const limit = timeout === undefined ? undefined : ms(timeout);
  try {
    const target = url ?? `http://upstream.test${path}`;
    return await (url ? plain : send)(target, { method, body, headers, timeout: limit, ...asks });
  } catch (error) {
    return [nameOf(error), [error.message, error.cause?.message].filter(Boolean).join(": ")];
  }
}

const names = new Map([
  [DroppedError, "dropped"],
  [CircuitBrokenError, "circuit_broken"],
  [UnavailableError, "unavailable"],
  [UnknownClusterError, "unknown_cluster"],
  [PermissionDeniedError, "permission_denied"],
]);

function nameOf(error) {
  if (names.has(error.constructor)) return names.get(error.constructor);
  if (error.name === "TimeoutError" || error.name === "HeadersTimeoutError") return "timeout";
  if (error.name === "AbortError") return nameOf(error.cause ?? {});
  const code = error.code ?? error.cause?.code;
  return typeof code === "string" ? "connection" : "other";
}

process.once("SIGTERM", async () => {
  await client?.close();
  process.exit();
});

for await (const line of createInterface(process.stdin)) {
  const command = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await commands[command.do](command))}\n`);
  if (command.do === "close") break;
}
process.stdin.destroy(); // it would keep the process alive
