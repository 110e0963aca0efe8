// Parts of the client that need no daemon.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  CircuitBrokenError,
  Client,
  DroppedError,
  LbdError,
  PermissionDeniedError,
  UnavailableError,
  UnknownClusterError,
} from "lbd-client";

import { reasonOf } from "../dist/api.js";
import { ASIDE_MAX, Asides, Connects, FORGET_TIME } from "../dist/aside.js";
import { Asked, asksOf, routeOf } from "../dist/ask.js";
import { Batch, batchOfAnswer, Element } from "../dist/batch.js";
import { Budget } from "../dist/budget.js";
import { Counts, REPORT_AGE } from "../dist/counts.js";
import { Deadline } from "../dist/deadline.js";
import { blamesEndpoint, like, ofAnswer } from "../dist/errors.js";
import { fieldsOf } from "../dist/fields.js";

const noCounts = /** @type {any} */ (undefined);
const batchOf = (answer, name = "orders") => batchOfAnswer({ name, countsOf: () => noCounts }, "", answer, 1000);

describe("Batch", () => {
  const answer = {
    generation: 7,
    picks: [{ address: "a:1" }, { address: "a:1" }, { address: "b:1" }],
    dropped: { throttle: 2 },
    circuit_broken: 1,
  };

  test("takes each element in turn", () => {
    const batch = batchOf(answer);
    for (let round = 0; round < 3; round++) {
      const taken = Array.from({ length: 6 }, () => batch.take(() => false));
      const names = taken.map(({ address, error }) => error?.name ?? address);
      assert.deepEqual(names.sort(), ["CircuitBrokenError", "DroppedError", "DroppedError", "a:1", "a:1", "b:1"]);
    }
  });

  test("takes another address", () => {
    const batch = batchOf(answer);
    assert.equal(batch.draw((address) => address !== "a:1")?.address, "b:1");
    assert.equal(
      batch.draw(() => false),
      undefined,
    );
    const taken = Array.from({ length: 600 }, () => batch.draw(() => true)).filter((one) => one?.address === "a:1");
    assert(taken.length > 330, `${taken.length} of 600, of two thirds`);
  });

  test("keeps the shares of the addresses that are not avoided", () => {
    const picks = [..."abcd"].flatMap((name, i) => new Array(10 * (i + 1)).fill({ address: `${name}:1` }));
    const batch = batchOf({ generation: 7, picks });
    const counts = {};
    for (let i = 0; i < 600; i++) {
      const { address } = batch.take((one) => one === "d:1");
      counts[address] = (counts[address] ?? 0) + 1;
    }
    assert.deepEqual(counts, { "a:1": 100, "b:1": 200, "c:1": 300 });
    assert.equal(batch.taken, 600);
    assert.equal(batch.take(() => true).error, undefined);
  });

  test("shuffles", () => {
    const elements = Array.from({ length: 100 }, (_, index) => new Element({ address: String(index) }, "orders"));
    const batch = new Batch("", 1, [...elements], 1000);
    assert.notDeepEqual(
      elements.map(() => batch.take(() => false)),
      elements,
    );
  });

  for (const wrong of [
    {},
    { generation: 1, picks: [] },
    { generation: 1, picks: [{}] },
    { generation: 1, picks: [null] },
    { generation: 1, picks: [{ address: 7 }] },
    { generation: 1, picks: [{ address: "" }] },
    { generation: 1, picks: [{ address: "a" }] },
    { generation: 1, picks: [{ address: "a:1/x" }] },
    { generation: 1, picks: [{ address: "u@a:1" }] },
    { generation: 1, picks: [{ address: "::1:80" }] },
    { generation: null, picks: [{ address: "a:1" }] },
    { generation: 1, picks: null },
    { generation: 1, picks: [{ address: "a:1" }], dropped: { x: "y" } },
    { generation: 1, picks: [{ address: "a:1" }], circuit_broken: 1e9 },
    { generation: 1, picks: [{ address: "a:1" }], dropped: { x: 600, y: 600 } },
    { generation: 1, picks: new Array(2000).fill({ address: "a:1" }) },
  ]) {
    test(`rejects ${JSON.stringify(wrong).slice(0, 80)}`, () => assert.throws(() => batchOf(wrong), TypeError));
  }

  test("of a target has the cluster of each pick", () => {
    const picks = [{ address: "a:1", cluster: "orders" }];
    const { cluster, error } = batchOf({ generation: 1, picks }, "xds:///shop").take(() => false);
    assert.deepEqual([cluster, error], ["orders", undefined]);
    assert.throws(() => batchOf({ generation: 1, picks: [{ address: "a:1" }] }, "xds:///shop"), TypeError);
  });
});

