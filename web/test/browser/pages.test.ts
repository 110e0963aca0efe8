// Every page, against a daemon that has what it shows.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, push, startDaemon, violations, visit, write } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

const shop = {
  resources: [
    {
      "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
      name: "shop",
      api_listener: {
        api_listener: {
          "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
          route_config: {
            virtual_hosts: [
              {
                name: "shop",
                domains: ["*"],
                routes: [
                  { match: { prefix: "/", headers: [{ name: "tenant", string_match: { exact: "b" } }] }, route: { cluster: "dropping" } },
                  { match: { prefix: "/orders" }, route: { weighted_clusters: { clusters: [{ name: "orders", weight: 3 }, { name: "dropping", weight: 1 }] } } },
                  { match: { prefix: "/only" }, route: { cluster: "orders" } },
                ],
              },
            ],
          },
          http_filters: [{ name: "router", typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } }],
        },
      },
    },
  ],
};

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"], b: ["10.0.1.1:80"] }));
  await push(daemon, "/v1/clusters/dropping/endpoints", endpointsOf({ a: ["10.0.2.1:80"] }, [{ category: "everything", percent: 100 }]));
  await push(daemon, "/v1/snapshot", shop, "POST");
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("a pick is explained with a picture", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/explain");
  await page.fill('input[list="names"]', "orders");
  await page.click("#pick");
  await has(page, /Picked 10\.0\.\d\.\d:80/, "#outcome");
  assert.deepEqual(await page.$$eval(".flow h3", (all) => all.map((h) => h.textContent)), ["Cluster", "Priority", "Circuit breaker", "Locality", "Endpoint", "Picked"]);
  await has(page, /us\/b, weight 2: 66\.7 %/, ".parts");
  assert.deepEqual(faults, []);
});

test("a rejected pick is explained", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/explain?cluster=dropping");
  await has(page, /Refused: Dropped/, "#outcome");
  await has(page, /everything: drops 100 %; drew .*: dropped/, ".step.stop");
  await page.fill('input[list="names"]', "unknown");
  await page.click("#pick");
  await has(page, /Unknown cluster/, "#outcome");
  assert.deepEqual(faults, []);
});

test("the explanation of a target's pick begins with its routes", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/explain?target=shop&path=/only/this");
  await has(page, /Picked/, "#outcome");
  assert.equal((await page.$$(".tried .passed")).length, 2);
  await has(page, /prefix "\/only"/, ".tried .taken");
  await page.fill("textarea", "tenant: b");
  await page.click("#pick");
  await has(page, /Refused: Dropped/, "#outcome");
  assert.match(page.url(), /target=shop&path=/);
  assert.deepEqual(faults, []);
});

test("the keyboard navigates the tree", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await page.waitForSelector('[role="treegrid"]');
  await page.focus('[data-key="p0"]');
  const at = () => page.evaluate(() => document.activeElement?.getAttribute("data-key"));
  await page.keyboard.press("ArrowDown");
  assert.equal(await at(), "l0 us/a");
  await page.keyboard.press("ArrowLeft");
  await page.waitForSelector('[data-key="l0 us/a"][aria-expanded="false"]');
  await page.keyboard.press("ArrowDown");
  assert.equal(await at(), "l0 us/b");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  assert.equal(await at(), "p0");
  await page.keyboard.press("End");
  assert.equal(await at(), "l0 us/b");
  assert.deepEqual(faults, []);
});

test("events are live and can be filtered", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/events?cluster=eventful");
  await has(page, /live/, ".live");
  await push(daemon, "/v1/clusters/eventful/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  await has(page, /eventful/, ".event.pushed");
  await page.click('.choice:has-text("push") >> nth=0');
  await page.waitForFunction(() => !document.querySelector(".event.pushed"));
  assert.match(page.url(), /types=/);
  assert.deepEqual(faults, []);
});

test("targets show the clusters of their routes", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/targets");
  await has(page, /xds:\/\/\/shop.*READY.*2.*a pushed Listener/);
  await page.click("text=xds:///shop");
  await has(page, /Its routes lead to 2 clusters/, ".headline");
  await has(page, /prefix "\/orders".*orders 75 %, dropping 25 %/, ".routes");
  await page.click('table a:has-text("orders")');
  await has(page, /orders in xds:\/\/\/shop/, "h1");
  await page.waitForSelector("#headline");
  assert.deepEqual(faults, []);
});

test("a missing object is reported", async (t) => {
  for (const [place, text] of [["#/clusters/unknown", /not found/], ["#/targets/unknown", /unknown/], ["#/nowhere", /There is no page nowhere/], ["#/xds", /no management server/]] as const) {
    const { page } = await visit(t, browser, daemon, place);
    await has(page, text);
    await page.close();
  }
});

/** Each place, and what is there once all of it is. */
const places: [string, ready: string][] = [
  ["#/clusters", '[data-key="orders"] .of-state'],
  ["#/clusters/orders", ".event.pushed"],
  ["#/explain?cluster=orders", ".step.end"],
  ["#/explain?cluster=dropping", ".step.drop.stop"],
  ["#/explain?target=shop&path=/orders", ".step.end"],
  ["#/push?cluster=orders", "#body"],
  ["#/targets", 'th a:has-text("shop")'],
  ["#/targets/xds%3A%2F%2F%2Fshop", ".routes"],
  ["#/xds", 'p:has-text("no management server")'],
  ["#/store", 'dd:has-text("accepted")'],
  ["#/fleet", 'p:has-text("without --store")'],
  ["#/history", "table.history td"],
  ["#/history/1", '[aria-label="Changed resources"]'],
  ["#/events", ".event"],
];
const looks = [["light", "none"], ["dark", "none"], ["dark", "active"]] as const;
for (const [scheme, forced] of looks) {
  test(`every page is accessible, ${forced === "active" ? "in forced colors" : `and fits a phone, ${scheme}`}`, async (t) => {
    const { page, faults } = await visit(t, browser, daemon, "#/clusters", { colorScheme: scheme, forcedColors: forced, reducedMotion: "reduce" });
    for (const [place, ready] of places) {
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goto(`${daemon.url}/${place}`);
      await page.waitForSelector(ready);
      if (place.startsWith("#/push")) {
        await write(page, JSON.stringify(endpointsOf({ a: ["10.0.0.1:80"], c: ["10.0.1.1:80"] })));
        await page.waitForSelector(".effect table");
      }
      // Forced colors are the browser's; axe reads the page's own.
      assert.deepEqual(await violations(page, forced === "active" ? ["color-contrast"] : []), [], place);
      if (forced === "active") continue;
      await page.setViewportSize({ width: 360, height: 740 });
      await fits(page).catch(() => assert.fail(`${place} is wider than a phone`));
      assert.deepEqual(await violations(page), [], `${place}, on a phone`);
    }
    assert.deepEqual(faults, []);
  });
}

test("the skip link leads to the content and keeps the address", async (t) => {
  const { page } = await visit(t, browser, daemon, "#/targets");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.className), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  assert.match(page.url(), /#\/targets$/);
});
