// What a program gets to know of tries and of lbd, with a real daemon and real upstreams.

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { test } from "node:test";

import { Client, UnavailableError } from "lbd-client";

import { causeOf, libraries } from "./libraries.js";
import { Daemon, refuses, status, Upstream, until } from "./stand.js";

/** A logger that remembers what it gets. */
function logger() {
  const lines = [];
  const level = (name) => (message) => lines.push(`${name} ${message}`);
  return { lines, debug: level("debug"), info: level("info"), warn: level("warn") };
}

for (const [library, connect] of Object.entries(libraries)) {
  test(`hooks get tries and states, and may fail: ${library}`, async (t) => {
    const daemon = new Daemon();
    t.after(() => daemon.close());
    await daemon.start();
    const dead = await refuses();
    const alive = await Upstream.start(status(404));
    t.after(() => alive.close());
    await daemon.push("orders", [dead]);

    const got = [];
    const requests = new AsyncLocalStorage();
    const log = logger();
    const client = new Client({
      lbd: daemon.lbd,
      mode: "pick",
      token: "lbd_secret",
      hosts: { "orders.lbd": { hash: "header:X-User" } },
      onAttempt({ cluster, address, attempt, outcome, duration, method, origin, status, error }) {
        assert(duration > 0);
        const request = requests.getStore();
        got.push([request, method, origin, cluster, address, attempt, outcome, status, error !== undefined].join(" "));
        throw new Error("of the test");
      },
      async onState(state) {
        got.push(state);
        throw new Error("of the test");
      },
      logger: log,
    });
    t.after(() => client.close());
    const send = connect(client);
    let sent = 0;
    const post = () =>
      requests.run(++sent, () =>
        send("POST", "http://orders.lbd:81/?q=secret", { body: "secret", headers: { "X-User": "secret" } }),
      );
    await assert.rejects(post());
    await daemon.push("orders", [alive.address]);
    await post();
    await daemon.stop();
    for (let i = 0; i < 2; i++) {
      await assert.rejects(post(), (error) => {
        const { message } = causeOf(error);
        assert(causeOf(error) instanceof UnavailableError, message);
        const expected = `lbd is unreachable: GET /v1/pick at ${daemon.lbd} (the setting lbd): connect ENOENT`;
        assert(message.startsWith(`cluster orders: ${expected}`), message);
        assert(!message.includes("secret"));
        return true;
      });
    }
    await daemon.start();
    await post();
    await client.close();

    assert.deepEqual(got, [
      `1 POST http://orders.lbd:81 orders ${dead} 1 unreachable  true`,
      `2 POST http://orders.lbd:81 orders ${alive.address} 1 success 404 false`,
      "unreachable",
      "recovered",
      `5 POST http://orders.lbd:81 orders ${alive.address} 1 success 404 false`,
    ]);
    const text = log.lines.join("\n");
    assert(!text.includes("secret"), text);
    assert.equal(log.lines.filter((line) => line === "warn lbd: a hook has failed: of the test").length, got.length);
    const debug = log.lines.filter((line) => line.startsWith("debug"));
    assert.equal(debug.length, 3);
    assert.match(debug[0], new RegExp(`^debug lbd: cluster orders: try 1 at ${dead}: unreachable in [0-9.]+ ms$`));
    const states = log.lines.filter((line) => /^(info|warn lbd: unreachable: GET .v1.pick at)/.test(line));
    assert.equal(states.length, 2);
    assert.equal(states[1], "info lbd: lbd answers again");
  });
}

test("a batch that is too old is a state", async (t) => {
  const daemon = new Daemon();
  t.after(() => daemon.close());
  await daemon.start();
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  await daemon.push("orders", [upstream.address]);
  const states = [];
  const client = new Client({ lbd: daemon.lbd, maxAge: 100, staleFor: 0, onState: (state) => states.push(state) });
  t.after(() => client.close());
  const send = async () => (await client.request("http://orders.lbd/")).text();
  await send();
  await daemon.stop();
  await until(
    () =>
      send().then(
        () => false,
        () => true,
      ),
    "the batch is too old",
  );
  await assert.rejects(send(), UnavailableError);
  assert.deepEqual(states, ["unreachable", "stale"]);
  await daemon.start();
  await until(
    () =>
      send().then(
        () => true,
        () => false,
      ),
    "lbd answers again",
  );
  assert.deepEqual(states, ["unreachable", "stale", "recovered"]);
});

test("a client that is closed has no state", async (t) => {
  const daemon = new Daemon();
  t.after(() => daemon.close());
  await daemon.start();
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  await daemon.push("orders", [upstream.address]);
  const states = [];
  const client = new Client({ lbd: daemon.lbd, mode: "lease", onState: (state) => states.push(state) });
  const { body } = await client.request("http://orders.lbd/");
  await daemon.stop();
  await client.close(); // it cannot end the lease
  body.destroy();
  assert.deepEqual(states, []);
});

test("errors say how lbd was found", async (t) => {
  const { LBD } = process.env;
  t.after(() => {
    if (LBD === undefined) delete process.env.LBD;
    else process.env.LBD = LBD;
  });
  const failsWith = async (settings, expected) => {
    const client = new Client({ mode: "pick", ...settings });
    t.after(() => client.close());
    await assert.rejects(client.request("http://orders.lbd/?secret"), (error) => {
      const { message } = /** @type {Error} */ (error);
      assert.match(message, expected);
      return true;
    });
  };
  process.env.LBD = "unix:/no/such.sock";
  await failsWith({}, /at unix:\/no\/such\.sock \(environment LBD\): connect ENOENT/);
  await failsWith(
    { lbd: "http://127.0.0.1:1" },
    /at http:\/\/127\.0\.0\.1:1 \(the setting lbd\): connect ECONNREFUSED/,
  );
  assert.throws(
    () => new Client({ lbd: "http://user:secret@host/path" }),
    ({ message }) => message.includes("…@host/path") && !message.includes("secret"),
  );
});