describe("asksOf", () => {
  const fields = { "x-user": "a&b", Tenant: ["1", "2"], cookie: 'other=sid; sid="7=8"; sid=9', absent: undefined };
  const flat = ["X-User", "a&b", "tenant", "1", "TENANT", "2", "Cookie", "other=1", "cookie", "sid=7=8"];
  const long = "ö".repeat(1000);
  const target = "&path=%2Fa%252Fb%2Fc";
  for (const [host, ask, expected] of /** @type {[any, any, string][]} */ ([
    ["orders", undefined, ""],
    ["orders", {}, ""],
    [{}, { path: "/p" }, ""],
    [{ hash: "header:X-USER" }, undefined, "&hash=a%26b"],
    [{ hash: "header:absent" }, undefined, ""],
    [{ hash: "cookie:sid" }, undefined, "&hash=7%3D8"],
    [{ hash: "cookie:none" }, undefined, ""],
    [{ hash: "cookie:sid" }, { hash: "k" }, "&hash=k"],
    [{ hash: "cookie:sid" }, { hash: "" }, "&hash=7%3D8"],
    ["orders", { hash: long }, `&hash=${encodeURIComponent(long.slice(0, 512))}`],
    ["orders", { hash: `x${long}` }, `&hash=x${encodeURIComponent(long.slice(0, 511))}`],
    [{ target: "t" }, undefined, target],
    ["xds:///t", { path: "/p" }, "&path=%2Fp"],
    [{ target: "xds:///t", headers: ["tenant", "none"] }, undefined, `${target}&header.tenant=1&header.tenant=2`],
    [{ target: "t", headers: ["tenant"], hash: "cookie:sid" }, { headers: {} }, `&hash=7%3D8${target}`],
    [{ target: "t" }, { headers: { b: "1", a: ["2", "3"] } }, `${target}&header.a=2&header.a=3&header.b=1`],
  ])) {
    test(`${JSON.stringify(host)} ${JSON.stringify(ask)?.slice(0, 40)}`, () => {
      const route = routeOf("x.lbd", host);
      for (const headers of [fields, flat]) assert.equal(asksOf(route, ask, "/a%2Fb/c?q=/1", headers), expected);
    });
  }

  test("of a host that is all of the name", () => {
    assert.equal(routeOf("x.lbd", {}).name, "x");
    assert.equal(routeOf("x.lbd", { target: "xds:///y" }).name, "xds:///y");
    assert.equal(asksOf(routeOf("x", "xds:///y"), undefined, "", undefined), "&path=%2F");
  });
});

