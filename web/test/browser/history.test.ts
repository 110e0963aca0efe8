// The list of changes, one change, and restores after a preview.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const endpoints = (name: string) => `/v1/clusters/${name}/endpoints`;
const listed = (page: Page, of: string) => page.$$eval(of, (all) => all.map((e) => e.textContent?.replace(/\s+/g, " ").trim()));
const one = endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"] });
const two = endpointsOf({ a: ["10.0.0.1:80", "10.0.0.3:80"] });
const document = async (name: string) => (await daemon.call("GET", endpoints(name))).text();

interface Listed {
  changes: { index: number; message?: string; restored?: number }[];
}

/** The changes of a cluster, newest first. */
const changes = async (name: string) => ((await (await daemon.call("GET", `/v1/history?cluster=${name}`)).json()) as Listed).changes;

/** Pushes a cluster twice, and returns the index of the second push. */
async function pushTwice(name: string): Promise<number> {
  await push(daemon, endpoints(name), one);
  await push(daemon, endpoints(name), two);
  return (await changes(name))[0]!.index;
}

test("changes are listed, newest first, and by cluster", async (t) => {
  await push(daemon, endpoints("first"), one);
  const headers = { "Content-Type": "application/json", "Lbd-Message": "a new cluster" };
  const r = await fetch(daemon.url + endpoints("second"), { method: "PUT", body: JSON.stringify(one), headers });
  assert.equal(r.status, 201);
  const { page, faults } = await visit(t, browser, daemon, "#/history");
  await has(page, /a new cluster/, "tbody tr:nth-child(1)");
  await has(page, /push127\.0\.0\.1.*second/, "tbody tr:nth-child(1)");
  await has(page, /first/, "tbody tr:nth-child(2)");
  await push(daemon, endpoints("first"), two);
  await has(page, /first: .*1 endpoint/, "tbody tr:nth-child(1)"); // without a reload
  await page.fill('input[type="search"]', "second");
  await has(page, /^1 change$/, ".sums");
  assert.match(page.url(), /#\/history\?cluster=second$/);
  await page.fill('input[type="search"]', "unknown");
  await has(page, /The history has no change of unknown/);
  assert.deepEqual(faults, []);
});

test("older changes are on a next page", async (t) => {
  for (let i = 0; i < 101; i++) await push(daemon, endpoints("many"), endpointsOf({ a: [`10.0.1.${i}:80`] }));
  const { page, faults } = await visit(t, browser, daemon, "#/history?cluster=many");
  await has(page, /^100 changes$/, ".sums");
  await page.click("text=Older");
  await has(page, /^1 change$/, ".sums");
  await page.click("text=Newest");
  await has(page, /^100 changes$/, ".sums");
  assert.deepEqual(faults, []);
});

test("changes are marked in the charts of their cluster, and the marks lead to them", async (t) => {
  await push(daemon, endpoints("charted"), one);
  assert.equal((await daemon.call("GET", "/pick?cluster=charted")).status, 200);
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/charted");
  await page.click('summary:has-text("Picks by result as a table")');
  await has(page, /charted: added/, ".marks a");
  const headers = { "Content-Type": "application/json", "Lbd-Message": "one replaced" };
  await fetch(daemon.url + endpoints("charted"), { method: "PUT", body: JSON.stringify(two), headers });
  await page.waitForFunction(() => /“one replaced”/.test(window.document.querySelector(".marks a")?.textContent ?? ""));
  await page.click(".marks a >> nth=0");
  await has(page, /^Change \d+$/, "h1");
  await has(page, /one replaced/);
  assert.deepEqual(faults, []);
});

test("a change has its differences, and both contents of a resource", async (t) => {
  const index = await pushTwice("orders");
  const { page, faults } = await visit(t, browser, daemon, `#/history?cluster=orders`);
  await page.click(`th a:text-is("${index}")`);
  await has(page, /^Change \d+$/, "h1");
  await has(page, /ClusterLoadAssignment\/orders modified: .*endpoint/, '[aria-label="Changed resources"]');
  await page.click('button:text-is("ClusterLoadAssignment/orders")');
  await has(page, /10\.0\.0\.3:80 added/, ".differences");
  await has(page, /10\.0\.0\.2:80 removed/, ".differences");
  assert.deepEqual(await listed(page, ".lines .removed"), ['− "address": "10.0.0.2",']);
  assert.deepEqual(await listed(page, ".lines .added"), ['+ "address": "10.0.0.3",']);
  assert.match(page.url(), /resource=ClusterLoadAssignment%2Forders$/);
  await page.reload();
  await has(page, /10\.0\.0\.3/, ".lines .added");
  assert.deepEqual(faults, []);
});

test("a change is undone after a preview, with a message", async (t) => {
  const index = await pushTwice("undone");
  const { page, faults } = await visit(t, browser, daemon, `#/history/${index}`);
  assert.equal(await page.$('button:text-is("Restore")'), null);
  await page.click("text=Preview");
  await has(page, /^1 resource would change:$/, '.verdict [role="status"]');
  await has(page, /~ ClusterLoadAssignment\/undone modified: .*1 endpoint/, '[aria-label="Preview"]');
  assert.match(await document("undone"), /10\.0\.0\.3/);
  await page.fill(".verdict input", "zurück");
  await has(page, /Only ASCII/, "#message-error");
  assert.equal(await page.getAttribute('button:text-is("Restore")', "aria-disabled"), "true");
  await page.fill(".verdict input", "back to the version before");
  await page.click('button:text-is("Restore")');
  await has(page, /1 resource restored\. See change \d+/, '.verdict [role="status"]');
  assert.match(await document("undone"), /10\.0\.0\.2/);
  const last = (await changes("undone"))[0]!;
  assert.deepEqual([last.message, last.restored], ["back to the version before", index - 1]);
  await page.click("text=See change");
  await has(page, new RegExp(`restores index ${index - 1}`), "table.history");
  assert.deepEqual(faults, []);
});

test("nothing is restored if a resource changes after the preview", async (t) => {
  const index = await pushTwice("raced");
  const { page, faults } = await visit(t, browser, daemon, `#/history/${index}`);
  for (const part of ["ClusterLoadAssignment/raced", "cluster raced: config and endpoints"]) {
    await push(daemon, endpoints("raced"), two);
    await page.selectOption(".verdict select >> nth=0", part);
    await page.click("text=Preview");
    await has(page, /would change/, '.verdict [role="status"]');
    await push(daemon, endpoints("raced"), endpointsOf({ a: ["10.0.0.9:80"] }));
    await page.click('button:text-is("Restore")');
    await has(page, /changed in the meantime; nothing was restored/, ".alert");
    assert.match(await document("raced"), /10\.0\.0\.9/);
    await has(page, /would change/, '.verdict [role="status"]');
  }
  await page.click('button:text-is("Restore")');
  await has(page, /1 resource restored/, '.verdict [role="status"]');
  assert.match(await document("raced"), /10\.0\.0\.2/);
  assert.deepEqual(faults, []);
});

test("a new cluster is undone by its removal, and everything can be restored", async (t) => {
  await push(daemon, endpoints("brief"), one);
  const { index } = (await changes("brief"))[0]!;
  const { page, faults } = await visit(t, browser, daemon, `#/history/${index}?resource=ClusterLoadAssignment/brief`);
  await has(page, /New resource/, "h3");
  await page.click("text=Preview");
  await has(page, /− ClusterLoadAssignment\/brief removed/, '[aria-label="Preview"]');
  await page.click('button:text-is("Restore")');
  await has(page, /1 resource restored/, '.verdict [role="status"]');
  assert.equal((await daemon.call("GET", endpoints("brief"))).status, 404);
  await page.selectOption(".verdict select >> nth=0", "everything");
  await page.selectOption(".verdict select >> nth=1", "after");
  await page.click("text=Preview");
  await has(page, /\+ ClusterLoadAssignment\/brief added/, '[aria-label="Preview"]');
  await page.click('button:text-is("Restore")');
  await has(page, /1 resource restored/, '.verdict [role="status"]');
  assert.equal((await daemon.call("GET", endpoints("brief"))).status, 200);
  assert.deepEqual(faults, []);
});

test("errors of the API are shown", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/history/999999");
  await has(page, /the history has no change of index 999999/, ".alert");
  const index = await pushTwice("refused");
  await page.goto(`${daemon.url}/#/history/${index}`);
  await page.route("**/restore?*", (route) => route.abort());
  await page.click("text=Preview");
  await has(page, /The effect is unknown: lbd cannot be reached/, ".refusal");
  assert.equal(await page.$('button:text-is("Restore")'), null);
  assert.deepEqual(faults, []);
});

