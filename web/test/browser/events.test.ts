// Events: search, live updates, and the tree of a target.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, has, openBrowser, push, startDaemon, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const put = (name: string, host = "10.0.0.1") => push(daemon, `/v1/clusters/${name}/endpoints`, endpointsOf({ a: [`${host}:80`] }));

test("a search finds a cluster's events behind a thousand others, and shows its range", async (t) => {
  await put("quiet");
  for (let i = 0; i < 26; i++) await Promise.all(Array.from({ length: 40 }, (_, j) => put(`noisy-${j}`, `10.1.${i}.${j}`)));
  const { page, faults } = await visit(t, browser, daemon, "#/events?cluster=quiet&types=pushed");
  await has(page, /quiet/, ".event.pushed");
  await has(page, /Searched: the last 1,000 events of these types, back to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d (UTC|[+−])/, ".more");
  await page.fill('input[type="search"]', "unknown");
  await has(page, /No match in the last 1,000 events of these types, back to .*\. lbd keeps no event of a cluster with exactly this name\./);
  await page.click("text=Go further back");
  await has(page, /No matching event since lbd started, among the events that it keeps\./);
  await page.fill('input[type="search"]', "QUIE");
  await has(page, /quiet/, ".event.pushed");
  await page.click('.choice:has-text("push") >> nth=0');
  await has(page, /No type is selected/);
  assert.deepEqual(faults, []);
});

test("events during the request for past events are shown", async (t) => {
  let answer = () => {};
  const held = new Promise<void>((open) => (answer = open));
  const { page, faults } = await visit(t, browser, daemon, "#/events", {}, (p) =>
    p.route("**/v1/events?*", async (route) => {
      const response = await route.fetch();
      await held;
      await route.fulfill({ response }).catch(() => undefined); // the page may have repeated the request
    }),
  );
  await has(page, /● live/, ".live");
  await put("meanwhile");
  await has(page, /meanwhile/, ".event.pushed");
  assert.equal(await page.textContent(".sums"), "", "the list has not arrived");
  answer();
  await has(page, /events/, ".sums");
  await has(page, /meanwhile/, ".event.pushed");
  assert.deepEqual(faults, []);
});

test("events are filtered by the tree of a target", async (t) => {
  await push(daemon, "/v1/snapshot", {
    resources: [
      {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        name: "shop",
        api_listener: {
          api_listener: {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            route_config: { virtual_hosts: [{ domains: ["*"], routes: [{ match: { prefix: "" }, route: { cluster: "shared" } }] }] },
            http_filters: [{ name: "router", typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } }],
          },
        },
      },
    ],
  }, "POST");
  await put("shared");
  assert.ok((await daemon.call("GET", "/pick?target=shop")).ok);
  assert.ok((await daemon.call("GET", "/pick?cluster=shared")).ok);
  const { page, faults } = await visit(t, browser, daemon, "#/events?cluster=shared&target=shop");
  await has(page, /of the tree of shop/);
  await has(page, /shared/, ".event.pushed");
  const rows = () => page.$$eval(".event.priority_switched a", (all) => all.map((a) => a.getAttribute("href")));
  await has(page, /shared/, ".event.priority_switched");
  assert.deepEqual(await rows(), ["#/clusters/shared?target=xds%3A%2F%2F%2Fshop"]);
  await page.click("text=of every tree");
  await page.waitForFunction(() => document.querySelectorAll(".event.priority_switched").length === 2);
  assert.deepEqual(new Set(await rows()), new Set(["#/clusters/shared?target=xds%3A%2F%2F%2Fshop", "#/clusters/shared"]));
  assert.doesNotMatch(page.url(), /target/);
  assert.deepEqual(faults, []);
});

test("on a phone the types of events do not cover the events, and a first priority is no fault", async (t) => {
  await put("held");
  const { page, faults } = await visit(t, browser, daemon, "#/events?cluster=held", { viewport: { width: 390, height: 740 } });
  await has(page, /priority 0 is the first to be used/, ".event.priority_switched");
  assert.equal(await page.$(".event.priority_switched .tone-bad"), null);
  if (process.env.PICTURE) await page.screenshot({ path: `${process.env.PICTURE}/phone-events.png` });
  const top = await page.$eval(".event", (e) => e.getBoundingClientRect().top);
  assert.ok(top < 370, `the first event begins at ${top} of 740`);
  await page.click(".types summary");
  await page.click('.choice:has-text("priority")');
  await page.waitForFunction(() => document.querySelector(".event.priority_switched") === null);
  assert.deepEqual(faults, []);
});
