import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterCounts, ClusterHistory } from "../../src/model.ts";
import { dropKey, growth, History, localityKey, Pace, perSecond } from "../../src/rates.ts";

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

test("a counter that shrinks was reset", () => {
  assert.equal(growth(5, 9), 4);
  assert.equal(growth(9, 5), 5);
});

test("rates are of the window, by result, category and locality", () => {
  const h = new History(60_000);
  assert.equal(h.over(5000, start), null);
  for (let s = 0; s <= 10; s++) h.add(counts(s, s * 100, s * 5));
  const r = h.over(5000, start + 10_000)!;
  assert.equal(Math.round(r.picks.ok!), 100);
  assert.equal(Math.round(r.drops.throttle!), 5);
  assert.equal(Math.round(r.localities[localityKey(0, zone)]!), 100);
  assert.equal(r.span, 5000);
  assert.equal(h.over(60_000, start + 10_000)!.span, 10_000, "of more is not known");
});

test("a time without messages is a time without picks", () => {
  const h = new History(60_000);
  h.add(counts(0, 0));
  h.add(counts(1, 100));
  h.add(counts(11, 200)); // nothing was told for ten seconds
  const last = h.samples.at(-1)!;
  assert.equal(last.span, 1000);
  assert.equal(perSecond(last, "picks", "ok"), 100);
  assert.equal(h.samples.at(-2)!.span, 9000);
  assert.equal(Math.round(h.over(10_000, start + 11_000)!.picks.ok!), 10);
  const { x, lines } = h.columns(["ok"], (s, k) => perSecond(s, "picks", k), start + 30_000);
  assert.equal(x.at(-1), start / 1000 + 30);
  assert.equal(lines[0]!.at(-1), 0);
  assert.deepEqual([...x].sort((a, b) => a - b), x);
});

const ok = (h: History, second: number) => h.columns(["ok"], (s, k) => perSecond(s, "picks", k), start + second * 1000);

test("the time between two streams is unknown", () => {
  const h = new History(600_000);
  for (let s = 0; s <= 20; s++) h.add(counts(s, s * 100));
  h.lost(start + 20_500);
  h.lost(start + 40_000); // still
  assert.equal(ok(h, 80).x.at(-1), start / 1000 + 20, "no zeros while nothing is known");
  assert.equal(Math.round(h.over(10_000, start + 80_000)!.picks.ok!), 100, "rates stay as they were");
  h.add(counts(80, 8000));
  assert.equal(h.over(10_000, start + 80_000), null, "it takes a second message");
  h.add(counts(81, 8100));
  assert.equal(Math.round(h.over(10_000, start + 81_000)!.picks.ok!), 100);
  const { x, lines } = ok(h, 81);
  assert.deepEqual(x.map((t) => Math.round(t * 1000) - start).slice(-4), [20_000, 20_001, 80_000, 81_000]);
  assert.deepEqual(lines[0]!.slice(-4), [100, null, null, 100]);
});

/** What lbd kept from one second to another: as many picks as the second's number. */
const kept = (from: number, to: number, step = 1): ClusterHistory => {
  const list = Array.from({ length: (to - from) / step + 1 }, (_, i) => from + i * step);
  const none = list.map(() => 0);
  return {
    cluster: "orders", target: "", step: step === 1 ? "1s" : "10s",
    segments: [{
      start: new Date(start + from * 1000 + 500).toISOString(), priority: list.map((s) => (s < 30 ? 0 : 1)), picks: { ok: list.map((s) => s * step) },
      drops: [{ category: "throttle", dropped: none }], breakers: [{ in_flight: none, max_requests: list.map(() => 10) }],
    }],
  };
};
const times = (h: History) => h.samples.filter((s) => s.span > 0).map((s) => (s.t - start) / 1000);

test("a new page begins with the history of lbd", () => {
  const h = new History(600_000);
  h.add(counts(50, 5000));
  h.fill(kept(1, 55));
  h.add(counts(51, 5100));
  assert.deepEqual(times(h), [...Array.from({ length: 49 }, (_, i) => i + 1.5), 51]);
  const { x, lines } = ok(h, 51);
  assert.equal(x[0], start / 1000 + 1.5);
  assert.ok(lines[0]!.every((v) => v !== null), "there is no hole where the stream begins");
  assert.equal(lines[0]!.at(-1), 100);
  assert.equal(h.columns(["p"], (s) => s.priority ?? null, start + 51_000).lines[0]![29], 1);
  assert.equal(h.over(10_000, start + 51_000)!.span, 1000, "rates are of what the stream tells");
});

test("the history fills the time when the page was hidden, and leaves other gaps", () => {
  const h = new History(600_000);
  for (let s = 0; s <= 20; s++) h.add(counts(s, s * 100));
  h.lost(start + 20_300);
  h.add(counts(80, 8000));
  h.add(counts(81, 8100));
  const two = kept(15, 40);
  two.segments.push(...kept(60, 90).segments);
  h.fill(two);
  const seconds = times(h);
  assert.equal(new Set(seconds).size, seconds.length);
  assert.deepEqual(seconds.slice(18, 24), [19, 20, 21.5, 22.5, 23.5, 24.5]);
  assert.deepEqual(seconds.slice(-4), [78.5, 79.5, 80.5, 81]);
  const { x, lines } = ok(h, 81);
  const holes = x.filter((_, i) => lines[0]![i] === null).map((t) => Math.round(t - start / 1000));
  assert.deepEqual(holes, [0, 41], "before the first message, and from 41 s to 60 s nothing is known");
  assert.deepEqual([...x].sort((a, b) => a - b), x);
  h.fill(two);
  assert.equal(times(h).length, seconds.length, "what is known is not filled again");
});

