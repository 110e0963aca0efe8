// What the client tells lbd, with a server that answers as lbd does not, or only at times.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { hostname, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, DroppedError, PermissionDeniedError, UnavailableError, UnknownClusterError } from "lbd-client";
import { Deadline } from "../dist/deadline.js";
import { Limit } from "../dist/limit.js";
import { refuses, Silent, Upstream, until } from "./stand.js";

/** A server whose answers are [STATUS, OBJECT], or promises of them. It has the calls that it got. */
async function fake(t, answer) {
  const calls = [];
  const server = http.createServer(async (request, response) => {
    const url = new URL(request.url, "http://lbd");
    const { authorization } = request.headers;
    const body = await text(request);
    const call = { path: url.pathname, query: url.searchParams, authorization, body, open: true };
    calls.push(call);
    response.on("close", () => {
      call.open = false;
    });
    const [status, object] = await answer(url.pathname, body, url.searchParams);
    response.writeHead(status).end(JSON.stringify(object));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const count = (path) => calls.filter((call) => call.path === path).length;
  return { lbd: `http://127.0.0.1:${port}`, calls, count };
}

/** Whether a call is a report of a request that has ended. Others have only what is in flight. */
const ended = (path, body) => path === "/v1/reports" && JSON.parse(body).clusters[0].endpoints[0].requests === 1;

function open(t, settings) {
  const client = new Client(settings);
  t.after(() => client.close());
  return client;
}

function deferred() {
  let resolve = (_) => {};
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

const lease = { address: "127.0.0.1:1", lease: { id: "one" } };
const away = { code: "shutting_down" };
const RENEW = "/v1/leases/one/renew";
const DONE = "/v1/leases/done";

test("a lease is renewed and ended although calls are rejected", async (t) => {
  let ends = 0;
  const { lbd, count } = await fake(t, (path) => {
    if (path === "/v1/pick") return [200, lease];
    return path === RENEW || ++ends === 1 ? [503, away] : [200, {}];
  });
  const client = open(t, { lbd, mode: "lease", ttl: 100 });
  const attempt = await client.call("orders", new Deadline(Number.POSITIVE_INFINITY), true).first();
  await until(() => count(RENEW) >= 2, "the lease is renewed again");
  attempt.answered(200);
  attempt.finish();
  await until(() => count(DONE) === 2, "the lease is ended at the second try");
});

test("a lease that has expired is not renewed", async (t) => {
  const { lbd, count } = await fake(t, (path) =>
    path === "/v1/pick" ? [200, lease] : [404, { code: "unknown_lease" }],
  );
  const client = open(t, { lbd, mode: "lease", ttl: 100 });
  const attempt = await client.call("orders", new Deadline(Number.POSITIVE_INFINITY), true).first();
  await until(() => count(RENEW) === 1, "the lease is renewed");
  attempt.finish();
  await client.close();
  assert.equal(count(DONE), 0);
});

test("a lease that comes during close is ended", async (t) => {
  const fallback = await Upstream.start();
  t.after(() => fallback.close());
  const late = deferred();
  const done = deferred();
  let picks = 0;
  const { lbd, count } = await fake(t, (path) => {
    if (path === "/v1/pick") return ++picks === 1 ? [200, lease] : late.promise;
    return done.promise;
  });
  const client = open(t, { lbd, mode: "lease", fallback: fallback.address });
  await client.call("orders", new Deadline(10_000), true).first();
  const request = client.request("http://orders.lbd/");
  await until(() => count("/v1/pick") === 2, "lbd is asked");
  const closed = client.close();
  await until(() => count(DONE) === 1, "the first lease is ended");
  late.resolve([200, lease]);
  await assert.rejects(request, UnavailableError);
  await until(() => count(DONE) === 2, "the second lease is ended");
  done.resolve([200, {}]);
  await closed;
  assert.deepEqual(fallback.requests, []);
});

test("a lease is ended although the end of another gets no answer", async (t) => {
  let picks = 0;
  const { lbd, calls } = await fake(t, (path) =>
    path === "/v1/pick" ? [200, { ...lease, lease: { id: `id-${++picks}` } }] : deferred().promise,
  );
  const client = open(t, { lbd, mode: "lease" });
  await until(async () => {
    (await client.call("orders", new Deadline(60_000), true).first()).finish();
    return calls.filter(({ path, open }) => path === DONE && open).length >= 3;
  }, "leases are ended at the same time");
});

test("a request that was given up before takes no lease", async (t) => {
  const { lbd, count } = await fake(t, () => [200, lease]);
  const client = open(t, { lbd, mode: "lease" });
  await assert.rejects(client.request("http://orders.lbd/", { signal: AbortSignal.abort() }), { name: "AbortError" });
  (await client.call("orders", new Deadline(10_000), true).first()).finish();
  assert.equal(count("/v1/pick"), 1);
});

test("the ttl is at most that of lbd, and no timer overflows", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const { lbd, calls } = await fake(t, () => [
    200,
    { ...lease, generation: 1, picks: [{ address: upstream.address }] },
  ]);
  const warnings = [];
  process.on("warning", (warning) => warnings.push(warning));
  const endless = { timeout: Number.POSITIVE_INFINITY, reportInterval: Number.POSITIVE_INFINITY, maxAge: 1e12 };
  const leasing = open(t, { lbd, mode: "lease", ttl: Number.POSITIVE_INFINITY, ...endless });
  (await leasing.call("orders", new Deadline(Number.POSITIVE_INFINITY), true).first()).finish();
  assert.equal(calls[0].query.get("ttl"), "600000ms");
  const client = open(t, { lbd, ...endless });
  assert.equal(await (await client.request("http://orders.lbd/")).text(), upstream.address);
  await new Promise(setImmediate);
  assert.deepEqual(warnings, []);
});

test("a report that is under way at the end is not sent again", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const answer = deferred();
  const { lbd, calls } = await fake(t, (path, body) =>
    ended(path, body) ? answer.promise : [200, { generation: 1, picks: [{ address: upstream.address }] }],
  );
  const count = () => calls.filter(({ path, body }) => ended(path, body)).length;
  const client = open(t, { lbd, reportInterval: 50 });
  await (await client.request("http://orders.lbd/")).text();
  await until(() => count() === 1, "a report is under way");
  const closed = client.close();
  answer.resolve([503, away]);
  await closed;
  assert.equal(count(), 1);
});

test("the token of the program goes before that of the environment", async (t) => {
  const { lbd, calls } = await fake(t, () => [200, lease]);
  const file = join(mkdtempSync(join(tmpdir(), "lbd")), "token");
  writeFileSync(file, "of-the-program\n");
  process.env.LBD_TOKEN = "of-the-environment";
  t.after(() => {
    delete process.env.LBD_TOKEN;
    rmSync(dirname(file), { recursive: true });
  });
  for (const settings of [{ tokenFile: file }, { token: "of-the-program", tokenFile: "/no/such/file" }, {}]) {
    const client = open(t, { lbd, mode: "pick", ...settings });
    (await client.call("orders", new Deadline(10_000), true).first()).finish();
  }
  const tokens = ["of-the-program", "of-the-program", "of-the-environment"];
  assert.deepEqual(
    calls.map(({ authorization }) => authorization),
    tokens.map((token) => `Bearer ${token}`),
  );
});

test("an answer without a code of lbd is that of an lbd that is unreachable", async (t) => {
  let answer = [];
  const { lbd } = await fake(t, () => answer);
  const cases = /** @type {[number, object, any, string][]} */ ([
    [400, {}, UnavailableError, ""],
    [404, { detail: "no route" }, UnavailableError, ""],
    [502, {}, UnavailableError, ""],
    [503, { code: "" }, UnavailableError, ""],
    [503, { code: 7 }, UnavailableError, ""],
    [302, { code: "moved" }, UnavailableError, ""],
    [429, {}, UnavailableError, "429"],
    [401, {}, PermissionDeniedError, "401"],
    [403, {}, PermissionDeniedError, "403"],
    [404, { code: "unknown_cluster" }, UnknownClusterError, "unknown_cluster"],
  ]);
  for (const mode of /** @type {const} */ (["batch", "pick", "lease"])) {
    for (const [status, object, Kind, code] of cases) {
      answer = [status, object];
      const client = open(t, { lbd, mode });
      await assert.rejects(client.call("orders", new Deadline(10_000), true).first(), (error) => {
        assert(error instanceof Kind, `${mode} ${status}: ${error}`);
        assert.equal(/** @type {any} */ (error).code, code, `${mode} ${status}`);
        return true;
      });
    }
  }
});

test("lbd waits for an endpoint of a batch for no longer than the call", async (t) => {
  const { lbd, calls } = await fake(t, () => [200, { generation: 1, picks: [{ address: "127.0.0.1:1" }] }]);
  const client = open(t, { lbd });
  (await client.call("orders", new Deadline(10_000), true).first()).finish();
  assert.equal(calls[0].query.get("wait"), "1000ms");
});

test("refusals do not make calls without a pause", async (t) => {
  const { lbd, count } = await fake(t, () => [503, { code: "dropped" }]);
  const began = performance.now();
  const client = open(t, { lbd, maxAge: 1 });
  await assert.rejects(client.call("orders", new Deadline(10_000), true).first(), DroppedError);
  await until(() => count("/v1/pick") >= 6, "there were six batches");
  assert(performance.now() - began > 450, "100 ms between two of them");
});

test("each client reports with a name of its own", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const { lbd, calls } = await fake(t, () => [200, { generation: 1, picks: [{ address: upstream.address }] }]);
  for (let i = 0; i < 2; i++) {
    const client = open(t, { lbd });
    await (await client.request("http://orders.lbd/")).text();
    await client.close();
  }
  const names = calls.filter(({ path }) => path === "/v1/reports").map(({ body }) => JSON.parse(body).reporter);
  for (const name of names) assert.match(name, new RegExp(`^${hostname()}/${process.pid}/[0-9a-f]{8}$`));
  assert.equal(new Set(names).size, 2);
});

