// What only the core does, with a real daemon and real upstreams.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Client, UnavailableError, UnknownClusterError } from "lbd-client";

import { Daemon, status, Upstream, until } from "./stand.js";

const daemon = new Daemon();
before(() => daemon.start());
after(() => daemon.close());

let clusters = 0;

async function open(t, behave = undefined, settings = {}) {
  const upstream = await Upstream.start(behave);
  const cluster = `core-${++clusters}`;
  await daemon.push(cluster, [upstream.address]);
  const client = new Client({ lbd: daemon.lbd, ...settings });
  t.after(async () => {
    await client.close();
    upstream.close();
  });
  return { client, upstream, cluster, url: `http://${cluster}.lbd/` };
}

test("a request is in flight until its body is read or destroyed", async (t) => {
  const { client, cluster, url } = await open(t, undefined, { mode: "lease" });
  const none = () => until(async () => (await daemon.inFlight(cluster)) === 0, "the lease is ended");
  const first = await client.request(url);
  assert.equal(await daemon.inFlight(cluster), 1);
  await first.text();
  await none();
  const second = await client.request(url);
  assert.equal(await daemon.inFlight(cluster), 1);
  second.body.destroy();
  await none();
});

test("a response without a body needs no reader", async (t) => {
  const { client, cluster, url, upstream } = await open(t, (_, response) => response.writeHead(204).end());
  for (const method of ["HEAD", "DELETE", "GET"]) {
    const response = await client.request(url, { method });
    assert.equal(response.status, 204);
    await until(() => response.body.closed, "the response is read");
  }
  assert.equal(upstream.connections.size, 1);
  await client.close();
  assert.equal(await daemon.reported(cluster, "success"), 3);
});

test("connections are used again", async (t) => {
  const behave = (request, response) =>
    response.writeHead(200, { "content-length": 1 }).end(request.method === "HEAD" ? "" : "x");
  const { client, url, upstream } = await open(t, behave);
  for (const method of ["GET", "POST", "HEAD", "GET"]) {
    await (await client.request(url, { method })).text();
    await new Promise(setImmediate); // node:http returns connections later in the turn of the event loop
  }
  assert.equal(upstream.connections.size, 1);
});

test("a request is repeated whose connection had ended", async (t) => {
  const behave = (request, response) => response.end("x", () => setImmediate(() => request.socket.resetAndDestroy()));
  const { client, cluster, url, upstream } = await open(t, behave, { retries: 0 });
  for (let i = 0; i < 50; i++) await (await client.request(url)).text();
  assert.equal(upstream.requests.length, 50);
  await client.close();
  assert.equal(await daemon.reported(cluster, "success"), 50);
});

test("the deadline holds for the body, however slowly it comes", async (t) => {
  const { client, url } = await open(t, (_, response) => {
    const timer = setInterval(() => response.write("."), 20);
    response.on("close", () => clearInterval(timer));
  });
  const response = await client.request(url, { timeout: 2000 });
  await assert.rejects(response.text(), { name: "TimeoutError" });
});

test("the signal of the caller ends the body", async (t) => {
  const { client, url } = await open(t, (_, response) => response.write("."));
  const controller = new AbortController();
  const response = await client.request(url, { signal: controller.signal });
  const body = response.text();
  controller.abort();
  await assert.rejects(body, { name: "AbortError" });
});

test("the error of a body is that of its caller", async (t) => {
  const { client, cluster, url } = await open(t);
  async function* body() {
    yield "x";
    throw Object.assign(new Error("no such file"), { code: "ENOENT" });
  }
  await assert.rejects(client.request(url, { method: "PUT", body: body() }), { code: "ENOENT" });
  await client.close();
  assert.equal(await daemon.reported(cluster, "error"), 0);
  assert.equal(await daemon.reported(cluster, "cancelled"), 1);
});

test("arguments that are not valid blame no endpoint", async (t) => {
  const { client, cluster, url } = await open(t);
  await assert.rejects(client.request(url, { headers: { x: "\n" } }), { code: "ERR_INVALID_CHAR" });
  await assert.rejects(client.request("ftp://x"), TypeError);
  await client.close();
  assert.equal(await daemon.reported(cluster, "error"), 0);
});

test("a client works through a restart of lbd", async (t) => {
  const { client, cluster, url, upstream } = await open(t, undefined, { maxAge: 200 });
  const send = async () => (await client.request(url)).text();
  await send();
  await daemon.stop();
  assert.equal(await send(), upstream.address);
  await daemon.start();
  const other = await Upstream.start();
  t.after(() => other.close());
  await daemon.push(cluster, [other.address]);
  await until(async () => (await send()) === other.address, "the batch has the new endpoint");
});

test("clusters whose names are special in URLs are followed", async (t) => {
  const { client, url } = await open(t, undefined, { maxAge: 60_000, hosts: { first: "watch", second: ".." } });
  assert.equal((await client.request(url)).status, 200);
  for (const [host, cluster] of Object.entries({ first: "watch", second: "..", third: "a/b" })) {
    const [before, after] = await Promise.all([Upstream.start(), Upstream.start()]);
    t.after(() => [before, after].map((upstream) => upstream.close()));
    const path = cluster === "watch" ? "%77atch" : encodeURIComponent(cluster).replaceAll(".", "%2E");
    const push = (upstream) => {
      const [address, port] = upstream.address.split(":");
      const endpoint = { address: { socket_address: { address, port_value: Number(port) } } };
      const body = { endpoints: [{ lb_endpoints: [{ endpoint }] }] };
      return daemon.call("PUT", `/v1/clusters/${path}/endpoints`, /** @type {any} */ (body));
    };
    await push(before);
    const other = new Client({ lbd: daemon.lbd, maxAge: 60_000, hosts: { [host]: cluster } });
    t.after(() => other.close());
    const send = async () => (await other.request(`http://${host}/`)).text();
    assert.equal(await send(), before.address);
    await push(after);
    await until(async () => (await send()) === after.address, `${cluster} is followed`);
  }
});

