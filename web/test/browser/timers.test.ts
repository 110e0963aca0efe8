// Timers: ejections, the timeout of a hanging priority, and the closing of unused connections. The
// tests run in parallel.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { Browser, Page } from "playwright-core";
import {
  type Daemon, endpointsOf, fits, freePort, has, openBrowser, patience, prioritiesOf, push, startDaemon, startUpstream, type Upstream, violations, visit,
} from "./kit.ts";

let browser: Browser;
let daemon: Daemon;
let upstreams: Upstream[];

before(async () => {
  [browser, daemon, upstreams] = await Promise.all([openBrowser(), startDaemon("serve"), Promise.all([startUpstream(), startUpstream()])]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
  await Promise.all((upstreams ?? []).map((u) => u.stop()));
});

const addresses = () => upstreams.map((u) => u.address) as [string, string];
const rowOf = (address: string) => `[data-key="l0 us/a ${address}"]`;

/** A cluster that ejects what fails more than half of its requests in a second. */
async function detecting(name: string, baseEjectionTime: string): Promise<void> {
  await push(daemon, `/v1/clusters/${name}/config`, {
    type: "EDS",
    outlier_detection: {
      interval: "1s", base_ejection_time: baseEjectionTime, max_ejection_percent: 50, enforcing_success_rate: 0,
      failure_percentage_threshold: 50, enforcing_failure_percentage: 100, failure_percentage_minimum_hosts: 1, failure_percentage_request_volume: 3,
    },
  });
  await push(daemon, `/v1/clusters/${name}/endpoints`, endpointsOf({ a: addresses() }));
}

/** Ends twenty requests, those of one endpoint badly. */
async function fail(cluster: string, address: string): Promise<void> {
  const answer = await daemon.call("POST", `/pick?cluster=${cluster}&n=20`);
  const { picks } = (await answer.json()) as { picks: { address: string; lease: { id: string } }[] };
  const leases = picks.map((p) => ({ id: p.lease.id, outcome: p.address === address ? "error" : "success" }));
  assert.ok((await daemon.call("POST", "/v1/leases/done", { leases })).ok);
}

/** Notes what charts write on their canvas. */
const notingLetters = (page: Page) =>
  page.addInitScript(() => {
    const letters = new Set<string>();
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (...args) {
      letters.add(args[0]);
      write.apply(this, args);
    };
    Object.assign(globalThis, { letters });
  });
const marked = (page: Page, letter: string) =>
  page.waitForFunction((l) => (globalThis as unknown as { letters: Set<string> }).letters.has(l), letter, { timeout: patience });

/** Waits until the duration in an element's text gets shorter, and returns the longer one in seconds. */
async function countsDown(page: Page, selector: string, before: string): Promise<number> {
  let first = -1;
  for (const end = Date.now() + patience; ; await page.waitForTimeout(50)) {
    const text = (await page.textContent(selector)) ?? "";
    const found = new RegExp(`${before} (?:(\\d+) min ?)?(?:(\\d+) s)?`).exec(text);
    const left = 60 * Number(found?.[1] ?? 0) + Number(found?.[2] ?? 0);
    if (first < 0 && found) first = left;
    if (left < first) return first;
    assert.ok(Date.now() < end, `${selector} does not count down: ${text}`);
  }
}

describe("timers", { concurrency: true }, () => {
  it("an ejection has its reason and its end, by lbd's clock", async (t) => {
    const [bad, good] = addresses();
    await detecting("ejecting", "290s");
    const { page, faults } = await visit(t, browser, daemon, "#/clusters/ejecting", {}, notingLetters);
    await has(page, /2 of 2 endpoints READY/, "#headline");
    await fail("ejecting", bad);
    const shown = /EJECTED.*ejected by outlier detection: failure percentage 100\.0% of \d+ requests is above 50%; ejected; back in \d+ (s|min)/;
    await has(page, shown, rowOf(bad));
    await has(page, new RegExp(`1 of 2 endpoints READY.*Of 2 endpoints, 1 is EJECTED \\(${bad}\\)`), "#headline.warning");
    await has(page, /READY.*100 %/, rowOf(good));
    await has(page, new RegExp(`${bad}: the endpoint is ejected: failure percentage`), ".event.ejected");
    await marked(page, "E");
    await has(page, new RegExp(`E .*${bad}: the endpoint is ejected`), ".marks li");
    const left = await countsDown(page, rowOf(bad), "ejected; back in");
    assert.ok(left <= 290, `${left} s are left of 290`);
    assert.deepEqual(await violations(page), []);
    await page.setViewportSize({ width: 360, height: 740 });
    await fits(page);
    assert.deepEqual(await violations(page), []);

    for (const wrong of [-3_600_000, 3_600_000]) {
      const other = await visit(t, browser, daemon, "#/clusters/ejecting", {}, (p) => p.clock.install({ time: Date.now() + wrong }));
      await has(other.page, shown, rowOf(bad));
      assert.ok((await countsDown(other.page, rowOf(bad), "ejected; back in")) <= left);
      await has(other.page, /READY on priority 0 for \d+ (s|min)/, "#headline");
      assert.deepEqual(other.faults, []);
    }
    assert.deepEqual(faults, []);
  });

  it("an ejected endpoint returns", async (t) => {
    const [bad] = addresses();
    await detecting("returning", "2s");
    const { page, faults } = await visit(t, browser, daemon, "#/clusters/returning", {}, notingLetters);
    await has(page, /2 of 2 endpoints READY/, "#headline");
    await fail("returning", bad);
    await has(page, /unejected.*the endpoint is no longer ejected/, ".event.unejected");
    await marked(page, "e");
    await has(page, /● READY1 50 %$/, rowOf(bad));
    await has(page, /2 of 2 endpoints READY/, "#headline");
    assert.deepEqual(faults, []);
  });

  it("a hanging priority times out", async (t) => {
    const [hanging, next] = addresses(); // neither answers a TLS handshake
    // The page is open before the ten seconds begin.
    const { page, faults } = await visit(t, browser, daemon, "#/clusters");
    await push(daemon, "/v1/clusters/hanging/config", { type: "EDS", metadata: { filter_metadata: { lbd: { connect: "tls" } } } });
    await push(daemon, "/v1/clusters/hanging/endpoints", prioritiesOf([hanging], [next]));
    await page.goto(`${daemon.url}/#/clusters/hanging`);
    await has(page, /in use.*CONNECTING/, '[data-key="p0"]');
    const left = await countsDown(page, '[data-key="p0"]', "next priority starts in");
    assert.ok(left <= 10, `${left} s are left of 10`);
    assert.deepEqual(await violations(page), []);

    await has(page, /priority 1in use.*CONNECTING/, '[data-key="p1"]');
    await has(page, /still CONNECTING after 10s$/, '[data-key="p0"]');
    await has(page, /CONNECTING on priority 1.*Failed over: priority 0 is still CONNECTING after 10s/, "#headline");
    await has(page, /priority 0 was not READY within 10s/, ".event.priority_switched");
    assert.doesNotMatch((await page.textContent('[data-key="p1"]')) ?? "", /next priority/, "there is none");
    assert.deepEqual(faults, []);
  });

  it("unused connections are closed after a time", async (t) => {
    const port = await freePort();
    await push(daemon, "/v1/clusters/failing/endpoints", prioritiesOf([`127.0.0.1:${port}`], [addresses()[1]]));
    const { page, faults } = await visit(t, browser, daemon, "#/clusters/failing");
    await has(page, /in use.*READY/, '[data-key="p1"]');
    const first = await startUpstream(port);
    t.after(() => first.stop());
    await has(page, /in use.*READY/, '[data-key="p0"]');
    await has(page, /closes its connections in 1[45] min$/, '[data-key="p1"]');
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(faults, []);
  });
});
