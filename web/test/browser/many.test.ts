// Thousands of clusters.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, openBrowser, patience, push, startDaemon, violations, visit } from "./kit.ts";

const many = 1000;
let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/snapshot", {
    resources: Array.from({ length: many }, (_, i) => ({
      "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
      cluster_name: `cluster-${String(i).padStart(4, "0")}`,
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: "10.0.0.1", port_value: 1000 + i } } } }] }],
    })),
  });
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("a list of a thousand clusters draws the visible rows", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters");
  await page.waitForSelector(`[aria-rowcount="${many + 1}"]`);
  const drawn = () => page.$$eval(".body [role=row]", (rows) => rows.map((r) => r.getAttribute("data-key")));
  const first = await drawn();
  assert.equal(first[0], "cluster-0000");
  assert.ok(first.length < 60, `${first.length} rows are drawn`);
  assert.deepEqual(await violations(page), []);

  // With the keyboard from the first to the last, and beyond what is drawn.
  await page.focus('[data-key="cluster-0000"] a');
  await page.keyboard.press("ArrowDown");
  const focused = () => page.evaluate(() => document.activeElement?.closest("[data-key]")?.getAttribute("data-key"));
  await page.waitForFunction(() => document.activeElement?.closest("[data-key]")?.getAttribute("data-key") === "cluster-0001");
  await page.keyboard.press("End");
  await page.waitForFunction((last) => document.activeElement?.closest("[data-key]")?.getAttribute("data-key") === last, `cluster-0${many - 1}`);
  const seen = await page.$eval(`[data-key="cluster-0${many - 1}"]`, (e) => {
    const table = e.closest("[role=table]")!.getBoundingClientRect();
    const row = e.getBoundingClientRect();
    return row.top >= table.top && row.bottom <= table.bottom + 1 && e.getAttribute("aria-rowindex");
  });
  assert.equal(seen, String(many + 1));
  // Scrolled away by the wheel, the focus stays.
  await page.$eval("[role=table]", (e) => (e.scrollTop = 0));
  await page.waitForSelector('[data-key="cluster-0000"]');
  assert.equal(await focused(), `cluster-0${many - 1}`);

  await page.click('button:has-text("Cluster")'); // by name; the worst were first
  await page.waitForSelector('.of-name[aria-sort="ascending"]');
  await page.click('button:has-text("Cluster")');
  await page.waitForFunction((last) => document.querySelector(".body [role=row]")?.getAttribute("data-key") === last, `cluster-0${many - 1}`);
  await page.fill('input[type="search"]', "077");
  await page.waitForSelector('[aria-rowcount="12"]');
  assert.match(page.url(), /q=077/);

  // One more comes, one goes.
  await page.fill('input[type="search"]', "");
  await push(daemon, "/v1/clusters/a-new-one/endpoints", {
    endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: "10.0.0.1", port_value: 80 } } } }] }],
  });
  await page.waitForSelector(`[aria-rowcount="${many + 2}"]`, { timeout: patience });
  await daemon.call("DELETE", "/v1/clusters/a-new-one/endpoints");
  await page.waitForSelector(`[aria-rowcount="${many + 1}"]`, { timeout: patience });
  assert.deepEqual(faults, []);
});