test("no endpoint is to blame for a deadline that passed before the request was sent", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const { lbd, calls, count } = await fake(t, () => [
    200,
    { ...lease, generation: 1, picks: [{ address: upstream.address }] },
  ]);
  const client = open(t, { lbd });
  await (await client.request("http://orders.lbd/")).text();
  await assert.rejects(client.call("orders", new Deadline(0), true).first(), { name: "TimeoutError" });
  await client.close();
  const [report] = calls.filter(({ path }) => path === "/v1/reports").map(({ body }) => JSON.parse(body));
  const { requests, errors, cancelled } = report.clusters[0].endpoints[0];
  assert.deepEqual({ requests, errors, cancelled }, { requests: 1, errors: 0, cancelled: 0 });
  for (const mode of /** @type {const} */ (["pick", "lease"])) {
    const other = open(t, { lbd, mode });
    await assert.rejects(other.call("orders", new Deadline(0), true).first(), { name: "TimeoutError" });
  }
  await until(() => count(DONE) === 1, "the lease is ended");
  assert.equal(JSON.parse(calls.find(({ path }) => path === DONE).body).leases[0].outcome, "cancelled");
});

test("a request that is given up while the lease of its failed try ends takes no other lease", async (t) => {
  const aborting = new AbortController();
  const { lbd, count } = await fake(t, (path) => {
    if (path === DONE) aborting.abort();
    return [200, lease];
  });
  const client = open(t, { lbd, mode: "lease" });
  const deadline = new Deadline(60_000);
  const limit = new Limit(deadline, aborting.signal);
  t.after(() => limit.release());
  const call = client.call("orders", deadline, true);
  const attempt = await call.first();
  attempt.answered(503);
  assert.equal(await call.retry(attempt, limit), undefined);
  attempt.finish();
  assert.equal(count("/v1/pick"), 1);
});

