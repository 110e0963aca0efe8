// Live updates: the failover of the demo, and broken streams.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, freePort, hide, openBrowser, patience, push, startDaemon, visit } from "./kit.ts";

let browser: Browser;
let demo: Daemon;

before(async () => {
  [browser, demo] = await Promise.all([openBrowser(), startDaemon("demo")]);
});
after(async () => {
  await browser?.close();
  await demo?.stop();
});

const says = (page: Page, selector: string, text: RegExp) =>
  page.waitForFunction(
    ([s, source]) => new RegExp(source!).test(document.querySelector(s!)?.textContent ?? ""),
    [selector, text.source],
    { timeout: patience },
  );

test("a failover and the return are shown live", async (t) => {
  const { page, faults } = await visit(t, browser, demo, "#/clusters/demo");
  await says(page, "#headline .first", /READY on priority 0/);
  await says(page, ".live", /live/);
  await says(page, ".legend", /ok [1-9]/); // the demo's caller picks
  const loaded = await page.evaluate(() => performance.timeOrigin);

  await fetch(`${demo.control}/stop?priority=0`, { method: "POST" });
  await says(page, "#headline .first", /READY on priority 1 for \d/);
  await says(page, "#headline", /Failed over: priority 0 is TRANSIENT_FAILURE: .*refused/);
  await says(page, '[data-key="p0"]', /TRANSIENT_FAILURE/);
  await says(page, '[data-key="p1"]', /in use.*READY.*100 %/);
  await says(page, '[data-key="l1 us-west1/a"]', /% of the picks lately/);
  await says(page, ".events", /priority/);
  // The drops of the demo are shown as well.
  await says(page, "#headline", /Dropped: [\d.]+ picks\/s \([\d.]+ %\), by throttle .*set to 5 %/);

  await fetch(`${demo.control}/start?priority=0`, { method: "POST" });
  await says(page, "#headline .first", /READY on priority 0 for \d/);
  assert.equal(await page.evaluate(() => performance.timeOrigin), loaded, "the page was loaded again");
  assert.deepEqual(faults, []);
});

test("the list shows rates, drops and the fill of the breaker", async (t) => {
  const { page, faults } = await visit(t, browser, demo, "#/clusters");
  await says(page, ".sums", /1 cluster/);
  await says(page, ".vitals", /Picks[1-9]\d*\/s/);
  const row = '[data-key="demo"]';
  await says(page, `${row} .of-state`, /READY/);
  await says(page, `${row} .of-breaker`, /\d+ \/ 10/);
  await says(page, `${row} .of-losses`, /dropped [\d.]+\/s/);
  await says(page, `${row} .of-success`, /9\d(\.\d)? %/);
  await page.click(`${row} a`);
  await page.waitForSelector("#headline");
  assert.equal(await page.title(), "demo · test-lbd · lbd");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "title", "the focus is at the new page's title");
  assert.deepEqual(faults, []);
});

test("a wrong clock of the browser changes no rate", async (t) => {
  const { page, faults } = await visit(t, browser, demo, "#/clusters", {}, (p) => p.clock.install({ time: Date.now() + 3_600_000 }));
  await says(page, ".vitals", /Picks[1-9]\d*\/s/);
  await page.click('[data-key="demo"] a');
  await says(page, "#headline", /Dropped: [1-9\d.]+ picks\/s/);
  assert.deepEqual(faults, []);
});

test("a hidden page has no stream", async (t) => {
  const watchers = async () => Number(/^lbd_watchers\{kind="sse"\} (\d+)/m.exec(await (await demo.call("GET", "/metrics")).text())?.[1]);
  const until = async (n: number) => {
    for (let tries = 0; (await watchers()) !== n; tries++) {
      assert.ok(tries < 300, `${await watchers()} watchers, not ${n}`);
      await new Promise((again) => setTimeout(again, 100));
    }
  };
  const { page } = await visit(t, browser, demo, "#/clusters/demo");
  await says(page, ".live", /live/);
  await until(2); // the page's, and the daemon's
  await hide(page, true);
  await until(0);
  await hide(page, false);
  await says(page, ".live", /live/);
  await until(2); // the page's, and the daemon's
  await page.close();
  await until(0);
});

test("a broken stream is reported and resumed", async (t) => {
  const port = await freePort();
  const first = await startDaemon("serve", port, ["--connect", "none"]);
  t.after(() => first.stop());
  const put = (d: Daemon, host: string) =>
    push(d, "/v1/clusters/orders/endpoints", { endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: host, port_value: 80 } } } }] }] });
  await put(first, "10.0.0.1");
  const { page } = await visit(t, browser, first, "#/clusters/orders");
  await says(page, ".tree", /10\.0\.0\.1:80/);
  await first.stop();
  await says(page, ".live", /reconnecting for .*may be outdated/);
  assert.match((await page.textContent(".tree")) ?? "", /10\.0\.0\.1:80/, "the last state is still shown");
  const second = await startDaemon("serve", port, ["--connect", "none"]);
  t.after(() => second.stop());
  await put(second, "10.0.0.2");
  await says(page, ".live", /live/);
  await says(page, ".tree", /10\.0\.0\.2:80/);
  await second.call("DELETE", "/v1/clusters/orders/endpoints");
  await says(page, ".alert", /was removed/);
});

test("an unknown cluster is shown when it is pushed", async (t) => {
  const daemon = await startDaemon("serve", 0, ["--connect", "none"]);
  t.after(() => daemon.stop());
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/later");
  await says(page, ".alert", /not found/);
  await push(daemon, "/v1/clusters/later/endpoints", { endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: "10.0.0.1", port_value: 80 } } } }] }] });
  await says(page, "#headline .first", /READY on priority 0/); // the refused stream is retried
  await says(page, ".live", /live/);
  assert.equal(await page.$(".alert"), null);
  assert.deepEqual(faults, []);
});
