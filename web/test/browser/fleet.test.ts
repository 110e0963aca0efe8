// The page of the fleet, and the share of a limit on the page of a cluster, with a real etcd.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import type { FleetState, ReplicaState } from "../../src/model.ts";
import { type Daemon, endpointsOf, type Etcd, fits, freePort, has, openBrowser, patience, push, startDaemon, startEtcd, violations, visit } from "./kit.ts";

let browser: Browser;
let etcd: Etcd;
let near: Daemon;
let far: Daemon;
/** An endpoint that only "far" takes for reachable, because it does not connect. */
let closed: string;

const replica = (name: string, connect: string) =>
  startDaemon("serve", 0, ["--store", `etcd://${etcd.address}/lbd`, "--name", name, "--zone", `zone-${name}`, "--connect", connect]);

before(async () => {
  [browser, etcd] = await Promise.all([openBrowser(), startEtcd()]);
  [near, far] = await Promise.all([replica("near", "tcp"), replica("far", "none")]);
  closed = `127.0.0.1:${await freePort()}`;
  await push(near, "/v1/clusters/orders/endpoints", endpointsOf({ a: [closed] }));
  await push(near, "/v1/clusters/orders/config", {
    type: "EDS", circuit_breakers: { thresholds: [{ max_requests: 20 }] }, metadata: { filter_metadata: { lbd: { limit_scope: "fleet" } } },
  });
  await until(far, (f) => f.limits[0]?.replicas === 2 && f.limits[0].shares > 0);
});
after(async () => {
  await browser?.close();
  await Promise.all([near?.stop("SIGKILL"), far?.stop("SIGKILL")]);
  await etcd?.stop();
});

/** Waits for a state of the fleet. */
async function until(d: Daemon, is: (f: FleetState) => boolean): Promise<FleetState> {
  let last: unknown;
  for (const end = Date.now() + patience; Date.now() < end; await new Promise((again) => setTimeout(again, 100))) {
    const response = await d.call("GET", "/v1/fleet");
    last = await response.json();
    if (response.ok && is(last as FleetState)) return last as FleetState;
  }
  throw new Error(`the fleet is ${JSON.stringify(last)}`);
}

/** Leases n picks of orders, one after the other until the share has grown. */
async function lease(d: Daemon, n: number): Promise<void> {
  for (let i = 0, end = Date.now() + patience; i < n; ) {
    assert.ok(Date.now() < end, `only ${i} of ${n} leases are granted`);
    const response = await d.call("POST", "/pick?cluster=orders&ttl=10m");
    if (response.status === 201) i++;
    else assert.match(await response.text(), /circuit_broken|share/);
  }
}

/** The texts of the cells of the row of a replica. */
const rowOf = (page: Page, name: string) => page.locator(".replicas tbody tr", { has: page.locator("th", { hasText: name }) }).locator("th, td").allInnerTexts();

test("the page lists the replicas, their shares, and endpoints that only some can reach", async (t) => {
  const { page, faults } = await visit(t, browser, far, "#/fleet");
  await has(page, /^2 replicas$/, "h2");
  await has(page, new RegExp(`^orders: 1 of 2 replicas cannot reach ${closed.replaceAll(".", "\\.")} \\(near\\)$`), ".disagreements li");
  await has(page, /^farthis one/, ".replicas th");
  assert.equal(await page.locator(".replicas tr", { hasText: "this one" }).count(), 1);
  await has(page, /orders20/, ".limits tbody tr");

  await lease(far, 6);
  await until(far, (f) => f.limits[0]!.demand >= 6);
  const [name, state, address, zone, , index, current, , unreachable, shares] = await rowOf(page, "near");
  assert.deepEqual([name, state, address, zone, current, unreachable], ["near", "● live", near.url, "zone-near", "now", "1"]);
  assert.match(index!, /^\d+$/);
  assert.match(shares!, /^orders \d+ of 20, demand \d+$/);
  await has(page, /orders \d+ of 20, demand [6-9]/, ".replicas td");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 740 });
  await fits(page);
  assert.deepEqual(await violations(page), [], "on a phone");
  assert.deepEqual(faults, []);
});