test("without batches, names that lbd does not know are forgotten first", async (t) => {
  const upstreams = await Promise.all([Upstream.start(status(503)), Upstream.start(status(503))]);
  t.after(() => upstreams.map((one) => one.close()));
  let tries = 0;
  const client = new Client({ lbd: daemon.lbd, mode: "pick", maxTokens: 3, onAttempt: () => tries++ });
  t.after(() => client.close());
  const triesOf = async (name) => {
    tries = 0;
    await (await client.request(`http://${name}.lbd/`)).text();
    return tries;
  };
  for (const name of ["first", "second"]) {
    await daemon.push(
      name,
      upstreams.map(({ address }) => address),
    );
    assert.equal(await triesOf(name), 2);
    assert.equal(await triesOf(name), 1, "no token is left");
  }
  for (let i = 0; i < 1100; i++) await assert.rejects(triesOf(`later-${i}`), UnknownClusterError);
  assert.equal(await triesOf("second"), 1);
  assert.equal(await triesOf("first"), 1);
  for (let i = 0; i < 999; i++) {
    await daemon.push(`known-${i}`, [upstreams[0].address]);
    await triesOf(`known-${i}`);
  }
  assert.equal(await triesOf("first"), 1);
  assert.equal(await triesOf("second"), 2, "it got its last endpoint longest ago");
});

test("names that lbd does not know neither keep it busy, nor clusters from being used", async (t) => {
  const { client, url, upstream } = await open(t, undefined, { maxAge: 100 });
  const send = async (to) => (await client.request(to)).text();
  const calls = (code) => daemon.metric(`lbd_http_requests_total{code="${code}",method="GET",route="/v1/pick"} `);
  await send(url);
  const before = await calls(404);
  for (let i = 0; i < 1100; i++) await assert.rejects(send(`http://later-${i}.lbd/`), UnknownClusterError);
  assert.equal((await calls(404)) - before, 1100);
  const known = await calls(200);
  await until(async () => (await calls(200)) > known + 10, "the cluster that lbd knows is followed");
  assert.equal((await calls(404)) - before, 1100);
  for (let i = 0; i < 200; i++) await assert.rejects(send("http://later-1098.lbd/"), UnknownClusterError);
  assert((await calls(404)) - before < 1150, "the answer is remembered");
  await daemon.push("later-1099", [upstream.address]);
  await until(() => send("http://later-1099.lbd/").catch(() => undefined), "the cluster is known");
});

test("a response that was forgotten is no longer in flight", async (t) => {
  const { client, cluster, url } = await open(t, (_, response) => response.write("."), { mode: "lease" });
  const endless = { timeout: Number.POSITIVE_INFINITY };
  const collect = () => {
    setFlagsFromString("--expose-gc");
    runInNewContext("gc")();
  };
  const held = await client.request(url, endless);
  const { body } = await client.request(url, endless);
  await client.request(url, endless);
  assert.equal(await daemon.inFlight(cluster), 3);
  await until(async () => {
    collect();
    return (await daemon.inFlight(cluster)) === 2;
  }, "the lease of the third is ended");
  collect();
  assert.equal(await daemon.inFlight(cluster), 2);
  held.body.destroy();
  body.destroy();
  await until(async () => (await daemon.inFlight(cluster)) === 0, "all leases are ended");
});

for (const mode of /** @type {const} */ (["batch", "pick", "lease"])) {
  test(`what is too long for lbd is an error of the request: ${mode}`, async (t) => {
    const { cluster, upstream } = await open(t);
    await daemon.pushTarget("shop", [{ prefix: "/a", cluster }]);
    const states = [];
    const client = new Client({
      lbd: daemon.lbd,
      mode,
      hosts: { "shop.lbd": { target: "shop" } },
      fallback: "127.0.0.1:1",
      onState: (state) => states.push(state),
    });
    t.after(() => client.close());
    const send = async (to) => (await client.request(to)).text();
    for (const url of [
      `http://shop.lbd/${"%2F".repeat(100_000)}`,
      `http://${"a".repeat(100_000)}.lbd/`,
      `http://shop.lbd/a${"a".repeat(5000)}`, // lbd says so
    ]) {
      await assert.rejects(send(url), { name: "UnavailableError", code: "invalid_argument", message: /^.{1,900}$/ });
      assert.equal(await send("http://shop.lbd/a"), upstream.address);
    }
    assert.deepEqual(states, []);
  });

  test(`a request waits for another priority: ${mode}`, async (t) => {
    const probing = new Daemon();
    t.after(() => probing.close());
    await probing.start("tcp");
    const [first, second] = await Promise.all([Upstream.start(), Upstream.start()]);
    t.after(() => second.close());
    await probing.push("orders", [first.address], undefined, [second.address]);
    const client = new Client({ lbd: probing.lbd, mode });
    t.after(() => client.close());
    const send = async () => (await client.request("http://orders.lbd/")).text();
    assert.equal(await send(), first.address);
    first.close();
    assert.equal(await send(), second.address);
  });
}

test("errors are reported early", async (t) => {
  const { client, cluster, url } = await open(t, status(500), { reportInterval: 600_000 });
  for (let i = 0; i < 5; i++) await (await client.request(url)).text();
  await until(async () => (await daemon.reported(cluster, "error")) === 5, "the errors are reported");
});

test("a closed client sends nothing", async (t) => {
  const { client, url } = await open(t);
  await Promise.all([client.close(), client.close()]);
  await assert.rejects(client.request(url), UnavailableError);
});