describe("Asked", () => {
  const asked = new Asked();
  const put = (query, generation, followed = false) =>
    asked.put(new Batch(query, generation, [new Element({ address: "a:1" }, "orders")], 1000), followed);
  const known = (...queries) => queries.filter((query) => asked.get(query) !== undefined);

  test("has batches of one generation", () => {
    put("a", 5, true);
    put("late", 4);
    assert.deepEqual(known("a", "late"), ["a"]);
    put("b", 6);
    assert.deepEqual(known("a", "b"), ["b"]);
    put("refused", undefined, true);
    assert.deepEqual(known("b", "refused"), ["b", "refused"]);
    put("c", 3, true); // after a restart of lbd
    assert.deepEqual(known("b", "refused", "c"), ["c"]);
  });

  test("has those that were used last", () => {
    for (let i = 0; i < 3000; i++) {
      put(String(i), 3);
      assert.deepEqual(known("c"), ["c"]);
    }
    assert.equal(asked.size, 1000);
    assert.deepEqual(known("0", "1999", "2999"), ["2999"]);
    const long = "x".repeat(24 * 1024);
    for (let i = 0; i < 400; i++) {
      put(i + long, 3);
      assert.deepEqual(known("c"), ["c"]);
    }
    assert.equal(asked.size, 171); // 4 MiB
    put("d", 4);
    for (let i = 0; i < 200; i++) put(i + long, 4);
    assert.equal(asked.size, 170);
  });

  test("knows what was answered last, without what is excluded", () => {
    const asked = new Asked();
    const put = (query) => asked.put(new Batch(query, 1, [new Element({ address: "a:1" }, "orders")], 1000), false);
    const check = (last) => assert.equal(asked.last, last);
    put("&hash=y");
    put("&hash=z");
    put("&hash=z&exclude=a%3A1");
    asked.get("&hash=x");
    check("&hash=z");
    asked.get("&hash=y");
    check("&hash=y");
  });
});

describe("Asides", () => {
  let now = 1000;
  const open = (t) => {
    t.mock.method(Math, "random", () => 1);
    return new Asides(() => now);
  };
  const check = (asides, avoided) => {
    const found = Object.keys(avoided).map((address) => [address, asides.avoids(address)]);
    assert.deepEqual(Object.fromEntries(found), avoided);
  };

  test("permit a trial after a time that grows", (t) => {
    const asides = open(t);
    asides.failed("a", false, 2);
    check(asides, { a: true, b: false });
    for (const pause of [1200, 2400, 4800, 9600, 12_000, 12_000]) {
      now += pause - 1;
      check(asides, { a: true });
      now += 2;
      check(asides, { a: false }); // the trial
      check(asides, { a: true });
      asides.failed("a", false, 2);
    }
    now += 13_000;
    check(asides, { a: false });
    asides.failed("a", true, 2); // it was connected
    check(asides, { a: false });
  });

  test("take three ends without an answer", (t) => {
    const asides = open(t);
    for (let i = 0; i < 2; i++) {
      asides.failed("a", true, 2);
      asides.failed("a", true, 2);
      check(asides, { a: false });
      asides.answered("a");
    }
    for (let i = 0; i < 3; i++) asides.failed("a", true, 2);
    check(asides, { a: true });
  });

  test("are not more than permitted, and are forgotten", (t) => {
    const asides = open(t);
    for (const address of "abc") asides.failed(address, false, 2);
    check(asides, { a: true, b: true, c: false });
    assert.deepEqual(asides.avoided(), ["a", "b"]);
    asides.keep(new Set(["b", "c"]));
    check(asides, { a: false, b: true });
    now += 1300;
    assert.deepEqual(asides.avoided(), []);
    check(asides, { b: false });
    check(asides, { b: true });
    now += FORGET_TIME + ASIDE_MAX + 1;
    asides.avoided();
    assert.equal(asides.size, 0);
  });

  test("connects have three times the usual", () => {
    const connects = new Connects();
    for (const [took, limit] of [[10, 250], [400, 1200], ...new Array(15).fill([1, 1200]), [1, 250]]) {
      connects.add(took);
      assert.equal(connects.limit, limit);
    }
  });
});

