// Requests through each HTTP library, with a real daemon and real upstreams.

import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Readable } from "node:stream";
import { after, afterEach, before, describe, test } from "node:test";

import { Client, DroppedError, UnavailableError, UnknownClusterError } from "lbd-client";

import { causeOf, libraries, withUndici } from "./libraries.js";
import { Daemon, hang, refuses, reset, Silent, status, Upstream, until } from "./stand.js";

// undici 6 is there in the tests of this folder, but not in that of the package.
const undici6 = await import("undici6").catch(() => undefined);
if (undici6 !== undefined) libraries["undici 6"] = (client) => withUndici(undici6, client);

const daemon = new Daemon();
before(() => daemon.start());
after(() => daemon.close());

const rejectsWith = (promise, Kind) =>
  assert.rejects(promise, (error) => {
    assert(causeOf(error) instanceof Kind, String(error));
    return true;
  });

/** So many requests that each of two endpoints gets one: the elements of a batch are in random order. */
const MANY = 48;

let clusters = 0;

for (const [library, connect] of Object.entries(libraries)) {
  describe(library, () => {
    let cleanups = [];
    afterEach(async () => {
      for (const cleanup of cleanups) await cleanup();
      cleanups = [];
    });

    const start = async (behave = undefined) => {
      const upstream = await Upstream.start(behave);
      cleanups.push(() => upstream.close());
      return upstream;
    };
    const open = (settings = {}) => {
      const client = new Client({ lbd: daemon.lbd, ...settings });
      cleanups.unshift(() => client.close());
      return { client, send: connect(client) };
    };
    /** A new cluster of upstreams. */
    const clusterOf = async (behaviors, policy = undefined) => {
      const cluster = `libraries-${++clusters}`;
      const upstreams = await Promise.all(behaviors.map(start));
      const addresses = upstreams.map((upstream) => upstream.address);
      await daemon.push(cluster, addresses, policy);
      return { cluster, url: `http://${cluster}.lbd`, upstreams };
    };

    test("keeps host, path and body", async () => {
      const { cluster, url, upstreams } = await clusterOf([undefined]);
      const { send } = open();
      const answer = await send("POST", `${url}/a%20b?c=d`, { body: "bödy" });
      assert.deepEqual(answer, [200, upstreams[0].address]);
      assert.deepEqual(upstreams[0].requests, [
        { method: "POST", path: "/a%20b?c=d", host: `${cluster}.lbd`, body: "bödy" },
      ]);
    });

    test("sends a stream once", async () => {
      const { url, upstreams } = await clusterOf([undefined, status(503)]);
      const { send } = open();
      const statuses = new Set();
      for (let i = 0; i < MANY; i++) {
        const body = library.includes("fetch") ? Readable.toWeb(Readable.from(["x", "y"])) : Readable.from(["x", "y"]);
        statuses.add((await send("PUT", url, { body, duplex: "half" }))[0]);
      }
      assert.deepEqual(statuses, new Set([200, 503]));
      const requests = upstreams.flatMap((upstream) => upstream.requests);
      assert.equal(requests.length, MANY);
      assert(requests.every((request) => request.body === "xy"));
    });

    test("does not touch other hosts", async () => {
      const upstream = await start();
      const { send } = open();
      assert.equal((await send("GET", `http://${upstream.address}/x`))[0], 200);
      assert.deepEqual(upstream.requests, [{ method: "GET", path: "/x", host: upstream.address, body: "" }]);
    });

    for (const mode of ["batch", "pick", "lease"]) {
      for (const [what, broken] of Object.entries({ reset, 503: status(503) })) {
        test(`retries at another endpoint: ${mode}, ${what}`, async () => {
          const { url, upstreams } = await clusterOf([undefined, broken]);
          const { send } = open({ mode });
          // The other two cannot repeat a body: fetch makes a stream of it.
          const body = library === "undici's fetch" || library.includes("dispatcher") ? undefined : "x";
          for (let i = 0; i < MANY; i++) {
            assert.deepEqual(await send("PUT", url, { body }), [200, upstreams[0].address]);
          }
          assert(upstreams[1].requests.length > 0);
          assert(upstreams[0].requests.every((request) => request.body === (body ?? "")));
        });
      }
    }

    for (const mode of ["batch", "pick", "lease"]) {
      test(`sends elsewhere what was not sent: ${mode}`, async () => {
        const { cluster, url, upstreams } = await clusterOf([undefined]);
        await daemon.push(cluster, [upstreams[0].address, await refuses()]);
        const { client, send } = open({ mode, maxTokens: 0, retries: 0 });
        for (let i = 0; i < MANY; i++) {
          const stream = Readable.from(["x", "y"]);
          const body = library.includes("fetch") ? Readable.toWeb(stream) : stream;
          assert.deepEqual(await send("POST", url, { body, duplex: "half" }), [200, upstreams[0].address]);
        }
        assert.equal(upstreams[0].requests.length, MANY);
        assert(upstreams[0].requests.every((request) => request.body === "xy"));
        await client.close();
        assert.equal(await daemon.reported(cluster, "error"), 0);
        const name =
          mode === "lease"
            ? `lbd_leases_finished_total{cluster="${cluster}",outcome="unreachable"} `
            : `lbd_reported_connect_failures_total{cluster="${cluster}"} `;
        assert((await daemon.metric(name)) > 0);
      });
    }

    test("does not wait for an endpoint that is silent", async (t) => {
      const { cluster, url, upstreams } = await clusterOf([undefined]);
      await daemon.push(cluster, [upstreams[0].address, (await Silent.start(t)).address]);
      const { send } = open({ connectTimeout: 60_000 });
      for (let i = 0; i < 8; i++) {
        assert.deepEqual(await send("POST", url, { body: "x", timeout: 5000 }), [200, upstreams[0].address]);
      }
    });

    test("does not call a connect late because this process is busy", async () => {
      const { cluster, url } = await clusterOf([undefined, undefined]);
      const { client, send } = open();
      assert.equal((await send("GET", url))[0], 200); // there is a batch
      const hold = () => {
        unsubscribe("net.client.socket", hold);
        const end = performance.now() + 400;
        const busy = () => {
          while (performance.now() < end);
        };
        process.nextTick(() => process.nextTick(() => process.nextTick(busy))); // the connect is under way
      };
      subscribe("net.client.socket", hold);
      const answers = await Promise.all([1, 2, 3, 4].map(() => send("GET", url)));
      assert(answers.every(([status]) => status === 200));
      await client.close();
      assert.equal(await daemon.metric(`lbd_reported_connect_failures_total{cluster="${cluster}"} `), 0);
    });

    test("retries a POST only with a key", async () => {
      const { url, upstreams } = await clusterOf([undefined, status(503)]);
      const { send } = open();
      const statuses = new Set();
      for (let i = 0; i < MANY; i++) statuses.add((await send("POST", url))[0]);
      assert.deepEqual(statuses, new Set([200, 503]));
      assert.equal(upstreams[0].requests.length + upstreams[1].requests.length, MANY);
      for (let i = 0; i < 8; i++) {
        assert.equal((await send("POST", url, { headers: { "Idempotency-Key": "1" } }))[0], 200);
      }
    });

    test("uses a connection again after a response that is retried", async () => {
      const { url, upstreams } = await clusterOf([undefined, status(503)]);
      const { send } = open();
      for (let i = 0; i < MANY; i++) assert.equal((await send("GET", url))[0], 200);
      assert(upstreams[1].requests.length > 1);
      assert.equal(upstreams[1].connections.size, 1);
    });

    test("does not read the rest of a long response that is retried", async () => {
      let closed = 0;
      const endless = (_, response) => {
        response.on("close", () => closed++);
        response.writeHead(503).write(Buffer.alloc(100_000));
      };
      const { url, upstreams } = await clusterOf([undefined, endless]);
      const { send } = open();
      for (let i = 0; i < MANY; i++) assert.deepEqual(await send("GET", url), [200, upstreams[0].address]);
      await until(() => closed > 0 && closed === upstreams[1].requests.length, "the connections are closed");
    });

    test("gives the result of the last try", async () => {
      const { url, upstreams } = await clusterOf([status(503), status(502)]);
      const { send } = open();
      const [code, body] = await send("GET", url);
      assert([502, 503].includes(code));
      assert.equal(body, "no");
      assert.equal(upstreams[0].requests.length + upstreams[1].requests.length, 2);
    });

    // The other two follow redirects by themselves, as every fetch does.
    if (library !== "undici's fetch" && !library.includes("dispatcher")) {
      test("returns redirects", async () => {
        const { url: other, upstreams } = await clusterOf([undefined]);
        const { url } = await clusterOf([(_, response) => response.writeHead(307, { location: other }).end("moved")]);
        const { send } = open();
        assert.deepEqual(await send("GET", url), [307, "moved"]);
        assert.equal(upstreams[0].requests.length, 0);
        if (library === "fetch") assert.equal((await send("GET", url, { redirect: "follow" }))[0], 200);
      });
    }

    test("keeps the deadline", async () => {
      const { url, upstreams } = await clusterOf([hang, hang]);
      const { send } = open();
      const began = performance.now();
      await assert.rejects(send("GET", url, { timeout: 1000 }), (error) => causeOf(error).name === "TimeoutError");
      assert(performance.now() - began < 20_000, "not the 30 s of the client");
      assert.equal(upstreams[0].requests.length + upstreams[1].requests.length, 1);
    });

    test("keeps the deadline of the client", async () => {
      const { url } = await clusterOf([hang]);
      const { send } = open({ timeout: 1500 });
      await assert.rejects(send("GET", url), (error) => causeOf(error).name === "TimeoutError");
    });

    test("ends with the signal of its caller", async () => {
      const { cluster, url, upstreams } = await clusterOf([hang]);
      const { client, send } = open();
      const controller = new AbortController();
      const sent = send("GET", url, { signal: controller.signal });
      await until(() => upstreams[0].requests.length === 1, "the request is there");
      controller.abort();
      await assert.rejects(sent, { name: "AbortError" });
      await client.close();
      assert.equal(await daemon.reported(cluster, "cancelled"), 1);
      await assert.rejects(send("GET", url, { signal: AbortSignal.abort() }));
    });

    test("reports how requests ended", async () => {
      const behave = ({ url }, response) => response.writeHead(url === "/bad" ? 500 : 200).end();
      const { cluster, url } = await clusterOf([behave]);
      const { client, send } = open();
      for (const path of ["/", "/", "/bad"]) await send("GET", url + path);
      await client.close();
      assert.equal(await daemon.reported(cluster, "success"), 2);
      assert.equal(await daemon.reported(cluster, "error"), 1);
    });

    test("ends leases", async () => {
      const { cluster, url } = await clusterOf([undefined]);
      const { send } = open({ mode: "lease" });
      for (let i = 0; i < 5; i++) await send("GET", url);
      await until(async () => (await daemon.inFlight(cluster)) === 0, "no lease is held");
    });

    test("ends the lease of a request that is given up", async () => {
      const { cluster, url, upstreams } = await clusterOf([hang]);
      const { send } = open({ mode: "lease" });
      const controller = new AbortController();
      const sent = send("GET", url, { signal: controller.signal });
      await until(() => upstreams[0].requests.length === 1, "the request is there");
      assert.equal(await daemon.inFlight(cluster), 1);
      controller.abort();
      await assert.rejects(sent);
      await until(async () => (await daemon.inFlight(cluster)) === 0, "no lease is held");
    });

    test("names unknown clusters", async () => {
      const { send } = open();
      await rejectsWith(send("GET", "http://no-such-cluster.lbd/"), UnknownClusterError);
    });

    for (const mode of ["batch", "pick", "lease"]) {
      test(`says when lbd is unreachable: ${mode}`, async () => {
        const upstream = await start();
        const lbd = "http://127.0.0.1:1";
        await rejectsWith(open({ lbd, mode }).send("GET", "http://orders.lbd/"), UnavailableError);
        const { send } = open({ lbd, mode, fallback: upstream.address });
        assert.equal((await send("GET", "http://orders.lbd/"))[0], 200);
      });
    }

    test("drops what lbd drops", async () => {
      const drop_overloads = [{ category: "shed", drop_percentage: { numerator: 50 } }];
      const { url, upstreams } = await clusterOf([undefined], { drop_overloads });
      const { send } = open();
      let dropped = 0;
      for (let i = 0; i < 100; i++) {
        await send("GET", url).catch((error) => {
          if (!(causeOf(error) instanceof DroppedError)) throw error;
          dropped++;
        });
      }
      assert(dropped > 10 && dropped < 90, `${dropped} of 100`);
      assert.equal(upstreams[0].requests.length, 100 - dropped);
    });

    // The other two have no options of their own.
    const hasOptions = library !== "undici's fetch" && !library.includes("dispatcher");

    for (const mode of ["batch", "pick", "lease"]) {
      test(`asks for endpoints of hash keys: ${mode}`, async () => {
        const { cluster, url } = await clusterOf([undefined, undefined, undefined]);
        await daemon.call(
          "PUT",
          `/v1/clusters/${cluster}/config`,
          /** @type {any} */ ({ type: "EDS", lb_policy: "RING_HASH" }),
        );
        const { send } = open({ mode, hosts: { [`${cluster}.lbd`]: { hash: "header:X-User" } } });
        const to = async (key) => (await send("GET", url, { headers: { "x-user": key } }))[1];
        const keys = Array.from({ length: 20 }, (_, i) => `user ${i}`);
        const first = await Promise.all(keys.map(to));
        assert.equal(new Set(first).size, 3);
        assert.deepEqual(await Promise.all(keys.map(to)), first);
        if (!hasOptions) return;
        for (const [i, hash] of keys.entries()) {
          const lbd = /** @type {any} */ ({ hash });
          const [, address] = await send("GET", url, { headers: { "x-user": "other" }, lbd });
          assert.equal(address, first[i]);
          const locality = { region: "", zone: "zone 0", subZone: "" };
          assert.deepEqual(lbd.choice, { cluster, address, hostname: "", locality, priority: 0, attempt: 1 });
        }
      });

      test(`asks for endpoints of targets: ${mode}`, async () => {
        const [beta, slow, rest] = await Promise.all([1, 2, 3].map(() => clusterOf([undefined])));
        const routes = [
          { tenant: "beta", cluster: beta.cluster },
          { prefix: "/slow", cluster: slow.cluster },
          { cluster: rest.cluster },
        ];
        const target = `target-${rest.cluster}`;
        await daemon.pushTarget(target, routes);
        const { client, send } = open({ mode, hosts: { shop: { target, headers: ["Tenant"] } } });
        const to = async (path, options) => (await send("GET", `http://shop${path}`, options))[1];
        assert.equal(await to("/?/slow"), rest.upstreams[0].address);
        assert.equal(await to("/slow?x"), slow.upstreams[0].address);
        assert.equal(await to("/slow", { headers: { tenant: "beta" } }), beta.upstreams[0].address);
        if (hasOptions) {
          assert.equal(await to("/", { lbd: { path: "/slow" } }), slow.upstreams[0].address);
          assert.equal(await to("/", { lbd: { headers: { tenant: "beta" } } }), beta.upstreams[0].address);
        }
        await client.close();
        if (mode === "batch") assert.equal(await daemon.reported(slow.cluster, "success"), hasOptions ? 2 : 1);
      });
    }

    if (hasOptions) {
      test("says what lbd has chosen after an error", async () => {
        const { cluster, url, upstreams } = await clusterOf([status(503)]);
        await daemon.push(cluster, [upstreams[0].address, await refuses()]);
        const { send } = open();
        const attempts = new Set();
        for (let i = 0; i < MANY; i++) {
          const lbd = /** @type {any} */ ({});
          assert.equal((await send("POST", url, { lbd }))[0], 503);
          assert.equal(lbd.choice.address, upstreams[0].address);
          attempts.add(lbd.choice.attempt);
        }
        assert.deepEqual([...attempts].sort(), [1, 2]);
        await daemon.push(cluster, [await refuses()]);
        const { send: other } = open({ mode: "pick" });
        const lbd = /** @type {any} */ ({});
        await assert.rejects(other("POST", url, { lbd }));
        assert.equal(lbd.choice.attempt, 1);
      });
    }

    test("passes large bodies at the speed of the reader", async () => {
      const { url } = await clusterOf([(_, response) => response.end(Buffer.alloc(4_000_000, "x"))]);
      const { send } = open();
      assert.equal((await send("GET", url))[1].length, 4_000_000);
    });
  });
}