test("lbd is not called unreachable for a deadline of a request", async (t) => {
  const { lbd } = await fake(t, (path) => (path === DONE ? deferred().promise : [200, lease]));
  const states = [];
  const client = open(t, { lbd, mode: "lease", onState: (state) => states.push(state) });
  const deadline = new Deadline(300);
  const limit = new Limit(new Deadline(60_000));
  t.after(() => limit.release());
  const call = client.call("orders", deadline, true);
  const attempt = await call.first();
  attempt.answered(503);
  assert.equal(await call.retry(attempt, limit), undefined);
  assert.deepEqual(states, []);
});

test("a connection that is not made in time is one that failed", async (t) => {
  const [ok, silent] = [await Upstream.start(), await Silent.start(t)];
  t.after(() => ok.close());
  const picks = [ok, silent].map(({ address }) => ({ address }));
  const { lbd, calls } = await fake(t, () => [200, { generation: 1, picks }]);
  const client = open(t, { lbd, connectTimeout: 100 });
  for (let i = 0; i < 4; i++) {
    assert.equal(await (await client.request("http://orders.lbd/")).text(), ok.address);
  }
  await client.close();
  const reports = calls.filter(({ path }) => path === "/v1/reports").map(({ body }) => JSON.parse(body));
  const endpoints = reports.flatMap(({ clusters }) => clusters[0].endpoints);
  const failed = endpoints.filter(({ address }) => address === silent.address);
  assert(failed.some((endpoint) => endpoint.connect_failures > 0));
  assert(failed.every((endpoint) => !endpoint.requests));
});

