// The holders of leases on the page of a cluster.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  const config = { type: "EDS", circuit_breakers: { thresholds: [{ max_requests: 20 }] } };
  await push(daemon, "/v1/clusters/orders/config", config);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

/** Leases n picks for an owner. */
async function lease(n: number, owner: string): Promise<void> {
  const query = new URLSearchParams({ cluster: "orders", n: String(n), ttl: "10m", ...(owner && { owner }) });
  const response = await fetch(`${daemon.url}/pick?${query}`, { method: "POST" });
  assert.equal(response.status, 201, await response.text());
}

test("the largest holders of leases are shown, with their part of the breaker", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await has(page, /Circuit breaker0 in flight of at most 20/, ".facts div");
  assert.equal(await page.$(".holders"), null, "holders without leases");

  await lease(10, "batch-7");
  await lease(5, "<b>web</b>");
  await lease(1, "");
  await has(page, /16 held/, ".facts div");
  await has(page, /nonebatch-71050 %none<b>web<\/b>525 %nonenone15 %/, ".holders tbody");
  assert.equal(await page.$(".holders b"), null, "an owner is shown as HTML");
  assert.ok(await fits(page), "the page is too wide");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 700 });
  await lease(2, "w".repeat(128));
  await has(page, /w{128}210 %/, ".holders tbody");
  assert.ok(await fits(page), "the page is too wide for a phone");

  const ended = await fetch(`${daemon.url}/v1/leases?owner=batch-7`, { method: "DELETE" });
  assert.equal(ended.status, 200);
  await has(page, /^none<b>web<\/b>525 %nonew{128}210 %nonenone15 %$/, ".holders tbody");
  assert.deepEqual(faults, []);
});
