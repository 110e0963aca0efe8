// The checks of lbd doctor on the page of a cluster.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"] }));
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("an examination shows problems with what to do, and on request what is in order", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await page.click(".checks button");
  await has(page, /No problem, 0 warnings/, ".checks");
  await page.click(".checks summary");
  await has(page, /✓ ok: overlays no overlay changes the cluster/, ".checks");

  await push(daemon, "/v1/clusters/orders/overlays/all?allow_empty=true", { kind: "drain", locality: { region: "us", zone: "a" }, reason: "a <b>test</b>" });
  await page.click(".checks button");
  await has(page, /1 problem, \d+ warnings?: 1 overlay takes all usable endpoints out of use/, ".checks");
  await has(page, /✗ problem: overlays 1 overlay takes.*<b>test<\/b>.*What to do: delete the overlay: DELETE \/v1\/clusters\/orders\/overlays\/all/, ".checks");
  assert.deepEqual(await violations(page), []);
  assert.ok(await fits(page));
  assert.deepEqual(faults, []);
});