test("lbd is told at once, and asked again for what is set aside", async (t) => {
  const address = await refuses();
  const { lbd, calls, count } = await fake(t, (_, __, query) =>
    query.has("exclude") ? [503, { code: "all_excluded" }] : [200, { ...lease, address }],
  );
  for (const expected of [/^false( true){2,}$/, /^true false( true){2,}$/]) {
    const client = open(t, { lbd, mode: "pick", reportInterval: 600_000 });
    if (expected.source.startsWith("^true")) {
      const attempt = await client.call("orders", new Deadline(10_000), true).first();
      attempt.failed(Object.assign(new Error(), { code: "ECONNREFUSED" }));
      await until(() => count("/v1/reports") === 2, "lbd is told of the first");
    }
    calls.length = 0;
    await assert.rejects(client.request("http://orders.lbd/", { method: "POST", body: "x" }), { code: "ECONNREFUSED" });
    const picks = calls.filter(({ path }) => path === "/v1/pick");
    assert.match(picks.map(({ query }) => query.has("exclude")).join(" "), expected);
    await until(() => count("/v1/reports") === 1, "lbd is told");
    const { interval, clusters } = JSON.parse(calls.find(({ path }) => path === "/v1/reports").body);
    assert.equal(interval, undefined);
    assert.deepEqual(clusters, [{ cluster: "orders", endpoints: [{ address, connect_failures: 1 }] }]);
  }
});

test("a connect has more time if there is no other endpoint", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const { address } = upstream;
  const { lbd } = await fake(t, (_, __, query) =>
    query.has("exclude")
      ? [503, { code: "all_excluded" }]
      : [200, { ...lease, address, generation: 1, picks: [{ address }] }],
  );
  for (const mode of /** @type {const} */ (["batch", "pick", "lease"])) {
    const client = open(t, { lbd, mode, retries: 0 });
    const deadline = new Deadline(10_000);
    const limit = new Limit(deadline);
    const call = client.call("orders", deadline, false);
    const first = await call.first();
    assert.equal(first.connectTime, 250);
    first.cut = true;
    assert.equal(first.failed(Object.assign(new Error(), { code: "ETIMEDOUT" })), true);
    const second = await call.retry(first, limit);
    assert.deepEqual([second?.address, second?.connectTime], [address, Number.POSITIVE_INFINITY]);
    assert.equal(second.failed(Object.assign(new Error(), { code: "ETIMEDOUT" })), true);
    assert.equal(await call.retry(second, limit), undefined);
    limit.release();
  }
});

test("a batch has the picks of two seconds", async (t) => {
  const { lbd, calls } = await fake(t, (_, __, query) =>
    Number(query.get("n")) > 100
      ? [400, { code: "invalid_argument" }]
      : [200, { generation: 1, picks: [{ address: "127.0.0.1:1" }] }],
  );
  const client = open(t, { lbd, maxAge: 500 });
  const take = async () => (await client.call("orders", new Deadline(10_000), true).first()).finish();
  const sizes = () => calls.filter(({ path }) => path === "/v1/pick").map(({ query }) => Number(query.get("n")));
  await take();
  await until(() => sizes().length === 2, "there is a second batch");
  assert.deepEqual(sizes(), [100, 20]);
  for (let i = 0; i < 3000; i++) await take();
  await until(() => sizes().some((n) => n > 100), "a batch is larger");
  const larger = sizes().findIndex((n) => n > 100);
  await until(() => sizes().length > larger + 1, "there is another batch");
  assert.equal(sizes()[larger + 1], 100);
});

