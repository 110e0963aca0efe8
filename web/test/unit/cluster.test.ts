import assert from "node:assert/strict";
import { test } from "node:test";
import { brief, localityName, percent, plural, rate, span } from "../../src/format.ts";
import { headline, type Known } from "../../src/headline.ts";
import type { ClusterState, EndpointState, LbdEvent, LocalityState, PriorityState } from "../../src/model.ts";
import { marksOf } from "../../src/parts/events.tsx";
import { href, parsePlace } from "../../src/route.ts";
import { endpointsShown, onStandby, openAtFirst, rows, search, strays } from "../../src/tree.ts";

const endpoint = (address: string, state = "READY"): EndpointState => ({ address, state, weight: 1, share: 0, health: "UNKNOWN" });
const locality = (zone: string, weight: number, endpoints: EndpointState[]): LocalityState => ({
  locality: { region: "us", zone, sub_zone: "" }, weight, share: 0, state: "READY", picks: 0, endpoints,
});
const priority = (n: number, more: Partial<PriorityState>): PriorityState => ({
  priority: n, in_use: false, why: "", state: "READY", started: true, localities: [], ...more,
});
const cluster = (more: Partial<ClusterState>): ClusterState => ({
  name: "orders", state: "READY", priority_in_use: 0, source: "push", config_source: "push", stale: false, generation: 1, age: "1s", leases: 0,
  updated_at: "2026-11-20T03:00:00Z", drops: [], priorities: [],
  endpoints: { ready: 2, connecting: 0, idle: 0, transient_failure: 0, ejected: 0, unhealthy: 0, total: 2 },
  ...more,
});
const now = Date.parse("2026-11-20T03:12:00Z");
const event = (id: number, at: string, more: Partial<LbdEvent>): LbdEvent => ({ id, time: `2026-11-20T${at}Z`, type: "pushed", says: "", ...more });

test("a search for endpoints", () => {
  const many = Array.from({ length: 3000 }, (_, i) => endpoint(`10.0.${Math.floor(i / 250)}.${i % 250}:80`, i % 1000 === 7 ? "TRANSIENT_FAILURE" : "READY"));
  const c = cluster({
    priorities: [
      priority(0, { in_use: true, localities: [locality("a", 3, many), locality("b", 1, [{ ...endpoint("10.1.0.7:80"), hostname: "Web-7.example", last_error: "connection refused" }])] }),
      priority(1, { localities: [locality("c", 1, [endpoint("10.2.0.1:80")])] }),
    ],
  });
  const found = (text: string) => search(c, text)?.size ?? null;
  assert.deepEqual(["", "  ", "10.0.11.", "transient", "transient zz", "WEB-7", "refused us/b", "us/c ready", "10.2.0.1"].map(found), [null, null, 250, 3, 0, 1, 1, 1, 1]);
  const shown = (text: string) => rows(c, () => true, () => endpointsShown, search(c, text)).map((r) => `${r.level}${r.kind === "endpoint" ? r.endpoint.address : ""}`);
  assert.deepEqual(shown("10.1.0.7"), ["1", "2", "310.1.0.7:80"]);
  assert.deepEqual(shown("nobody"), []);
  const [, of] = rows(c, () => true, () => endpointsShown, search(c, "10.1.0.7"));
  assert.ok(of?.kind === "locality" && of.expected === 0.25 && of.siblings === 1, "shares are those of the whole");
  assert.equal(rows(c, () => true, () => endpointsShown, search(c, "10.0.")).find((r) => r.kind === "more")?.hidden, 2900);
});

test("a priority that waits for a failover is on standby", () => {
  const c = cluster({ priority_in_use: 1 });
  assert.deepEqual(
    [priority(0, { state: "IDLE" }), priority(1, { state: "IDLE" }), priority(2, { state: "IDLE" }), priority(2, { state: "READY" })].map((p) => onStandby(c, p)),
    [false, false, true, false],
  );
  assert.equal(onStandby(cluster({ priority_in_use: -1 }), priority(1, { state: "IDLE" })), false);
});