describe("Budget", () => {
  test("permits retries until half of the tokens are left", () => {
    const budget = new Budget(10);
    const permitted = Array.from({ length: 6 }, () => budget.failed());
    assert.deepEqual(permitted, [true, true, true, true, false, false]);
    for (let i = 0; i < 21; i++) budget.succeeded();
    assert.equal(budget.failed(), true);
  });

  test("fits larger batches", () => {
    const budget = new Budget(10);
    budget.fit(0.2);
    budget.fit(3);
    const permitted = Array.from({ length: 20 }, () => budget.failed());
    assert.equal(permitted.indexOf(false), 14);
    budget.fit(1);
    assert.equal(budget.failed(), true);
  });

  test("never has more than all tokens", () => {
    const budget = new Budget(2);
    for (let i = 0; i < 100; i++) budget.succeeded();
    assert.equal(budget.failed(), false);
  });
});

describe("Counts", () => {
  let now = 1000;
  const zero = { address: "a:1", requests: 0, errors: 0, cancelled: 0, in_flight_seconds: 0, latency_seconds: 0 };

  test("counts the time in flight within the interval", () => {
    const counts = new Counts(() => now);
    const since = now;
    const begin = counts.begin("a:1");
    now += 2000;
    assert.deepEqual(counts.take(), { since, endpoints: [{ ...zero, in_flight_seconds: 2 }] });
    now += 1000;
    counts.ended("a:1", "error", begin);
    now += 1000;
    counts.finish("a:1");
    now += 5000;
    const expected = { ...zero, requests: 1, errors: 1, in_flight_seconds: 2, latency_seconds: 3 };
    assert.deepEqual(counts.take(), { since: since + 2000, endpoints: [expected] });
    assert.deepEqual(counts.take().endpoints, []);
  });

  test("gives back what was not sent", () => {
    const counts = new Counts(() => now);
    const since = now;
    const end = (outcome) => {
      counts.ended("a:1", outcome, counts.begin("a:1"));
      counts.finish("a:1");
    };
    end("cancelled");
    now += 5000;
    const taken = counts.take();
    end("success");
    counts.giveBack(taken);
    assert.deepEqual(counts.take(), { since, endpoints: [{ ...zero, requests: 2, cancelled: 1 }] });
    end("success");
    const old = counts.take();
    now += REPORT_AGE + 1;
    counts.giveBack(old);
    assert.deepEqual(counts.take().endpoints, []);
  });
});

describe("errors", () => {
  for (const [status, problem, Kind, code] of /** @type {[number, Record<string, unknown>, any, string][]} */ ([
    [503, { code: "dropped", detail: "x" }, DroppedError, "dropped"],
    [503, { code: "circuit_broken" }, CircuitBrokenError, "circuit_broken"],
    [404, { code: "unknown_cluster" }, UnknownClusterError, "unknown_cluster"],
    [401, {}, PermissionDeniedError, "401"],
    [403, { code: "permission_denied" }, PermissionDeniedError, "permission_denied"],
    [503, { code: "no_ready_endpoint" }, UnavailableError, "no_ready_endpoint"],
    [429, { code: ["x"] }, UnavailableError, "429"],
  ])) {
    test(`${status} ${JSON.stringify(problem)}`, () => {
      const error = ofAnswer("orders", status, problem, 2000);
      for (const one of [error, like(error)]) {
        assert(one instanceof LbdError);
        assert.deepEqual(
          [one.constructor, one.name, one.code, one.cluster, one.retryAfter],
          [Kind, Kind.name, code, "orders", 2000],
        );
      }
      assert.match(error.message, /orders/);
    });
  }

  test("have a reason if a host has several addresses", () => {
    const error = new AggregateError([new Error("connect ECONNREFUSED ::1:1"), new Error("no route")]);
    assert.equal(reasonOf(error), "connect ECONNREFUSED ::1:1, no route");
    assert.equal(reasonOf("x"), "x");
  });

  test("blame an endpoint for its connections only", () => {
    const withCode = (code) => Object.assign(new Error(), { code });
    for (const code of ["ECONNREFUSED", "ECONNRESET", "UND_ERR_SOCKET", "CERT_HAS_EXPIRED", "HPE_INVALID_CONSTANT"]) {
      assert.equal(blamesEndpoint(withCode(code)), true, code);
    }
    for (const code of ["EMFILE", "EADDRNOTAVAIL", "ERR_INVALID_CHAR", "UND_ERR_INVALID_ARG", undefined]) {
      assert.equal(blamesEndpoint(withCode(code)), false, code);
    }
    assert.equal(blamesEndpoint(new DOMException("x", "AbortError")), false);
  });
});

