// The trees of targets and a cluster's own tree: what is counted per tree, and what per process.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, has, openBrowser, push, startDaemon, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }, [{ category: "throttle", percent: 50 }]));
  const router = { name: "router", typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } };
  const manager = {
    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    route_config: { virtual_hosts: [{ name: "shop", domains: ["*"], routes: [{ match: { prefix: "/" }, route: { cluster: "orders" } }] }] },
    http_filters: [router],
  };
  const listener = { "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", name: "shop", api_listener: { api_listener: manager } };
  await push(daemon, "/v1/snapshot", { resources: [listener] }, "POST");
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("a cluster without picks has its limit and no rates", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await has(page, /No picks from this cluster now/, "#headline");
  await has(page, /^in flight 0limit 1,024$/, ".legend");
  assert.deepEqual(faults, []);
});

test("picks and drops of other trees are not counted for this tree", async (t) => {
  const own = await visit(t, browser, daemon, "#/clusters/orders");
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders?target=shop");
  await has(page, /No picks from this cluster now/, "#headline");
  await has(page, /live/, ".live");
  await has(own.page, /live/, ".live");
  // The rate of picks that are counted before the first message is not known: pick until it is shown.
  const pickUntil = async (shown: Promise<void>, ...from: string[]) => {
    let waiting = true;
    const end = shown.finally(() => (waiting = false));
    while (waiting) {
      for (const f of from) await daemon.call("GET", `/pick?${f}&n=1000`);
      await page.waitForTimeout(200);
    }
    await end;
  };
  await pickUntil(has(own.page, /Dropped: [\d.,k]+ picks\/s \([45]\d(\.\d)? %\), by throttle [\d.,k]+\/s, set to 50 %/, "#headline"), "cluster=orders");
  await has(page, /throttle 50 %, [1-9][\d,]* so far, [1-9][\d.,k]*\/s.*counted for the whole process/, ".facts div");
  assert.match((await page.textContent("#headline")) ?? "", /No picks from this cluster now/);
  await pickUntil(has(page, /Dropped: [\d.,k]+ picks\/s \([45]\d(\.\d)? %\), by throttle, set to 50 %/, "#headline"), "cluster=orders", "target=shop&path=/");
  assert.deepEqual([...faults, ...own.faults], []);
});

test("events of other trees are not shown, and events name their target", async (t) => {
  const own = await visit(t, browser, daemon, "#/clusters/orders");
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders?target=shop");
  await daemon.call("DELETE", "/v1/clusters/orders/endpoints");
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ b: ["10.0.0.2:80"] }));
  const shown = async (of: typeof page) => (await of.$$eval(".event.state_changed .says", (all) => all.map((e) => e.textContent ?? ""))).map((s) => s.includes(" in xds:///shop"));
  await has(page, /in xds:\/\/\/shop/, ".event.state_changed");
  await own.page.waitForSelector(".event.state_changed");
  await page.waitForSelector(".event.pushed");
  assert.ok((await shown(page)).every((there) => there));
  assert.ok(!(await shown(own.page)).includes(true));
  assert.deepEqual([...faults, ...own.faults], []);
});
