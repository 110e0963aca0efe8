import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterSummary } from "../../src/model.ts";
import { firstSorting, losses, Overview, refused, success } from "../../src/overview.ts";

const start = Date.parse("2026-11-20T03:00:00Z");
const at = (second: number) => new Date(start + second * 1000).toISOString();

const summary = (name: string, more: Partial<ClusterSummary> = {}): ClusterSummary => ({
  name, state: "READY", priority_in_use: 0, source: "push", stale: false, generation: 1, updated_at: at(0),
  endpoints: { ready: 1, connecting: 0, idle: 0, transient_failure: 0, ejected: 0, unhealthy: 0, total: 1 },
  ...more,
});
const counted = (name: string, second: number, ok: number, dropped = 0) =>
  summary(name, {
    counts: {
      time: at(second), cluster: name, target: "", picks: { ok, dropped }, drops: {}, circuit_broken: 0, leases: 0,
      breaker: { in_flight: 5, max_requests: 10, open: false },
    },
  });
const rounded = (of: Record<string, number>) => Object.fromEntries(Object.entries(of).map(([k, v]) => [k, Math.round(v)]));
const names = (o: Overview, search = "", filter = "all", by = "name", down = false) => o.shown(search, filter, { by, down }).map((r) => r.name);

test("clusters are added, changed and removed", () => {
  const o = new Overview();
  o.take([summary("b"), summary("a"), summary("c")]);
  assert.deepEqual(names(o), ["a", "b", "c"]);
  o.take([summary("b", { trouble: { fails: "requests", cause: "errors", checks: "" } }), summary("d")], ["a", "unknown"]);
  assert.deepEqual(names(o, "", "all", "name", true), ["d", "c", "b"]);
  assert.deepEqual(names(o, "", "failing"), ["b"]);
  assert.equal(o.sums().counts.failing, 1);
  o.take([summary("b", { state: "TRANSIENT_FAILURE" })]);
  assert.equal(o.sums().counts.failing, 1);
  assert.equal(o.size, 3);
  o.clear();
  o.take([summary("x")]);
  assert.deepEqual(names(o), ["x"]);
});

test("a search matches names with all its words", () => {
  const o = new Overview();
  o.take(["Orders-eu", "orders-us", "cart-eu"].map((n) => summary(n)));
  assert.deepEqual(names(o, "order"), ["Orders-eu", "orders-us"]);
  assert.deepEqual(names(o, " EU ord "), ["Orders-eu"]);
});

/** Lets clusters be picked from for some seconds. */
function play(o: Overview, clusters: [name: string, picks: Record<string, number>, more?: Partial<ClusterSummary>][]): void {
  for (let s = 0; s <= 5; s++) {
    o.take(clusters.map(([name, picks, more]) => {
      const c = counted(name, s, 0);
      const sums = Object.fromEntries(Object.entries(picks).map(([k, n]) => [k, n * s]));
      return { ...c, ...more, counts: { ...c.counts!, picks: { ok: 0, ...sums } } };
    }));
    o.tick(start + s * 1000);
  }
}

test("the worst clusters are first", () => {
  const o = new Overview();
  const ill = { ready: 1, connecting: 0, idle: 0, transient_failure: 1, ejected: 0, unhealthy: 0, total: 2 };
  play(o, [
    ["a-fine", { ok: 1000 }],
    ["b-dropping", { ok: 90, dropped: 10 }],
    ["c-unwell", { ok: 10 }, { endpoints: ill }],
    ["d-failed-over", { ok: 10 }, { priority_in_use: 1 }],
    ["e-refusing-some", { ok: 90, no_ready_endpoint: 1 }],
    ["f-refusing-many", { ok: 90, pick_timeout: 500 }],
    ["g-down-unused", {}, { state: "TRANSIENT_FAILURE" }],
    ["h-down", { no_ready_endpoint: 139 }, { state: "TRANSIENT_FAILURE" }],
    ["i-standby-is-idle", { ok: 5 }, { endpoints: { ...ill, transient_failure: 0, idle: 1 }, endpoints_in_use: { ...ill, transient_failure: 0, total: 1 } }],
  ]);
  assert.deepEqual(names(o, "", "all", firstSorting.by, firstSorting.down), [
    "h-down", "g-down-unused", "f-refusing-many", "e-refusing-some", "d-failed-over", "c-unwell", "b-dropping", "a-fine", "i-standby-is-idle",
  ]);
  assert.deepEqual(names(o, "", "failing"), ["g-down-unused", "h-down"]);
  assert.deepEqual(names(o, "", "refusing"), ["e-refusing-some", "f-refusing-many", "h-down"]);
  assert.deepEqual(names(o, "i-", "all", "ready")[0], "i-standby-is-idle");
  assert.equal(o.sums().counts.failing, 2);
});

