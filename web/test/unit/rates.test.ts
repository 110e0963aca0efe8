import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterCounts } from "../../src/model.ts";
import { growth, History, localityKey, Pace, perSecond } from "../../src/rates.ts";

const start = Date.parse("2026-11-20T03:00:00Z");
const zone = { region: "us", zone: "a", sub_zone: "" };

const counts = (second: number, ok: number, dropped = 0, inFlight = 0): ClusterCounts => ({
  time: new Date(start + second * 1000).toISOString(),
  cluster: "orders",
  target: "",
  picks: { ok, dropped },
  drops: { throttle: dropped },
  circuit_broken: 0,
  breaker: { in_flight: inFlight, max_requests: 10, open: inFlight >= 10 },
  leases: inFlight,
  localities: [{ priority: 0, locality: zone, picks: ok }],
});

test("a counter that shrank began anew", () => {
  assert.equal(growth(5, 9), 4);
  assert.equal(growth(9, 5), 5);
});

test("rates are those of the window, by result, category and locality", () => {
  const h = new History(60_000);
  for (let s = 0; s <= 10; s++) h.add(counts(s, s * 100, s * 5));
  const r = h.over(5000, start + 10_000);
  assert.equal(Math.round(r.picks.ok!), 100);
  assert.equal(Math.round(r.drops.throttle!), 5);
  assert.equal(Math.round(r.localities[localityKey(0, zone)]!), 100);
  assert.deepEqual(new History(1000).over(5000, start).picks, {});
});

test("silence is no traffic, not slow traffic", () => {
  const h = new History(60_000);
  h.add(counts(0, 0));
  h.add(counts(1, 100));
  h.add(counts(11, 200)); // nothing was told for ten seconds
  const last = h.samples.at(-1)!;
  assert.equal(last.span, 1000);
  assert.equal(perSecond(last, "picks", "ok"), 100);
  assert.equal(h.samples.at(-2)!.span, 9000);
  assert.equal(Math.round(h.over(10_000, start + 11_000).picks.ok!), 10);
  const { x, lines } = h.columns(["ok"], (s, k) => perSecond(s, "picks", k), start + 30_000);
  assert.equal(x.at(-1), start / 1000 + 30);
  assert.equal(lines[0]!.at(-1), 0);
  assert.deepEqual([...x].sort((a, b) => a - b), x);
});

test("what is old is forgotten", () => {
  const h = new History(5000);
  for (let s = 0; s <= 100; s++) h.add(counts(s, s));
  assert.ok(h.samples.length <= 6, `${h.samples.length} samples`);
});

test("a message that comes twice or late changes nothing", () => {
  const h = new History(60_000);
  h.add(counts(0, 0));
  h.add(counts(1, 10));
  h.add(counts(1, 10));
  assert.equal(h.samples.length, 1);
});

test("the pace of a cluster in a list", () => {
  const p = new Pace();
  assert.deepEqual(p.at(start), { picks: 0, dropped: 0 });
  for (let s = 0; s <= 4; s++) p.add(counts(s, s * 90, s * 10));
  assert.equal(Math.round(p.at(start + 4000).picks), 100);
  assert.equal(p.at(start + 4000).dropped, 0.1);
  assert.deepEqual(p.at(start + 60_000), { picks: 0, dropped: 0 });
  p.add(counts(61, 90 * 4 + 50, 40));
  assert.equal(Math.round(p.at(start + 61_000).picks), 10); // 50 in five seconds, not in a minute
  p.add(counts(62, 3)); // lbd began anew
  p.add(counts(63, 6));
  assert.equal(Math.round(p.at(start + 63_000).picks), 3);
});
