// Navigation between pages.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, startDaemon, violations, visit, write } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

const strange = ['a/b c%"é?x=y#z&amp;', "watch", "<img src=x onerror=alert(1)>", "long-".repeat(80), "."];

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  const named = (cluster_name: string) => ({
    "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", cluster_name, ...endpointsOf({ a: ["10.0.0.1:80"] }),
  });
  const many = Array.from({ length: 200 }, (_, i) => `cluster-${String(i).padStart(3, "0")}`);
  const pushed = await daemon.call("POST", "/v1/snapshot", { resources: [...strange, ...many].map(named) });
  assert.ok(pushed.ok, await pushed.text());
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const search = 'input[type="search"]';
const listed = (page: Page, n: number) => page.waitForSelector(`[aria-rowcount="${n + 1}"]`);
const focused = (page: Page) => page.evaluate(() => document.activeElement?.closest("[data-key]")?.getAttribute("data-key"));

test("a link to the page clears the search, and back restores it", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters");
  await page.fill(search, "cluster-01");
  await listed(page, 10);
  await page.click('header a:has-text("Clusters")');
  await listed(page, 200 + strange.length);
  assert.equal(await page.inputValue(search), "");
  await page.goBack();
  await listed(page, 10);
  assert.equal(await page.inputValue(search), "cluster-01");

  await page.goto(`${daemon.url}/#/events?cluster=orders`);
  await page.fill(search, "cart");
  await page.click('header a:has-text("Events")');
  await page.waitForFunction((s) => document.querySelector<HTMLInputElement>(s)?.value === "", search);
  assert.deepEqual(faults, []);
});

test("back from a cluster returns to its row", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters?by=name&down=true");
  await listed(page, 200 + strange.length);
  await page.focus('[role="table"] [data-key] a');
  await page.keyboard.press("End");
  for (let i = 0; i < 9; i++) await page.keyboard.press("ArrowUp");
  await page.waitForFunction(() => document.activeElement?.closest("[data-key]")?.getAttribute("data-key") === "cluster-006");
  await page.keyboard.press("Enter");
  await has(page, /cluster-006/, "h1");
  await page.waitForFunction(() => document.activeElement?.id === "title");
  await page.goBack();
  await page.waitForFunction(() => document.activeElement?.closest("[data-key]")?.getAttribute("data-key") === "cluster-006");
  const inSight = await page.$eval('[data-key="cluster-006"]', (e) => {
    const table = e.closest("[role=table]")!.getBoundingClientRect();
    const row = e.getBoundingClientRect();
    return row.top >= table.top && row.bottom <= table.bottom + 1;
  });
  assert.ok(inSight);
  await page.click('header a:has-text("Clusters")');
  await page.waitForFunction(() => document.activeElement?.id === "title");
  await listed(page, 200 + strange.length);
  assert.equal(await focused(page), undefined, "that is a new visit");
  assert.deepEqual(faults, []);
});

test("names can have any characters", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters");
  for (const name of strange.filter((n) => n !== ".")) {
    await page.goto(`${daemon.url}/#/clusters`);
    await page.fill(search, name);
    const link = page.locator(`[data-key=${JSON.stringify(name)}] a`);
    assert.equal(await link.getAttribute("title"), name);
    await link.click();
    await has(page, /READY on priority 0/, "#headline");
    assert.equal(await page.textContent("h1"), name);
    await page.click("text=Explain a pick");
    await has(page, /Picked 10\.0\.0\.1:80/, "#outcome");
    await page.click(".step.cluster a");
    await has(page, /READY on priority 0/, "#headline");
    await page.click(".actions >> text=Push");
    await page.click("text=Load what was pushed");
    await has(page, /Nothing to apply/, "button");
    assert.equal(await page.inputValue("input[required]"), name);
    await page.goBack();
    await page.click(".actions >> text=Events");
    await page.waitForFunction((n) => document.querySelector(".event.state_changed a, .event.priority_switched a")?.textContent === n, name);
    await page.setViewportSize({ width: 360, height: 740 });
    await fits(page);
    await page.setViewportSize({ width: 1280, height: 800 });
  }
  assert.deepEqual(faults, []);
});

test("a cluster named . has no URL", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters");
  await page.click('[data-key="."] a');
  await has(page, /The API has no URL for a cluster named \./);
  assert.deepEqual(await violations(page), []);
  await page.click("text=pick from it");
  await has(page, /Picked 10\.0\.0\.1:80/, "#outcome");
  await page.goto(`${daemon.url}/#/push?cluster=..`);
  await write(page, "endpoints: []");
  await has(page, /A cluster named \.\. has no URL: push it in a bundle/);
  assert.deepEqual(faults, []);
});