test("if every upstream is down, no pick succeeds", () => {
  const o = new Overview();
  play(o, [["orders", { ok: 0, no_ready_endpoint: 139, dropped: 7 }, { state: "TRANSIENT_FAILURE" }], ["idle", {}]]);
  const sums = o.sums();
  assert.equal(Math.round(sums.picks), 146);
  assert.equal(success(sums), 0);
  assert.equal(Math.round(refused(sums)), 139);
  assert.deepEqual(losses(sums.results).map(([r, n]) => `${r} ${Math.round(n)}`), ["no_ready_endpoint 139", "dropped 7"]);
  assert.equal(success({ picks: 0, results: {} }), null, "without picks there is no rate");
});

test("equal rows are sorted by name, in both directions", () => {
  const o = new Overview();
  o.take([summary("c"), summary("a", { priority_in_use: 1 }), summary("b"), summary("d", { state: "CONNECTING", updated_at: at(9) })]);
  assert.deepEqual(names(o, "", "all", "priority", true), ["a", "b", "c", "d"]);
  assert.deepEqual(names(o, "", "all", "state"), ["a", "d", "b", "c"]);
  assert.deepEqual(names(o, "", "all", "age")[0], "d");
});

test("a page that was hidden for a minute shows current rates", () => {
  const o = new Overview();
  const shown = (second: number) => {
    o.take([counted("busy", second, second * 90, second * 10)]);
    o.tick(start + second * 1000);
  };
  o.opened();
  for (let s = 0; s <= 5; s++) shown(s);
  o.opened();
  for (let s = 65; s <= 75; s++) {
    if (s === 65) o.clear();
    shown(s);
    assert.equal(Math.round(o.sums().picks), 100, `after ${s} s`);
  }
});

test("an aggregate shows the breaker of its fullest leaf", () => {
  const o = new Overview();
  const of = (...fills: [string, number, number][]) => {
    const c = counted("both", 0, 0);
    const leaves = fills.map(([name, in_flight, max_requests]) => ({ name, drops: {}, circuit_broken: 0, breaker: { in_flight, max_requests, open: in_flight >= max_requests } }));
    o.take([{ ...c, counts: { ...c.counts!, breaker: undefined, leaves } }]);
    return o.shown("", "all", { by: "name", down: false })[0]!;
  };
  assert.deepEqual([of(["near", 3, 7], ["far", 1, 10]).breaker?.of, of(["near", 3, 7], ["far", 9, 10]).breaker?.of], ["near", "far"]);
  const full = of(["near", 0, 0], ["far", 9, 10]);
  assert.deepEqual([full.breaker, full.fill], [{ of: "near", in_flight: 0, max_requests: 0, open: true }, 1]);
  assert.equal(o.sums().counts.full, 1);
});

test("rates follow counts, continue after a resync, and fall without messages", () => {
  const o = new Overview();
  for (let s = 0; s <= 5; s++) {
    if (s === 3) o.clear();
    o.take([counted("busy", s, s * 90, s * 10), summary("idle")]);
    o.tick(start + s * 1000);
  }
  const [busy] = o.shown("busy", "dropping", { by: "name", down: false });
  assert.equal(Math.round(busy!.picks), 100);
  assert.equal(busy!.fill, 0.5);
  assert.equal(Math.round(o.sums().picks), 100);
  assert.deepEqual(rounded(o.sums().results), { ok: 90, dropped: 10 });
  assert.equal(success(o.sums()), 0.9);
  o.tick(start + 60_000);
  assert.equal(o.sums().picks, 0);
  assert.equal(busy!.picks, 0);
});

test("a cluster without counts keeps its rates", () => {
  const o = new Overview();
  o.opened();
  for (let s = 0; s <= 5; s++) {
    o.take([counted("busy", s, s * 100)]);
    o.tick(start + s * 1000);
  }
  o.clear();
  o.take([summary("busy"), summary("new")]);
  const [busy, fresh] = o.shown("", "all", { by: "name", down: false });
  assert.equal(Math.round(busy!.picks), 100);
  assert.equal(busy!.breaker!.in_flight, 5);
  assert.equal(fresh!.picks, 0);
  o.tick(start + 60_000);
  assert.equal(busy!.picks, 0, "they end as any other");
});

test("the breaker of a limit of the fleet is as full as the share of this lbd", () => {
  const o = new Overview();
  const c = counted("orders", 0, 0);
  o.take([{ ...c, counts: { ...c.counts!, breaker: { in_flight: 3, max_requests: 100, share: 4, demand: 9, open: false } } }]);
  assert.equal(o.shown("", "all", { by: "name", down: false })[0]!.fill, 0.75);
});