test("a longer window adds coarse samples before the fine ones", () => {
  const h = new History(6 * 3_600_000);
  h.add(counts(650, 0));
  h.fill(kept(60, 649));
  h.fill(kept(9, 649, 10));
  assert.deepEqual(h.samples.map((s) => s.span).filter((s) => s === 10_000).length, 6);
  assert.deepEqual([...times(h)].sort((a, b) => a - b), times(h));
  assert.equal(perSecond(h.samples[0]!, "picks", "ok"), 9);
});

test("a time without picks before the end of a stream is known", () => {
  const h = new History(600_000);
  h.add(counts(0, 0));
  h.add(counts(1, 100));
  h.lost(start + 30_000);
  assert.deepEqual([ok(h, 60).x.at(-1)! - start / 1000, ok(h, 60).lines[0]!.at(-1)], [30, 0]);
  h.add(counts(1, 100)); // and since
  assert.equal(ok(h, 60).x.at(-1)! - start / 1000, 60);
  h.add(counts(61, 150));
  assert.equal(perSecond(h.samples.at(-1)!, "picks", "ok"), 50);
  assert.ok(ok(h, 61).lines[0]!.slice(1).every((v) => v !== null), "there is no hole");
});

test("a short interruption of a stream leaves no gap", () => {
  const h = new History(60_000);
  h.add(counts(0, 0));
  h.lost(start + 100);
  h.add(counts(1, 100));
  assert.equal(perSecond(h.samples.at(-1)!, "picks", "ok"), 100);
});

test("the first message has gauges but no rates", () => {
  const h = new History(60_000);
  h.add(counts(0, 500, 0, 7));
  const first = h.samples[0]!;
  assert.deepEqual(first.breakers, { "": { inFlight: 7, maxRequests: 10 } });
  assert.equal(perSecond(first, "picks", "ok"), null);
  assert.equal(h.over(10_000, start + 1000), null);
  assert.deepEqual(h.over(10_000, start + 3000)!.picks, {}, "nothing was counted since");
  const { lines } = h.columns(["maxRequests"], (s) => s.breakers[""]!.maxRequests, start + 3000);
  assert.deepEqual(lines[0], [10, 10, 10]);
});

test("the drops and breakers of an aggregate are those of its leaves", () => {
  const of = (second: number, near: number, far: number): ClusterCounts => ({
    ...counts(second, 0), breaker: undefined,
    leaves: [
      { name: "near", drops: { shed: near }, circuit_broken: 0, breaker: { in_flight: 1, max_requests: 7, open: false } },
      { name: "far", drops: { shed: far }, circuit_broken: 0, breaker: { in_flight: 2, max_requests: 8, open: false } },
    ],
  });
  const h = new History(60_000);
  h.add(of(0, 0, 10));
  h.add(of(1, 5, 12));
  assert.deepEqual(h.samples.at(-1)!.drops, { "near: shed": 5, "far: shed": 2 });
  assert.equal(dropKey("near", "shed"), "near: shed");
  assert.deepEqual(h.samples.at(-1)!.breakers, { near: { inFlight: 1, maxRequests: 7 }, far: { inFlight: 2, maxRequests: 8 } });
});

test("old samples are removed", () => {
  const h = new History(5000);
  for (let s = 0; s <= 100; s++) h.add(counts(s, s));
  assert.ok(h.samples.length <= 6, `${h.samples.length} samples`);
});

test("a repeated or late message has no effect", () => {
  const h = new History(60_000);
  h.add(counts(0, 0));
  h.add(counts(1, 10));
  h.add(counts(1, 10));
  assert.equal(h.samples.length, 2);
});

test("the rate of a cluster in a list", () => {
  const p = new Pace();
  const none = { picks: 0, results: {} };
  assert.deepEqual(p.at(start), none);
  for (let s = 0; s <= 4; s++) p.add(counts(s, s * 90, s * 10), 1);
  assert.equal(Math.round(p.at(start + 4000).picks), 100);
  assert.deepEqual(p.at(start + 4000).results, { ok: 90, dropped: 10 });
  assert.deepEqual(p.at(start + 60_000), none);
  p.add(counts(61, 90 * 4 + 50, 40), 1);
  assert.equal(Math.round(p.at(start + 61_000).picks), 10); // 50 in five seconds, not in a minute: the stream told of no others
  p.add(counts(62, 3), 1); // lbd began anew
  p.add(counts(63, 6), 1);
  assert.equal(Math.round(p.at(start + 63_000).picks), 3);
  p.add(counts(123, 6006), 2); // who knows when in that minute
  assert.equal(Math.round(p.at(start + 123_000).picks), 100);
  p.add(counts(124, 6016), 2);
  assert.equal(Math.round(p.at(start + 128_000).picks), 2);
});

test("rates are stable between two messages", () => {
  const h = new History(60_000);
  for (let s = 0; s <= 20; s++) h.add(counts(s, s * 100));
  for (const after of [-900, 0, 400, 900]) {
    assert.equal(Math.round(h.over(10_000, start + 20_000 + after)!.picks.ok!), 100, `${after} ms after the last`);
  }
  const young = new History(60_000);
  young.add(counts(0, 5000));
  young.add(counts(1, 5100));
  assert.equal(Math.round(young.over(10_000, start - 300)!.picks.ok!), 100, "asked by a clock that ticked before the first");
});