test("a busy process may repeat more", async (t) => {
  const picks = [1, 2].map((port) => ({ address: `127.0.0.1:${port}` }));
  const { lbd, calls } = await fake(t, () => [200, { generation: 1, picks }]);
  const client = open(t, { lbd, maxAge: 200 });
  const deadline = new Deadline(60_000);
  const limit = new Limit(deadline);
  t.after(() => limit.release());
  await until(async () => {
    for (let i = 0; i < 100; i++) (await client.call("orders", deadline, true).first()).finish();
    return calls.some(({ query }) => Number(query.get("n")) > 500);
  }, "a batch is larger");
  for (let i = 0; i < 100; i++) {
    const call = client.call("orders", deadline, true);
    const attempt = await call.first();
    attempt.answered(503);
    assert.notEqual(await call.retry(attempt, limit), undefined);
  }
});

test("the keys of an endpoint that is set aside go to the next one, without a call for each", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const dead = await refuses();
  const { lbd, calls } = await fake(t, (path, _, query) => {
    const address = query.has("exclude") ? upstream.address : dead;
    return path === "/v1/pick" ? [200, { generation: 1, picks: [{ address }] }] : deferred().promise;
  });
  const client = open(t, { lbd, maxAge: 60_000 });
  const attempts = [];
  for (let i = 0; i < 4; i++) {
    const asked = /** @type {any} */ ({ hash: "x" });
    await (await client.request("http://orders.lbd/", { method: "POST", lbd: asked })).text();
    attempts.push(asked.choice.attempt);
  }
  assert.deepEqual(attempts, [2, 1, 1, 1]);
  const picks = calls.filter(({ path }) => path === "/v1/pick");
  assert.deepEqual(
    picks.map(({ query }) => [query.get("n"), query.get("hash"), query.get("exclude")]),
    [
      ["20", "x", null],
      ["20", "x", dead],
    ],
  );
});

test("a request without a key is retried at any endpoint, also if the batch that is followed is for a key", async (t) => {
  const addresses = ["127.0.0.1:1", "127.0.0.1:2"];
  const { lbd } = await fake(t, (path, _, query) => {
    const picks = addresses.filter((one) => (query.has("hash") ? one === addresses[0] : one !== query.get("exclude")));
    if (path === "/v1/pick") return [200, { generation: 1, picks: picks.map((address) => ({ address })) }];
    return deferred().promise;
  });
  const client = open(t, { lbd });
  const deadline = new Deadline(60_000);
  const limit = new Limit(deadline);
  t.after(() => limit.release());
  (await client.call("orders", deadline, true, "&hash=x").first()).finish();
  const tried = [];
  for (let i = 0; i < 2; i++) {
    const call = client.call("orders", deadline, true);
    const attempt = await call.first();
    attempt.answered(503);
    const other = await call.retry(attempt, limit);
    tried.push([attempt.address, other?.address].sort());
  }
  assert.deepEqual(tried, [addresses, addresses]);
});

test("requests that need the batch of a key at the same time wait for one call, each within its deadline", async (t) => {
  const begun = deferred();
  const end = deferred();
  let failed = false;
  const { lbd, calls } = await fake(t, async (path, _, query) => {
    if (path !== "/v1/pick") return deferred().promise;
    if (query.get("hash") === "b") {
      begun.resolve(undefined);
      await end.promise;
    }
    if (query.get("hash") === "c" && !failed) {
      failed = true;
      return [503, { code: "no_ready_endpoint" }];
    }
    return [200, { generation: 1, picks: [{ address: "127.0.0.1:1" }] }];
  });
  const states = [];
  const client = open(t, { lbd, maxAge: 600_000, onState: (state) => states.push(state) });
  const pick = async (hash, timeout) =>
    (await client.call("orders", new Deadline(timeout), true, `&hash=${hash}`).first()).finish();
  const asked = () => calls.filter(({ query }) => query.get("hash") === "b").length;
  await pick("a", 60_000);
  const late = pick("b", 50);
  await begun.promise;
  const others = Array.from({ length: 100 }, () => pick("b", 60_000));
  await assert.rejects(late, { name: "TimeoutError" }); // the call does not end with it
  end.resolve(undefined);
  await Promise.all([...others, pick("b", 60_000)]);
  assert.equal(asked(), 1);
  await pick("b", 60_000);
  assert.equal(asked(), 1);
  await assert.rejects(pick("c", 60_000), { code: "no_ready_endpoint" });
  await pick("c", 60_000);
  assert.deepEqual(states, []);
});