describe("fieldsOf", () => {
  const cases = /** @type {[unknown, unknown, boolean][]} */ ([
    [undefined, { host: "o" }, false],
    [{ a: "1" }, { a: "1", host: "o" }, false],
    [{ HOST: "x", "Idempotency-Key": "1" }, { HOST: "x", "Idempotency-Key": "1" }, true],
    [["a", "host"], ["a", "host", "host", "o"], false],
    [["Host", "x", "idempotency-key", "1"], ["Host", "x", "idempotency-key", "1"], true],
    [new Headers({ a: "1" }), ["a", "1", "host", "o"], false],
    [new Map([["a", ["1", "2"]]]), ["a", ["1", "2"], "host", "o"], false],
  ]);
  for (const [headers, expected, idempotencyKey] of cases) {
    test(`of ${JSON.stringify(headers)}`, () => {
      assert.deepEqual(fieldsOf(headers, "o"), { headers: expected, idempotencyKey });
    });
  }
});

describe("Client", () => {
  test("knows the hosts of clusters", () => {
    const client = new Client({ lbd: "http://127.0.0.1:1", hosts: { "Shop.test": "eu/orders" } });
    for (const [host, cluster] of [
      ["orders.lbd", "orders"],
      ["eu.orders.lbd", "eu.orders"],
      ["shop.test", "eu/orders"],
      ["SHOP.test", "eu/orders"],
      ["Orders.LBD", "orders"],
      ["lbd", undefined],
      [".lbd", undefined],
      ["orders.lbd.example", undefined],
      ["constructor", undefined],
      ["", undefined],
    ]) {
      assert.equal(client.clusterOf(host), cluster, host);
    }
    const other = new Client({ lbd: "http://127.0.0.1:1", hosts: (host) => (host === "a" ? "b" : undefined) });
    assert.deepEqual([other.clusterOf("a"), other.clusterOf("c"), other.clusterOf("c.lbd")], ["b", undefined, "c"]);
    const wrong = new Client({ lbd: "http://127.0.0.1:1", hosts: () => ({ hash: "x" }) });
    assert.throws(() => wrong.clusterOf("a"), TypeError);
  });

  test("forgets clusters beyond the limit", () => {
    const client = new Client({ lbd: "http://127.0.0.1:1", mode: "pick" });
    for (let i = 0; i < 3000; i++) client.call(`orders-${i}`, new Deadline(1000), true);
  });

  for (const settings of /** @type {any[]} */ ([
    { lbd: "ftp://x" },
    { lbd: "localhost:8080" },
    { lbd: "http://x/path" },
    { lbd: "http://user:secret@x" },
    { lbd: "unix:" },
    { mode: "turbo" },
    { timeout: 0 },
    { ttl: "x" },
    { maxAge: Number.NaN },
    { fallback: "no-port" },
    { fallback: "a b:80" },
    { ca: "/no/such/file" },
    { tokenFile: "/no/such/file" },
    { hosts: { "x.lbd": { hash: "x-user" } } },
    { hosts: { "x.lbd": { hash: "query:a" } } },
    { hosts: { "x.lbd": { hash: "header:" } } },
    { hosts: { "x.lbd": { cluster: "a", target: "b" } } },
    { hosts: { "x.lbd": { clusters: "a" } } },
  ])) {
    test(`rejects ${JSON.stringify(settings)}`, () =>
      assert.throws(() => new Client({ lbd: "https://x", ...settings })));
  }
});