test("the page of a cluster shows share, limit and demand, and keeps them up to date", async (t) => {
  const { page, faults } = await visit(t, browser, far, "#/clusters/orders");
  await has(page, /^Limit of the fleetthis replica has a share of \d+ of 20, demand \d+$/, ".facts > div");
  await lease(far, 8);
  await has(page, /^Limit of the fleetthis replica has a share of (1[4-9]|20) of 20, demand 1[4-9]$/, ".facts > div");
  await has(page, /^Circuit breaker14 in flight of at most (1[4-9]|20)/, ".facts > div");
  const pushed = { type: "EDS", circuit_breakers: { thresholds: [{ max_requests: 30 }] }, metadata: { filter_metadata: { lbd: { limit_scope: "fleet" } } } };
  await push(near, "/v1/clusters/orders/config", pushed);
  await has(page, /a share of \d+ of 30, demand/, ".facts > div");
  assert.deepEqual(await violations(page), []);
  await page.click('.facts a:has-text("fleet")');
  await page.waitForSelector(".replicas");
  await page.goto(`${far.url}/#/explain?cluster=orders`);
  await has(page, /14 in flight of at most \d+ of the fleet's 30: passes/, ".step.circuit_breaker");
  assert.deepEqual(faults, []);
});

test("a replica that has ended is marked, and its share is kept until its leases have ended", async (t) => {
  const third = await replica("third", "none");
  t.after(() => third.stop("SIGKILL"));
  const { page, faults } = await visit(t, browser, far, "#/fleet");
  await has(page, /^3 replicas$/, "h2");
  await lease(third, 2);
  await third.stop();
  await has(page, /^2 replicas, and 1 gone$/, "h2");
  await has(page, /▲ gone.*orders [2-9] of 30, free within \d+ min/, ".replicas tbody tr:last-child");
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(faults, []);
});

test("without etcd, the pages say that this replica has no session", async (t) => {
  const { page, faults } = await visit(t, browser, far, "#/clusters/orders");
  await has(page, /this replica has a share of/, ".facts > div");
  await etcd.stop();
  await has(page, /^Limit of the fleetthis replica has no share, because it has no session in the store of the fleet$/, ".facts > div");
  await page.goto(`${far.url}/#/fleet`);
  await has(page, /This lbd has no session in the store/, ".error");
  await has(page, /The summaries of the other replicas cannot be read, and are \d.* old: /, ".error");
  await page.waitForSelector(".old .replicas");
  assert.deepEqual(faults, []);
});

/** A fleet as large as tests cannot start it. */
function large(): FleetState {
  const shares = Array.from({ length: 12 }, (_, i) => ({ cluster: `c${i}`, limit: 400, share: 10, demand: 2000, max_ttl: "32s" }));
  const replicas: ReplicaState[] = Array.from({ length: 40 }, (_, i) => ({
    id: `ID${i}`, name: `<b>replica-${i}</b>`, version: "v".repeat(300), address: `http://10.0.1.${i}:8080`, zone: "a", self: i === 3, state: "live",
    summary: { index: 1000 - i, behind: i, behind_seconds: 5 * i, picks_per_second: 1234.5, unreachable: i < 3 ? 1 : 0 }, shares, more_shares: 7,
  }));
  replicas.unshift({ id: "GONE5678ABCD", name: "", version: "", self: false, state: "gone", shares: [{ ...shares[0]!, returns_within: "1m4.352726542s" }] });
  return {
    shared: true, replica: "ID3", joined: true, summary_age: "990.759µs", replicas,
    limits: [{ cluster: "c0", limit: 400, shares: 410, demand: 80_000, free: 0, kept: 10, replicas: 40 }], more_limits: 3,
    disagreements: [{ cluster: "orders", address: "10.0.0.7:8080", unreachable: 12, replicas: 40, from: ["r1", "r2"], says: "12 of 40 replicas cannot reach 10.0.0.7:8080" }],
    more_disagreements: 5,
  };
}

test("a large fleet is shown, and fits", async (t) => {
  const { page, faults } = await visit(t, browser, far, "#/fleet", {}, (p) => p.route("**/v1/fleet", (r) => r.fulfill({ json: large() })));
  await has(page, /^40 replicas, and 1 gone$/, "h2");
  await has(page, /^orders: 12 of 40 replicas cannot reach 10\.0\.0\.7:8080 \(r1, r2 and 10 more\)$/, ".disagreements li");
  await has(page, /^GONE5678▲ gone.*c0 10 of 400, free within 1 min 4 s$/, ".replicas tbody tr:last-child");
  await has(page, /^96436 behind$/, ".replicas td");
  await has(page, /^<b>replica-3<\/b>this one/, ".replicas th");
  assert.equal(await page.locator(".replicas b").count(), 0, "a name is shown as HTML");
  await page.click(".replicas summary >> nth=0");
  await has(page, /^c0 10 of 400, demand 2,000$/, ".replicas details[open] li");
  await has(page, /^and 7 more$/, ".replicas details[open] li");
  await has(page, /^c0\s*40080,000410/, ".limits tbody tr");
  await fits(page);
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 740 });
  await fits(page);
  assert.deepEqual(await violations(page), [], "on a phone");
  assert.deepEqual(faults, []);
});