test("rows are the open part of the tree", () => {
  const many = Array.from({ length: 250 }, (_, i) => endpoint(`10.0.0.${i}:80`));
  const c = cluster({
    priorities: [
      priority(0, { in_use: true, localities: [locality("a", 3, many), locality("b", 1, [endpoint("10.1.0.1:80")])] }),
      priority(1, { localities: [locality("a", 1, [])] }),
    ],
  });
  const all = rows(c, () => true, () => endpointsShown);
  assert.equal(all.length, 2 + 3 + endpointsShown + 1 + 1);
  assert.equal(all.find((r) => r.kind === "more")?.hidden, 150);
  assert.equal(new Set(all.map((r) => r.key)).size, all.length);
  const first = all.find((r) => r.kind === "locality");
  assert.ok(first?.kind === "locality" && first.expected === 0.75 && first.open === true);
  assert.equal(all.at(-1)?.open, null); // nothing to open
  assert.equal(rows(c, (key) => key === "p0", () => 1).length, 4);
  assert.equal(rows(c, () => false, () => 1).length, 2);
});

test("few rows are open at first, and those with problems", () => {
  const big = { ready: 0, connecting: 0, idle: 0, transient_failure: 0, ejected: 0, unhealthy: 0, total: 1000 };
  const c = cluster({
    endpoints: big,
    priorities: [priority(0, { in_use: true, localities: [locality("a", 1, [endpoint("1:1")]), locality("b", 1, [endpoint("2:1", "TRANSIENT_FAILURE")])] })],
  });
  assert.deepEqual(["p0", "l0 us/a", "l0 us/b"].map((k) => openAtFirst(c, k)), [true, false, true]);
  assert.equal(openAtFirst(cluster({}), "l0 us/a"), true);
});

const known = (more: Partial<Known> = {}): Known => ({ lately: null, now, until: null, ...more });
const used = (n: number, endpoints: EndpointState[], more: Partial<PriorityState> = {}) =>
  priority(n, { in_use: true, in_use_since: "2026-11-20T03:10:00Z", localities: [locality("a", 1, endpoints)], ...more });
