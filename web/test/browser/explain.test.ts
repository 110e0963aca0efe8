// A pick with the keyboard, and long lists in its explanation.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, has, openBrowser, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("the focus stays at the button, which sends one pick", async (t) => {
  let asked = 0;
  let answer = () => {};
  const held = new Promise<void>((open) => (answer = open));
  const { page, faults } = await visit(t, browser, daemon, "#/explain", {}, (p) =>
    p.route("**/pick?*", async (route) => {
      asked++;
      await held;
      await route.continue();
    }),
  );
  await page.fill('input[list="names"]', "orders");
  await page.focus("#pick");
  const focused = () => page.evaluate(() => document.activeElement?.id);
  await page.keyboard.press("Enter");
  await page.waitForSelector('#pick[aria-disabled="true"]');
  await page.keyboard.press("Enter");
  await has(page, /Waiting for the pick…/, '[role="status"]');
  assert.equal(await focused(), "pick");
  assert.equal(asked, 1, "a pick counts as one");
  assert.deepEqual(await violations(page), []);
  answer();
  await has(page, /Picked 10\.0\.0\.1:80, priority 0, us\/a\./, '[role="status"]');
  await has(page, /Picked 10\.0\.0\.1:80/, "#outcome");
  assert.equal(await focused(), "pick");
  await page.keyboard.press("Enter");
  await page.waitForSelector('#pick[aria-disabled="false"]');
  assert.equal(asked, 2);

  await page.focus('input[placeholder="addresses"]');
  await page.keyboard.type("10.0.0.1:80");
  await page.keyboard.press("Enter");
  await has(page, /Refused: .*excluded/, '[role="status"]');
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("placeholder")), "addresses");
  await page.unroute("**/pick?*");
  await page.route("**/pick?*", (route) => route.abort());
  await page.keyboard.press("Enter");
  await has(page, /It is unknown whether lbd made a pick/);
  assert.deepEqual(faults, []);
});

test("the drawn locality of many is listed", async (t) => {
  const zones = Object.fromEntries(Array.from({ length: 130 }, (_, i) => [`z${String(i).padStart(3, "0")}`, [`10.0.1.${i}:80`]]));
  const all = endpointsOf(zones);
  const weigh = (heavy: number) => ({ ...all, endpoints: all.endpoints.map((l, i) => ({ ...l, load_balancing_weight: i === heavy ? 1_000_000_000 : 1 })) });
  await push(daemon, "/v1/clusters/wide/endpoints", weigh(19));
  const { page, faults } = await visit(t, browser, daemon, "#/explain?cluster=wide");
  await has(page, /^us\/z019, weight 1000000000: >99\.9 %, drawn$/, ".parts .taken");
  assert.equal(await page.locator(".parts li").count(), 14);
  await has(page, /^and 117 more$/, ".parts li");
  // Of 130, lbd lists 100.
  await push(daemon, "/v1/clusters/wide/endpoints", weigh(129));
  await page.click("#pick");
  await has(page, /^us\/z129, drawn$/, ".parts .taken");
  await has(page, /^and 117 more$/, ".parts li");
  assert.deepEqual(faults, []);
});

test("the selection is visible in forced colors", async (t) => {
  const { page } = await visit(t, browser, daemon, "#/explain", { forcedColors: "active" });
  const colors = await page.$$eval(".switch .choice span", (all) => all.map((e) => getComputedStyle(e).color));
  assert.equal(new Set(colors).size, 2, colors.join());
});
