// Pages without messages of the daemon, and after them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, has, hide, openBrowser, patience, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;

before(async () => {
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
});

/** A daemon with a cluster of the name orders. */
async function daemonOf(t: { after(f: () => Promise<void>): void }): Promise<Daemon> {
  const daemon = await startDaemon("serve", 0, ["--connect", "none"]);
  t.after(() => daemon.stop());
  await put(daemon);
  return daemon;
}
const put = (d: Daemon) => push(d, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));

/** Picks until the daemon's clock has moved so many seconds; the first pick is at once. */
async function pickFor(d: Daemon, seconds: number, n: number): Promise<void> {
  for (let first = 0, date = 0; date - first < seconds * 1000; ) {
    const answer = await d.call("POST", `/pick?cluster=orders&n=${n}`);
    await answer.arrayBuffer();
    date = Date.parse(answer.headers.get("Date") ?? "");
    first ||= date;
  }
}

/** Picks and ends what was picked, for as long as a page does not say something. */
async function pickUntil(d: Daemon, said: Promise<unknown>): Promise<void> {
  let over = false;
  const end = said.finally(() => (over = true));
  while (!over) {
    const { picks } = (await (await d.call("POST", "/pick?cluster=orders&n=5")).json()) as { picks: { lease: { id: string } }[] };
    await d.call("POST", "/v1/leases/done", { leases: picks.map((p) => ({ id: p.lease.id, outcome: "success" })) });
  }
  await end;
}

const legends = (page: Page) => page.$$eval(".legend b", (all) => all.map((b) => b.textContent ?? ""));

test("charts include picks of the time when the page was hidden, and current rates do not", async (t) => {
  const daemon = await daemonOf(t);
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await has(page, /No picks from this cluster now/, "#headline");
  await hide(page, true);
  await has(page, /paused/, ".live");
  await pickFor(daemon, 3, 1000);
  await page.evaluate(() => {
    const seen = new Set<string>();
    Object.assign(globalThis, { seen });
    new MutationObserver(() => {
      for (const [, rate] of (document.querySelector("#headline")?.textContent ?? "").matchAll(/([\d.,k]+) picks\/s/g)) seen.add(rate!);
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  await hide(page, false);
  await has(page, /live/, ".live");
  // A rate is shown for one interval between two messages, which may be over before the next look at the page. The picks
  // may also be part of the first message after the break, of which the page shows no rate. So pick until the observer
  // has noted a rate, at most three picks per interval.
  const rates = () => page.evaluate(() => [...(globalThis as unknown as { seen: Set<string> }).seen]);
  let seen: string[] = [];
  for (const end = Date.now() + patience; !seen.some((s) => /^[1-9]/.test(s)) && Date.now() < end; seen = await rates()) {
    await daemon.call("POST", "/pick?cluster=orders&n=3");
    await page.waitForTimeout(1500);
  }
  assert.ok(seen.some((s) => /^[1-9]/.test(s)), `${seen}`);
  assert.deepEqual(seen.filter((s) => s.length > 3), [], "three picks make at most 7.5 a second");
  // A point of the chart, in its table, is of the time that was not looked at.
  await page.waitForFunction(() => [...document.querySelectorAll(".chart tbody td")].some((e) => /^\d[\d,.]{2,}k?$/.test(e.textContent ?? "")));
  assert.deepEqual(faults, []);
});

test("a stopped daemon is not shown as live", async (t) => {
  const daemon = await daemonOf(t);
  const watched = await visit(t, browser, daemon, "#/clusters/orders", {}, (p) => p.clock.install());
  const { page } = watched;
  await has(page, /READY on priority 0/, "#headline");
  await has(page, /live/, ".live");
  const listed = await visit(t, browser, daemon, "#/clusters", {}, (p) => p.clock.install());
  await has(listed.page, /READY/, '[data-key="orders"]');
  const asked = await visit(t, browser, daemon, "#/xds", {}, (p) => p.clock.install());
  await has(asked.page, /no management server/);

  daemon.freeze(true);
  await page.clock.fastForward(31_000);
  await has(page, /reconnecting for (3\d|4\d) s: this page may be outdated/, ".live");
  await has(page, /^Last known, (3\d|4\d) s ago: READY on priority 0 for \d+ s/, "#headline.unknown");
  await has(page, /^was READY$/, ".top .state");
  assert.deepEqual(await violations(page), []);
  await listed.page.clock.fastForward(31_000);
  await has(listed.page, /reconnecting for/, ".live");
  await asked.page.clock.fastForward(6000); // asks again
  await asked.page.clock.fastForward(31_000);
  await has(asked.page, /lbd cannot be reached: no answer within 30 s/, ".alert");

  daemon.freeze(false);
  await has(page, /^READY on priority 0 for \d+ s/, "#headline.good");
  await has(page, /live/, ".live");
  await has(listed.page, /live/, ".live");
  await page.clock.fastForward(10_000); // the next try
  await asked.page.clock.fastForward(6000);
  await asked.page.waitForSelector(".alert", { state: "detached" });
  assert.deepEqual([watched.faults, listed.faults, asked.faults].flat(), []);
});

test("the last state of a killed daemon stays, without new samples", async (t) => {
  const daemon = await daemonOf(t);
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders", {}, (p) => p.clock.install());
  await pickUntil(daemon, has(page, /None of [1-9][\d,]+ picks\/s/, "#headline"));
  const before = await page.textContent("#headline p:last-child");
  await daemon.stop("SIGKILL");
  await has(page, /^Last known, /, "#headline.unknown");
  const rates = await legends(page);
  assert.match(rates[0]!, /^[1-9]/, "ok");
  const lasting = /priority 0 for (\d+ s)/.exec((await page.textContent("#headline")) ?? "")?.[1];
  await page.clock.fastForward(20_000);
  await has(page, /^Last known, [234]\d s ago/, "#headline.unknown");
  assert.deepEqual(await legends(page), rates, "no zeros since");
  assert.match((await page.textContent("#headline")) ?? "", new RegExp(`priority 0 for ${lasting},`));
  assert.match((await page.textContent("#headline p:last-child")) ?? "", /None of [1-9][\d,]* picks/, before ?? "");
  assert.deepEqual(faults, []);
});

test("a cluster that is removed and pushed again is watched again", async (t) => {
  const daemon = await daemonOf(t);
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await has(page, /READY on priority 0/, "#headline");
  await daemon.call("DELETE", "/v1/clusters/orders/endpoints");
  await has(page, /was removed while this page was open/, ".alert");
  await has(page, /retrying/, ".live");
  assert.deepEqual(await page.$$("#headline, .tree, .top .state"), []);
  assert.deepEqual(await violations(page), []);
  await put(daemon);
  await has(page, /READY on priority 0/, "#headline.good");
  await has(page, /live/, ".live");
  assert.equal(await page.$(".alert"), null);
  assert.deepEqual(faults, []);
});
