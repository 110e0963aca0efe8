// The history of resources: the list, a change, and restoring after a preview.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, has, openBrowser, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  await push(daemon, "/v1/clusters/other/endpoints", endpointsOf({ a: ["10.0.0.9:80"] }));
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.2:80"] }));
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const pushed = async () => (await daemon.call("GET", "/v1/clusters/orders/endpoints")).text();

test("changes are listed, and filtered by cluster", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/history");
  await page.waitForSelector(".changes tbody tr:nth-child(3)");
  assert.deepEqual(await page.$$eval(".changes tbody th", (all) => all.map((e) => e.textContent)), ["3", "2", "1"]);
  await page.fill("input", "other");
  await page.waitForSelector(".changes tbody tr:only-child");
  await has(page, /other: added with 1 usable endpoint/);
  await page.fill("input", "unknown");
  await has(page, /No change is known since index 0/);
  assert.deepEqual(faults, []);
});

test("a change is restored after a preview, and not over a concurrent push", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/history/3");
  await has(page, /1 endpoint removed/, ".resources");
  await page.click("summary");
  await has(page, /10\.0\.0\.1/, "pre[aria-label=Before]");
  await has(page, /10\.0\.0\.2/, "pre[aria-label=After]");
  assert.deepEqual(await violations(page), []);

  await page.click("text=Preview");
  await has(page, /1 resource would change/, ".restore");
  assert.match(await pushed(), /10\.0\.0\.2/, "a preview changes nothing");
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.3:80"] }));
  await page.click("button.primary");
  await has(page, /changed in the meantime/, ".restore");
  assert.match(await pushed(), /10\.0\.0\.3/);

  await page.fill(".restore input", "back");
  await page.click("text=Preview");
  await page.click("button.primary");
  await has(page, /Restored: 1 resource changed, index 5/, ".restore");
  assert.match(await pushed(), /10\.0\.0\.1/);
  await page.goto(`${daemon.url}/#/history`);
  await has(page, /back restored 2:/, ".changes");
  assert.deepEqual(faults, []);
});

test("a change that is not in the history is reported", async (t) => {
  const { page } = await visit(t, browser, daemon, "#/history/99");
  await has(page, /no change of index 99|is not reached/, ".alert");
  await page.goto(`${daemon.url}/#/history/x`);
  await has(page, /x is no index/);
});