const two = [endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")];

test("the headline of a healthy cluster", () => {
  const h = headline(cluster({ priorities: [used(0, two)] }), known({ lately: { picks: { ok: 50 }, drops: {} } }));
  assert.equal(h.tone, "good");
  assert.equal(h.where, "READY on priority 0 for 2 min, 2 of 2 endpoints READY.");
  assert.match(h.why, /^This is the highest priority/);
  assert.deepEqual([h.unwell, h.lost], ["", ["None of 50 picks/s are dropped or refused."]]);
});

test("the headline lists failed endpoints of the priority in use only", () => {
  const of = (...states: string[]) =>
    headline(cluster({ priorities: [used(0, states.map((s, i) => endpoint(`10.0.0.${i}:80`, s))), priority(1, { localities: [locality("b", 1, [endpoint("10.1.0.1:80", "IDLE")])] })] }), known());
  assert.match(of("READY", "READY").where, /2 of 2 endpoints READY\.$/);
  assert.match(of("READY", "IDLE").where, /1 of 2 endpoints READY, 1 IDLE\.$/);
  assert.deepEqual([of("READY", "IDLE").tone, of("READY", "UNHEALTHY").tone, of("READY", "EJECTED").tone], ["good", "good", "warning"]);
  assert.equal(of("READY", "UNHEALTHY", "EJECTED").unwell, "Of 3 endpoints, 1 is EJECTED (10.0.0.2:80), 1 is UNHEALTHY (10.0.0.1:80).");
  const many = of("READY", ...Array.from({ length: 5 }, () => "TRANSIENT_FAILURE"));
  assert.equal(many.unwell, "Of 6 endpoints, 5 are TRANSIENT_FAILURE (10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80 and 2 more).");
});

test("the headline has the reason and the time of a failover, and lost picks", () => {
  const c = cluster({
    priority_in_use: 1,
    drops: [{ category: "throttle", per_million: 50_000, dropped: 7 }],
    priorities: [
      priority(0, { state: "TRANSIENT_FAILURE", why: "TRANSIENT_FAILURE: connect to 10.0.0.1:80: dial tcp 10.0.0.1:80: connect: connection refused" }),
      used(1, two, { why: "every higher priority failed or timed out" }),
    ],
  });
  const h = headline(c, known({
    lately: { picks: { ok: 90, dropped: 6, circuit_broken: 4 }, drops: { throttle: 6 } },
  }));
  assert.equal(h.tone, "warning");
  assert.equal(h.where, "READY on priority 1 for 2 min, 2 of 2 endpoints READY.");
  assert.equal(h.why, "Failed over: priority 0 is TRANSIENT_FAILURE: connect to 10.0.0.1:80: connection refused.");
  assert.deepEqual(h.lost, ["Dropped: 6.0 picks/s (6 %), by throttle 6.0/s, set to 5 %.", "Refused by the circuit breaker: 4.0 picks/s (4 %)."]);
});

test("drops of other trees are not attributed to this tree", () => {
  const c = cluster({ drops: [{ category: "throttle", per_million: 50_000, dropped: 7 }], priorities: [used(0, two)] });
  const lost = (picks: Record<string, number>, drops: Record<string, number>) => headline(c, known({ lately: { picks, drops } })).lost;
  assert.deepEqual(lost({ ok: 90, dropped: 10 }, { throttle: 40 }), ["Dropped: 10 picks/s (10 %), by throttle, set to 5 %."]);
  assert.deepEqual(lost({ ok: 90, dropped: 10 }, { throttle: 10.2 }), ["Dropped: 10 picks/s (10 %), by throttle 10/s, set to 5 %."]);
  assert.deepEqual(lost({}, { throttle: 40 }), ["No picks from this cluster now."]);
});

test("the drops of an aggregate are those of its leaf in use", () => {
  const leaf = (name: string, per_million: number) => ({
    name, in_use: name === "near", why: "", state: "READY" as const, drops: [{ category: "throttle", per_million, dropped: 0 }], connect_mode: "tcp", notice_time: "1s",
    circuit_breaker: { in_flight: 0, max_requests: 7, open: false, rejected: 0, limit_from: "config" as const },
  });
  const c = cluster({ leaves: [leaf("near", 100_000), leaf("far", 500_000)], priorities: [used(0, two, { cluster: "near" }), priority(1, { cluster: "far" })] });
  const lost = (drops: Record<string, number>) => headline(c, known({ lately: { picks: { ok: 9, dropped: 1 }, drops } })).lost;
  assert.deepEqual(lost({ "near: throttle": 1, "far: throttle": 7 }), ["Dropped: 1.0 picks/s (10 %), by throttle of near, set to 10 %."]);
  assert.deepEqual(lost({ "near: throttle": 1, "far: throttle": 0 }), ["Dropped: 1.0 picks/s (10 %), by throttle of near 1.0/s, set to 10 %."]);
});

test("whatever fails, the headline is bad, with its cause and its own time", () => {
  const states = ["READY", "IDLE", "CONNECTING", "WARMING", "TRANSIENT_FAILURE"] as const;
  for (const state of states) for (const fails of ["picks", "requests"] as const) for (const inUse of [true, false]) for (const breaker of [true, false]) {
    const c = cluster({
      state, state_since: "2026-11-20T03:11:37Z", priority_in_use: inUse ? 0 : -1,
      trouble: { fails, cause: "the cause", since: "2026-11-20T03:11:57Z", checks: "/v1/doctor" },
      priorities: inUse ? [used(0, two, { in_use_since: "2026-11-20T02:39:00Z" })] : [], // for 33 min
      ...(breaker && { circuit_breaker: { in_flight: 0, max_requests: 7, open: false, rejected: 0, limit_from: "config" } }),
    });
    const h = headline(c, known());
    assert.equal(h.tone, "bad", state);
    assert.match(h.where, new RegExp(`^${state}( on priority 0)? for 23 s[:,]`));
    assert.equal(h.why, `${fails === "picks" ? "Picks" : "Requests"} fail for 3 s: the cause.`);
  }
});

test("endpoints that lbd does not connect to are not known to be READY", () => {
  const h = headline(cluster({ connect_mode: "none", priorities: [used(0, two)] }), known());
  assert.match(h.where, /2 of 2 endpoints READY, not checked: connect mode none\.$/);
});

test("the headline of a cluster whose picks fail", () => {
  const c = cluster({ state: "TRANSIENT_FAILURE", state_since: "2026-11-20T03:11:00Z", priority_in_use: -1, error: "no endpoints" });
  const h = headline(c, known());
  assert.deepEqual([h.tone, h.where, h.why], ["bad", "TRANSIENT_FAILURE for 1 min: no priority is in use.", "Picks fail: no endpoints."]);
});

test("an outdated state is not shown as good, and its times stop", () => {
  const h = headline(cluster({ priorities: [used(0, two)] }), known({ until: now - 60_000 }));
  assert.deepEqual([h.tone, h.where], ["unknown", "Last known, 1 min ago: READY on priority 0 for 1 min, 2 of 2 endpoints READY."]);
});

test("a share is marked if it differs by more than chance and 5 %", () => {
  assert.equal(strays(8, 20, 0.7), false); // such draws come
  assert.equal(strays(833, 1000, 0.8), false, "not of interest");
  assert.equal(strays(900, 1000, 0.8), true);
  assert.equal(strays(100, 1000, 0), true);
  assert.equal(strays(1000, 1000, 1), false);
});

test("the most important event of a second is marked", () => {
  const marks = marksOf([
    event(4, "03:00:05.3", { type: "state_changed", says: "s" }),
    event(3, "03:00:05.2", { type: "priority_switched", says: "p" }),
    event(2, "03:00:05.1", { type: "connection_changed", says: "c" }),
    event(1, "03:00:01", { type: "state_changed", says: "s" }),
  ], ["priority_switched", "state_changed"]);
  assert.deepEqual(marks.map((m) => m.letter), ["P", "S"]);
});

test("addresses can have any name", () => {
  for (const name of ["orders", "a/b?c#d%e", "ä ö", "xds:///shop"]) {
    const place = parsePlace(href(["clusters", name], { target: "xds:///t", none: undefined }));
    assert.deepEqual(place.path, ["clusters", name]);
    assert.equal(place.query.get("target"), "xds:///t");
  }
  assert.deepEqual(parsePlace("").path, []);
  assert.deepEqual(parsePlace("#/clusters/%E0%A4%A").path, ["clusters", "%E0%A4%A"]);
});

test("numbers are short", () => {
  assert.deepEqual([0, 0.04, 0.3, 9.96, 12.4, 1204, 84_100, 250_000].map(rate), ["0", "0", "0.3", "10.0", "12", "1,204", "84.1k", "250k"]);
  assert.deepEqual([0, 0.0004, 0.048, 0.75, 0.9999, 1].map(percent), ["0 %", "<0.1 %", "4.8 %", "75 %", ">99.9 %", "100 %"]);
  assert.deepEqual([900, 65_000, 700_000, 7_500_000, 90_000_000].map(span), ["1 s", "1 min 5 s", "11 min", "2 h 5 min", "1 d 1 h"]);
  assert.equal(plural(1, "pick"), "1 pick");
  assert.equal(localityName({ region: "", zone: "", sub_zone: "" }), "(no locality)");
  assert.equal(brief("connect to a:1: dial tcp a:1: connect: connection refused"), "connect to a:1: connection refused");
  assert.equal(brief("connect to a:1: dial tcp b:1: i/o timeout"), "connect to a:1: dial tcp b:1: i/o timeout");
});

test("resources that are in use despite an error", () => {
  const kept = (...errors: [string, string][]) => {
    const ambient_errors = errors.map(([resource, error]) => ({ resource, error, since: "2026-11-20T03:00:00Z" }));
    return headline(cluster({ priorities: [used(0, two)], ambient_errors }), known());
  };
  assert.equal(kept().kept, "");
  assert.equal(kept().tone, "good");
  const one = kept(["Cluster/cart", "Cluster/cart does not exist"]);
  assert.deepEqual([one.kept, one.tone], ["In use despite an error: Cluster/cart (Cluster/cart does not exist).", "warning"]);
  assert.equal(
    kept(["Listener/a", "away"], ["RouteConfiguration/b", "away"], ["Cluster/c", "away"], ["ClusterLoadAssignment/c", "deleted"]).kept,
    "In use despite an error: Listener/a, RouteConfiguration/b, Cluster/c and 1 more (away; deleted).",
  );
});
