// The editor of the page for pushes: keys, search, errors, colors, large texts.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, patience, push, startDaemon, typed, violations, visit, write } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const focused = (page: Page) => page.evaluate(() => document.activeElement?.id || document.activeElement?.getAttribute("name") || document.activeElement?.textContent);

/** What the Content-Security-Policy blocks, which is a fault. */
const watchPolicy = (page: Page) =>
  page.addInitScript(() => document.addEventListener("securitypolicyviolation", (e) => console.error(`blocked ${e.violatedDirective} ${e.blockedURI}`)));

const wrong = `endpoints:
- locality: {region: us, zone: a}
  load_balancing_weight: 1
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: "10.0.0.1", port_value: 99999}}}
`;

test("the keyboard edits, searches, goes to errors and leaves", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=orders", {}, watchPolicy);
  await page.focus("#body");
  await page.keyboard.type("a:");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.type("b: 1");
  assert.equal(await typed(page), "a:\n  b: 1");
  assert.equal(await focused(page), "body");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await focused(page), "Load what was pushed");
  await page.keyboard.press("Tab");
  assert.equal(await focused(page), "body");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  assert.notEqual(await focused(page), "body");
  assert.match((await page.textContent("#keys")) ?? "", /press Escape, then Tab/);
  assert.equal(await page.getAttribute("#body", "aria-describedby"), "keys");

  // An error: its mark, and its message for eyes and screen readers.
  await write(page, wrong);
  await page.waitForSelector(".cm-lintRange-error");
  await page.keyboard.press("F8");
  const message = /endpoints\[0\].*port_value: is 99999: it must be from 1 to 65535/;
  await has(page, message, ".cm-tooltip-lint");
  await has(page, message, ".cm-announced");
  assert.equal(await page.evaluate(() => String(getSelection())), "port_value: 99999");
  assert.deepEqual(await violations(page), []);
  // It moves with the text until the next verdict.
  await page.route("**/v1/clusters/orders/endpoints?dry_run=true", () => new Promise(() => undefined));
  await page.keyboard.press("Control+Home");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector(".verdict")?.textContent?.includes("Loading"));
  assert.deepEqual(await page.$$eval(".cm-lintRange-error", (all) => all.map((e) => e.textContent)), ["port_value: 99999"]);
  await page.unroute("**/v1/clusters/orders/endpoints?dry_run=true");
  await page.keyboard.press("Control+z");
  assert.equal(await typed(page), wrong);

  await page.keyboard.press("Control+f");
  await page.keyboard.type("address");
  await page.waitForFunction(() => document.querySelectorAll(".cm-searchMatch").length === 3);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".cm-searchMatch-selected");
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".cm-search", { state: "detached" });
  assert.equal(await focused(page), "body");

  // The policy does not block the styles.
  assert.equal(await page.$eval(".cm-scroller", (e) => getComputedStyle(e).display), "flex");
  assert.deepEqual(faults, []);
});

test("all text of long lines is visible, and the search keeps the focus", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=orders");
  const long = `a: "${"long ".repeat(60)}end"`;
  await write(page, `${long}\n\u202eb: 1`);
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 800 });
    await fits(page);
    const clipped = await page.$eval(".cm-scroller", (e) => e.scrollWidth > e.clientWidth || [...e.querySelectorAll(".cm-line")].some((l) => l.getBoundingClientRect().right > e.getBoundingClientRect().right));
    assert.equal(clipped, false, `${width} px`);
  }
  assert.equal(await page.textContent(".cm-specialChar"), "•", "characters that reorder a text are visible");
  // A cursor at the end of the first row of a wrapped line.
  await page.keyboard.press("Control+Home");
  await page.keyboard.press("End");
  const drawn = () => page.evaluate(() => new Promise((frame) => requestAnimationFrame(() => requestAnimationFrame(frame))));
  await drawn();
  await page.keyboard.press("Control+f");
  for (const c of "end") {
    await page.keyboard.press(c);
    await drawn();
  }
  assert.equal(await page.inputValue('.cm-search [name="search"]'), "end");
  await page.keyboard.press("Escape");
  await page.click("input[required]");
  await page.waitForTimeout(100); // CodeMirror handles the change of the focus 10 ms later
  await drawn();
  assert.equal(await page.evaluate(() => document.activeElement?.tagName), "INPUT");
  assert.deepEqual(faults, []);
});

test("only the page for pushes loads the editor, and says if it cannot", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters");
  const scripts: string[] = [];
  page.on("request", (r) => scripts.push(r.url()));
  for (const place of ["clusters", "clusters/orders", "targets", "xds", "store", "fleet", "events", "history", "explain"]) {
    await page.goto(`${daemon.url}/#/${place}`);
    await page.waitForSelector("#title");
  }
  const editor = /\/assets\/codemirror-\w+\.js$/;
  assert.deepEqual(scripts.filter((url) => editor.test(url)), []);
  await page.route(editor, (route) => route.abort());
  await page.goto(`${daemon.url}/#/push`);
  await has(page, /The editor could not be loaded\. Reload the page/, ".alert");
  await page.unroute(editor);
  await page.reload();
  await page.waitForSelector("#body");
  assert.equal(scripts.filter((url) => editor.test(url)).length, 2);
  assert.deepEqual(faults, []);
});

test("a text of 100,000 endpoints can be edited, and is checked on request", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=many");
  const addresses = Array.from({ length: 100_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}:80`);
  const text = JSON.stringify(endpointsOf({ a: addresses }), null, 1);
  await page.evaluate((body) => {
    const d = new DataTransfer();
    d.items.add(new File([body], "e.json", { type: "application/json" }));
    document.querySelector(".push")!.dispatchEvent(new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true }));
  }, text);
  await has(page, /It can be applied/, ".verdict");
  assert.ok((await page.$$(".cm-line")).length < 500, "the visible lines are drawn");
  await page.click("#body .cm-line >> nth=0");
  await page.keyboard.press("Control+End");
  await page.keyboard.type(" x");
  await has(page, /The text has [\d,]+ characters.*this page does not check it while you type/, ".verdict");
  assert.equal(await page.$("text=Apply"), null);
  await page.click('button:text-is("Check")');
  await has(page, /It would be rejected/, ".verdict");
  await page.focus("#body");
  await page.keyboard.press("Control+z");
  await page.click('button:text-is("Check")');
  await page.click('button:text-is("Apply")');
  await has(page, /Applied: 1 resource changed/, ".verdict");

  // lbd does not accept a YAML as large as this.
  await page.click("text=Load what was pushed");
  await has(page, /Nothing to apply/, "button");
  await page.waitForFunction(() => document.querySelector("#body .cm-line")?.textContent === "{");

  // A line of megabytes.
  await page.focus("#body");
  await page.evaluate((body) => {
    const d = new DataTransfer();
    d.items.add(new File([body], "e.json", { type: "application/json" }));
    document.querySelector(".push")!.dispatchEvent(new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true }));
  }, JSON.stringify(JSON.parse(text)));
  await has(page, /Without colors, because the lines are too long/, ".cm-notice");
  await has(page, /It can be applied|Nothing to apply/, ".verdict");
  await page.waitForFunction(() => (document.querySelector("#body")?.textContent?.length ?? 0) < 200_000, undefined, { timeout: patience });
  assert.deepEqual(faults, []);
});
