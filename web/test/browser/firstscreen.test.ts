// The first screen when something is wrong.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import type { Browser, Page } from "playwright-core";
import {
  type Daemon, fits, freePort, has, hide, openBrowser, patience, prioritiesOf, push, startDaemon, startUpstream, violations, visit,
} from "./kit.ts";

let browser: Browser;
before(async () => {
  browser = await openBrowser();
});
after(() => browser?.close());

/** Picks from clusters, some times a second, until the test ends. */
function keepPicking(t: TestContext, d: Daemon, ...clusters: string[]): void {
  const timer = setInterval(() => clusters.forEach((c) => void d.call("GET", `/pick?cluster=${c}&wait=0s`).catch(() => undefined)), 100);
  t.after(() => clearInterval(timer));
}

async function start(t: TestContext, ...flags: string[]): Promise<Daemon> {
  const d = await startDaemon("serve", 0, ["--connect", "tcp_hold", ...flags]);
  t.after(() => d.stop());
  return d;
}

const phone = { viewport: { width: 360, height: 740 } };

test("if every upstream is stopped, no pick succeeds and failing clusters are first", async (t) => {
  const d = await start(t);
  const up = await startUpstream();
  t.after(() => up.stop());
  await push(d, "/v1/clusters/a-well/endpoints", prioritiesOf([up.address]));
  await push(d, "/v1/clusters/z-orders/endpoints", prioritiesOf([`127.0.0.1:${await freePort()}`]));
  keepPicking(t, d, "z-orders");
  const { page, faults } = await visit(t, browser, d, "#/clusters");
  await has(page, /Success0 %/, ".vitals");
  await has(page, /no ready endpoint [1-9][\d.]*\/s/, ".vitals");
  await has(page, /Picks[1-9][\d.]*\/s/, ".vitals");
  await page.waitForFunction(() => document.querySelector(".body [role=row]")?.getAttribute("data-key") === "z-orders");
  const row = '[data-key="z-orders"]';
  await has(page, /^0 %$/, `${row} .of-success`);
  await has(page, /no ready endpoint/, `${row} .of-losses`);
  await has(page, /^0 \/ 1$/, `${row} .of-ready`);
  await has(page, /no picks/, '[data-key="a-well"] .of-success');
  await has(page, /failing 1/, ".choice.has.tone-of-bad");
  assert.deepEqual(await violations(page), []);
  for (const options of [{ colorScheme: "dark" }, { forcedColors: "active" }, phone] as const) {
    const other = await visit(t, browser, d, "#/clusters", options);
    await has(other.page, /Success0 %/, ".vitals");
    assert.deepEqual(await violations(other.page), []);
    await fits(other.page);
  }
  assert.deepEqual(faults, []);
});

test("a row shows a failover, and an idle standby is not a failure", async (t) => {
  const d = await start(t);
  const [first, second] = [await startUpstream(), await startUpstream()];
  t.after(() => Promise.all([first.stop().catch(() => undefined), second.stop()]));
  await push(d, "/v1/clusters/orders/endpoints", prioritiesOf([first.address], [second.address]));
  const { page } = await visit(t, browser, d, "#/clusters");
  const row = '[data-key="orders"]';
  await has(page, /^1 \/ 1 \+1$/, `${row} .of-ready`);
  assert.equal(await page.locator(`${row} .of-ready .warn`).count(), 0);
  assert.equal(await page.locator(`${row}.edge-none`).count(), 1);
  await page.click(`${row} a`);
  await has(page, /priority 1.*standby/, '[data-key="p1"]');
  await has(page, /1 endpoint on standby/, '[data-key="l1 us/a"]');
  await page.goBack();
  await first.stop();
  await has(page, /failed over 1/, `${row} .of-priority`);
  await page.waitForSelector(`${row}.edge-busy`);
  await has(page, /failed over 1/, ".choice.has.tone-of-busy");
  assert.deepEqual(await violations(page), []);
});

