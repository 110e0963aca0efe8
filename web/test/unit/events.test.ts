import assert from "node:assert/strict";
import { test } from "node:test";
import { EventLog, inTree, isAbout } from "../../src/eventlog.ts";
import type { LbdEvent } from "../../src/model.ts";

const event = (id: number, more: Partial<LbdEvent> = {}): LbdEvent => ({ id, time: "2026-11-20T03:00:00Z", type: "pushed", says: "", ...more });
const ids = (log: EventLog) => log.events.map((e) => e.id);

test("events of the stream stay when the list arrives later", () => {
  const log = new EventLog(10);
  log.add([event(7)]);
  log.add([event(8)]);
  log.remembered([event(6), event(5), event(7)]);
  assert.deepEqual(ids(log), [8, 7, 6, 5]);
  log.add([event(8), event(2)]);
  assert.deepEqual(ids(log), [8, 7, 6, 5, 2]);
  log.add([event(6)]);
  assert.deepEqual(ids(log), [8, 7, 6, 5, 2]);
});

test("the newest events are kept, up to the maximum", () => {
  const log = new EventLog(3);
  log.remembered([event(1), event(2), event(3), event(4)]);
  log.add([event(5)]);
  log.add([event(1)]);
  assert.deepEqual(ids(log), [5, 4, 3]);
});

test("events of an earlier process are removed when the list of the new one arrives", () => {
  const log = new EventLog(10);
  log.add([event(1), event(2)]);
  log.invalidate();
  assert.deepEqual(ids(log), [2, 1], "until then they are in sight");
  log.add([event(101)]);
  log.remembered([event(100)]);
  assert.deepEqual(ids(log), [101, 100]);
  log.remembered([event(99)]);
  assert.deepEqual(ids(log), [101, 100, 99]);
});

test("events match by a part of the cluster's name and by target", () => {
  const about = (e: Partial<LbdEvent>, cluster: string, target = "") => isAbout(event(1, e), { cluster, target });
  assert.ok(about({ cluster: "Orders-eu" }, " orders "));
  assert.ok(!about({ cluster: "cart" }, "orders"));
  assert.ok(!about({}, "orders"));
  const switched = { type: "priority_switched" as const, cluster: "orders" };
  assert.ok(about({ ...switched, target: "xds:///shop" }, "", "shop"));
  assert.ok(about({ ...switched, target: "xds:///shop" }, "orders", "xds:///shop"));
  assert.ok(!about({ ...switched, target: "xds:///other" }, "", "shop"));
  assert.ok(!about(switched, "", "shop"), "that is the cluster's own tree");
  assert.ok(about({ cluster: "orders" }, "", "shop"), "a push is about every tree");
});

test("a cluster's own tree is not the tree of a target", () => {
  const switched = event(1, { type: "priority_switched", cluster: "orders" });
  const there = { ...switched, target: "xds:///shop" };
  assert.deepEqual([inTree(switched, ""), inTree(switched, "shop"), inTree(there, ""), inTree(there, "shop")], [true, false, false, true]);
  assert.ok(inTree(event(2), "") && inTree(event(2), "shop"), "a push is about every tree");
});