test("calls for many keys at the same time give no warning", async (t) => {
  const { lbd } = await fake(t, () => [200, { generation: 1, picks: [{ address: "127.0.0.1:1" }] }]);
  const warnings = [];
  const onWarning = (warning) => warnings.push(warning);
  process.on("warning", onWarning);
  t.after(() => process.off("warning", onWarning));
  const client = open(t, { lbd });
  const pick = async (i) => (await client.call("orders", new Deadline(60_000), true, `&hash=${i}`).first()).finish();
  await Promise.all(Array.from({ length: 100 }, (_, i) => pick(i)));
  assert.deepEqual(warnings, []);
});

test("a path without a route is no error of others", async (t) => {
  const { lbd } = await fake(t, (_, __, query) =>
    query.get("path") === "/bad"
      ? [404, { code: "no_route" }]
      : [200, { generation: 1, picks: [{ address: "127.0.0.1:1", cluster: "orders" }] }],
  );
  const client = open(t, { lbd });
  const first = (path) => client.call("xds:///shop", new Deadline(10_000), true, `&path=${path}`).first();
  await assert.rejects(first("/bad"), { code: "no_route" });
  (await first("/good")).finish();
  await assert.rejects(first("/bad"), { code: "no_route" });
});

test("a path that lbd rejects is no error of others", async (t) => {
  const { lbd, calls } = await fake(t, (_, __, query) =>
    query.get("path") === "/bad"
      ? [400, { code: "invalid_argument" }]
      : [200, { generation: 1, picks: [{ address: "127.0.0.1:1", cluster: "orders" }] }],
  );
  const client = open(t, { lbd });
  const first = (path, name = "shop") =>
    client.call(`xds:///${name}`, new Deadline(10_000), true, `&path=${path}`).first();
  const rejected = () => calls.filter(({ query }) => query.get("path") === "/bad").length;
  await assert.rejects(first("/bad", "other"), { code: "invalid_argument" });
  await assert.rejects(first("/bad"), { code: "invalid_argument" });
  (await first("/good")).finish();
  await assert.rejects(first("/bad"), { code: "invalid_argument" });
  const before = rejected();
  await sleep(1100); // lbd is asked for the other target again
  (await first("/good", "other")).finish();
  assert.equal(rejected(), before);
});

test("clusters beyond the limit are not followed, also while lbd is unreachable", async (t) => {
  const { lbd, calls } = await fake(t, () => [502, {}]);
  const client = open(t, { lbd });
  for (let i = 0; i < 1010; i++) {
    await assert.rejects(client.call(String(i), new Deadline(60_000), true).first(), UnavailableError);
  }
  const count = (those) => calls.filter(({ query }) => those(Number(query.get("cluster")))).length;
  const others = () => count((name) => name < 1000);
  const last = (n) => until(() => count((name) => name === 1009) >= n, "the last cluster is followed");
  let before;
  // Calls that were under way may still arrive.
  for (let n = 2; n <= 6 && others() !== before; n += 2) {
    await last(n);
    before = others();
    await last(n + 2);
  }
  assert.equal(others(), before);
});

test("a TLS handshake that does not end is a connection that failed", async (t) => {
  const server = net.createServer(() => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const { lbd } = await fake(t, () => [200, { generation: 1, picks: [{ address: `127.0.0.1:${port}` }] }]);
  const client = open(t, { lbd, connectTimeout: 100 });
  await assert.rejects(client.request("https://orders.lbd/"), { code: "ETIMEDOUT" });
});

test("a generation that never is that of the batch does not make calls without a pause", async (t) => {
  const { lbd, count } = await fake(t, (path) =>
    path === "/v1/pick" ? [200, { generation: 5, picks: [{ address: "127.0.0.1:1" }] }] : [200, { generation: 7 }],
  );
  const began = performance.now();
  const client = open(t, { lbd });
  (await client.call("orders", new Deadline(10_000), true).first()).finish();
  await until(() => count("/v1/pick") >= 6, "there were six batches");
  assert(performance.now() - began > 450, "100 ms between two of them");
});

test("a report that is rejected is part of the next one", async (t) => {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  let reports = 0;
  const { lbd } = await fake(t, (path, body) => {
    if (ended(path, body)) return ++reports === 1 ? [503, away] : [200, {}];
    return [200, { generation: 1, picks: [{ address: upstream.address }] }];
  });
  const client = open(t, { lbd, reportInterval: 50 });
  await (await client.request("http://orders.lbd/")).text();
  await until(() => reports === 2, "there is a second report");
});