test("conditions of the daemon are on every page while they last", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "lbd-web-"));
  t.after(() => rm(dir, { recursive: true }));
  const bootstrap = join(dir, ".bootstrap.json");
  await writeFile(bootstrap, JSON.stringify({
    node: { id: "n" }, xds_servers: [{ server_uri: `127.0.0.1:${await freePort()}`, channel_creds: [{ type: "insecure" }], server_features: ["xds_v3"] }],
  }));
  const file = join(dir, "orders.json");
  await writeFile(file, "{{{");
  const d = await start(t, "--resources", dir, "--bootstrap", bootstrap, "--target", "xds:///shop");
  const { page, faults } = await visit(t, browser, d, "#/clusters");
  await has(page, /Invalid resource file.*orders\.json.*none of its resources are in use/, ".banner");
  await has(page, /Management server unreachable.*cannot be reached.*Since/, ".banner");
  await has(page, /Problems of this daemon: Management server unreachable, Invalid resource file/, "[role=status]");
  await has(page, /^test-lbd /, "header .which");
  assert.equal(await page.title(), "Clusters · test-lbd · lbd");
  assert.deepEqual(await violations(page), []);
  await page.click('.banner a:has-text("xDS")');
  await has(page, /Management servers/, "h2");
  assert.equal(await page.title(), "xDS · test-lbd · lbd");
  for (const options of [{ colorScheme: "dark" }, { forcedColors: "active" }, phone] as const) {
    const other = await visit(t, browser, d, "#/push", options);
    await has(other.page, /Invalid resource file/, ".banner");
    assert.deepEqual(await violations(other.page), []);
    await fits(other.page);
  }
  await writeFile(file, JSON.stringify({
    "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", cluster_name: "orders", ...prioritiesOf(["127.0.0.1:9"]),
  }));
  await page.waitForFunction(() => !/Invalid resource file/.test(document.querySelector(".banner")?.textContent ?? ""));
  await has(page, /Management server unreachable/, ".banner");
  assert.deepEqual(faults, []);
});

/**
 * Resolves once the table of a chart, which has a row for every ten seconds, goes back to a
 * time and has no hole since.
 */
const hasNoHole = (page: Page, title: string, since: number) =>
  page.waitForFunction(
    ([title, since]) => {
      const chart = [...document.querySelectorAll("figure.chart")].find((f) => f.querySelector("figcaption")?.textContent?.startsWith(title));
      const rows = [...(chart?.querySelectorAll("tbody tr") ?? [])].map((r) => {
        const [h = 0, m = 0, s = 0] = (r.querySelector("th")?.textContent ?? "").split(":").map(Number);
        return { second: (h * 60 + m) * 60 + s, value: r.querySelector("td")?.textContent ?? "–" };
      });
      const at = new Date(since);
      const back = rows.findIndex((r) => r.second <= (at.getHours() * 60 + at.getMinutes()) * 60 + at.getSeconds());
      const until = rows.slice(1, back + 1);
      return back > 0 && until.every((r, i) => rows[i]!.second - r.second <= 12 && r.value !== "–");
    },
    [title, since] as const,
    { timeout: patience },
  );

test("charts include the time before the page was opened and while it was hidden", async (t) => {
  const d = await start(t);
  const [first, second] = [await startUpstream(), await startUpstream()];
  t.after(() => Promise.all([first.stop().catch(() => undefined), second.stop()]));
  await push(d, "/v1/clusters/orders/endpoints", prioritiesOf([first.address], [second.address]));
  keepPicking(t, d, "orders");
  await new Promise((later) => setTimeout(later, 13_000));
  const opened = Date.now();
  const { page, faults } = await visit(t, browser, d, "#/clusters/orders");
  await hasNoHole(page, "Picks by result", opened - 5000);

  await hide(page, true);
  await has(page, /paused/, ".live");
  const hidden = Date.now();
  await first.stop(); // the failover happens while the page is hidden
  await new Promise((later) => setTimeout(later, 16_000));
  await hide(page, false);
  await has(page, /READY on priority 1/, "#headline");
  await hasNoHole(page, "Picks by result", hidden);
  await hasNoHole(page, "Priority in use", hidden);
  await has(page, /priority 1/, ".legend");
  await page.click('.chart-head label:has-text("1 h")');
  await hasNoHole(page, "Picks by result", opened - 5000);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(faults, []);
});

test("the keyboard alone finds one of thousands of endpoints", async (t) => {
  const d = await start(t, "--connect", "none");
  const addresses = Array.from({ length: 3000 }, (_, i) => `10.0.${Math.floor(i / 250)}.${i % 250}:8080`);
  await push(d, "/v1/clusters/orders/endpoints", prioritiesOf(addresses, ["10.9.9.9:8080"]));
  const { page, faults } = await visit(t, browser, d, "#/clusters/orders");
  await page.waitForSelector(".find input");
  await page.keyboard.press("/");
  await page.keyboard.type("10.0.7.77:");
  await has(page, /^1 of 3,001 endpoints$/, ".find [role=status]");
  assert.equal(await page.locator(".tree .row.endpoint").count(), 1);
  await page.keyboard.press("Enter");
  assert.match((await page.evaluate(() => document.activeElement?.textContent)) ?? "", /^10\.0\.7\.77:8080/);
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("/");
  await page.keyboard.type("10.9.9");
  await has(page, /priority 1/, ".tree .level-1");
  assert.equal(await page.locator('[data-key="p0"]').count(), 0);
  await page.keyboard.type("zzz");
  await has(page, /^0 of 3,001 endpoints$/, ".find [role=status]");
  await page.keyboard.press("Escape");
  await page.waitForSelector('[data-key="p0"]');
  assert.equal(await page.inputValue(".find input"), "");
  assert.deepEqual(faults, []);
});