for (const scheme of ["light", "dark"] as const) {
  test(`the pages are accessible and fit a phone, ${scheme}`, async (t) => {
    const index = await pushTwice(`seen-${scheme}`);
    const { page, faults } = await visit(t, browser, daemon, "#/history", { colorScheme: scheme, reducedMotion: "reduce" });
    for (const place of ["#/history", `#/history/${index}?resource=ClusterLoadAssignment/seen-${scheme}`]) {
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goto(`${daemon.url}/${place}`);
      await page.waitForSelector("table.history");
      if (place.includes("resource")) {
        await page.waitForSelector(".lines .added");
        await page.click("text=Preview");
        await page.waitForSelector('button:text-is("Restore")');
        if (process.env.PICTURE) await page.screenshot({ path: `${process.env.PICTURE}/change-${scheme}.png`, fullPage: true });
      } else if (process.env.PICTURE) await page.screenshot({ path: `${process.env.PICTURE}/history-${scheme}.png` });
      assert.deepEqual(await violations(page), [], place);
      await page.setViewportSize({ width: 360, height: 740 });
      await fits(page).catch(() => assert.fail(`${place} is wider than a phone`));
      assert.deepEqual(await violations(page), [], `${place}, on a phone`);
      await page.setViewportSize({ width: 390, height: 740 });
      const edges = await page.$$eval("table.history td:last-child", (all) => all.map((e) => e.getBoundingClientRect().right));
      assert.ok(Math.max(...edges) <= 390, `${place}: the change is off the screen of a phone`);
      if (process.env.PICTURE) await page.screenshot({ path: `${process.env.PICTURE}/phone-${scheme}${place.length}.png` });
    }
    assert.deepEqual(faults, []);
  });
}
