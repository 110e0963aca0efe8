// Errors and effects of a typed, dropped or loaded text, and its push.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, has, openBrowser, push, startDaemon, typed, violations, visit, write } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

const bundle = {
  resources: [{ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", name: "bundled", type: "EDS" }],
};

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"], b: ["10.0.1.1:80"] }));
  await push(daemon, "/v1/snapshot", bundle, "POST");
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const differences = (page: Page) => page.$$eval(".differences li", (all) => all.map((e) => e.textContent?.replace(/\s+/g, " ").trim()));

const bad = `endpoints:
- locality: {region: us, zone: a}
  load_balancing_weight: 1
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}
  - endpoint:
      address:
        socket_address: {address: 10.0.0.2,
          port_value: 99999}
`;
const good = bad.replace("99999", "81");

test("the error of an invalid push is shown at its line", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=orders");
  await write(page, bad);
  await has(page, /would be rejected: 1 error/);
  await has(page, /line 9, column 11: endpoints\[0\]\.lb_endpoints\[1\].*port_value/, ".rules");
  assert.deepEqual(await page.$$eval(".cm-lintRange-error", (all) => all.map((e) => e.textContent)), ["port_value: 99999"]);
  const rows = (selector: string) => page.$$eval(selector, (all) => all.map((e) => Math.round(e.getBoundingClientRect().top)));
  assert.deepEqual(await rows(".cm-lint-marker-error"), (await rows('.cm-lineNumbers .cm-gutterElement:text-is("9")')));
  assert.equal(await page.getAttribute("#body", "aria-invalid"), "true");
  await page.click(".rules button");
  assert.equal(await page.evaluate(() => String(getSelection())), "port_value: 99999");
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.$("text=Apply"), null, "an invalid text cannot be applied");

  await write(page, "endpoints:\n- a: [\n");
  await has(page, /line 2/, ".rules");
  assert.deepEqual(faults, []);
});

test("the effect of a push is shown first, and a concurrent push is not overwritten", async (t) => {
  await push(daemon, "/v1/clusters/pushed/endpoints", endpointsOf({ a: ["10.0.0.1:80"], b: ["10.0.1.1:80"] }));
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=pushed");
  await write(page, good);
  await has(page, /It can be applied/);
  assert.deepEqual(await differences(page), [
    "+ priority 0, us/a, 10.0.0.2:81 added: weight 1",
    "− priority 0, us/b removed: 1 endpoint",
  ]);
  await has(page, /cluster_name.*is absent: taken as "pushed"/, '.rules[aria-label="Notes"]');
  assert.equal(await page.$('.rules[aria-label="Warnings"]'), null, "what lbd fills in is no warning");
  await has(page, /10\.0\.0\.2:81\s*added/, ".effect tbody");
  assert.deepEqual(await violations(page), []);

  // A concurrent push comes first.
  await push(daemon, "/v1/clusters/pushed/endpoints", endpointsOf({ c: ["10.0.9.9:80"] }));
  await page.click("text=Apply");
  await has(page, /The resource was changed in the meantime/, ".alert");
  await has(page, /us\/c removed/, ".differences");
  assert.match(await (await daemon.call("GET", "/v1/clusters/pushed/endpoints")).text(), /10\.0\.9\.9/);

  await page.click("text=Apply");
  await has(page, /Pushed/, "#verdict-title");
  assert.match(await (await daemon.call("GET", "/v1/clusters/pushed/endpoints")).text(), /10\.0\.0\.2/);
  assert.deepEqual(faults, []);
});

test("the kind of a file is detected, and a bundle is shown by resource", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push");
  await page.setInputFiles('input[type="file"]', { name: "c.yaml", mimeType: "application/yaml", buffer: Buffer.from("name: fresh\ntype: EDS\n") });
  await has(page, /the whole resource added/, ".differences");
  assert.equal(await page.inputValue("select"), "config");
  assert.equal(await page.inputValue('input[required]'), "fresh");
  await page.setInputFiles('input[type="file"]', { name: "s.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(bundle)) });
  await has(page, /Nothing would change/);
  assert.equal(await page.inputValue("select"), "snapshot");
  await page.selectOption("select", "replace");
  await has(page, /\d resources would change/);
  await has(page, /ClusterLoadAssignment\/orders removed/, ".resource");
  assert.deepEqual(faults, []);
});

test("additional addresses and metadata are compared", async (t) => {
  const endpoint = (more: object, metadata: object) => ({
    endpoints: [
      {
        locality: { region: "us", zone: "a" }, load_balancing_weight: 1,
        lb_endpoints: [{ endpoint: { address: { socket_address: { address: "10.0.0.1", port_value: 80 } }, ...more }, ...metadata }],
      },
    ],
  });
  const also = { additional_addresses: [{ address: { socket_address: { address: "10.9.0.1", port_value: 80 } } }] };
  const keyed = { metadata: { filter_metadata: { "envoy.lb": { hash_key: "one" } } } };
  await push(daemon, "/v1/clusters/detailed/endpoints", endpoint({}, {}));
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=detailed");
  await write(page, JSON.stringify(endpoint(also, keyed)));
  await has(page, /Apply/, "button");
  assert.deepEqual(await differences(page), [
    "~ priority 0, us/a, 10.0.0.1:80 modified: weight 1 → weight 1, also 10.9.0.1:80",
    '+ priority 0, us/a, 10.0.0.1:80, metadata added: {"filter_metadata":{"envoy.lb":{"hash_key":"one"}}}',
  ]);
  await page.click("text=Apply");
  await has(page, /Applied: 1 resource changed/);
  await write(page, JSON.stringify(endpoint(also, { metadata: { filter_metadata: { "envoy.lb": { hash_key: "two" } } } })));
  await has(page, /"one" → "two"/, ".differences");

  // lbd ignores a local tag, and the parser of the page does not.
  await write(page, `endpoints: !zones ${JSON.stringify(endpoint({}, {}).endpoints)}`);
  await has(page, /This page cannot parse the text, so it shows no differences\. lbd would change:/);
  assert.deepEqual(await differences(page), ["~ ClusterLoadAssignment/detailed modified"]);
  assert.deepEqual(faults, []);
});

/** What the effect on picks says of each endpoint. */
async function moved(page: Page): Promise<Record<string, string>> {
  await has(page, /Effect on picks/, ".effect h3");
  return page.$$eval(".effect tbody tr", (all) =>
    Object.fromEntries(all.map((tr) => [tr.querySelector("th")!.textContent!.trim(), tr.querySelector("td")!.textContent!.trim()])),
  );
}

test("the effect on picks is shown, and is what happens", async (t) => {
  await push(daemon, "/v1/clusters/moving/config", { type: "EDS", metadata: { filter_metadata: { lbd: { connect: "none" } } } });
  await push(daemon, "/v1/clusters/moving/endpoints", endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"] }));
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=moving");
  const typed = endpointsOf({ a: ["10.0.0.1:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80"] });
  await write(page, JSON.stringify(typed));
  assert.deepEqual(await moved(page), {
    "10.0.0.2:80 removed": "50 % → 0 %", "10.0.0.1:80": "50 % → 25 %",
    "10.0.0.3:80 added": "0 % → 25 %", "10.0.0.4:80 added": "0 % → 25 %", "10.0.0.5:80 added": "0 % → 25 %",
  });
  await has(page, /75 % of the picks get another endpoint/, ".effect");
  assert.equal(await page.$$eval(".flows path", (all) => all.length), 5);

  // A limit that the change exceeds, and one that it does not.
  await page.fill("#max-shift", "50");
  await has(page, /It would be rejected: .*max_shift/, ".verdict");
  assert.equal(await page.getAttribute("button.primary", "aria-disabled"), "true");
  assert.equal(Object.keys(await moved(page)).length, 5, "the effect is shown also of what is rejected");
  await page.fill("#max-shift", "80");
  await has(page, /It can be applied/, ".verdict");
  await page.click("text=Apply");
  await has(page, /Pushed/, "#verdict-title");
  const state = (await (await daemon.call("GET", "/v1/clusters/moving")).json()) as { priorities: { localities: { endpoints: { address: string; share: number }[] }[] }[] };
  assert.deepEqual(state.priorities[0]!.localities[0]!.endpoints.map((e) => e.share), [0.25, 0.25, 0.25, 0.25]);
  assert.deepEqual(faults, []);
});

test("a file can be dropped, and the pushed resource can be loaded", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=orders");
  const dropped = await page.evaluateHandle((text) => {
    const d = new DataTransfer();
    d.items.add(new File([text], "e.json", { type: "application/json" }));
    return d;
  }, JSON.stringify(endpointsOf({ a: ["10.0.0.1:80"] })));
  await page.dispatchEvent(".push", "dragover", { dataTransfer: dropped });
  await page.waitForSelector(".push.over");
  await page.dispatchEvent(".push", "drop", { dataTransfer: dropped });
  await has(page, /us\/b removed/, ".differences");

  // Typed text is replaced only after a confirmation.
  let answer = false;
  const questions: string[] = [];
  page.on("dialog", (d) => {
    questions.push(d.message());
    void (answer ? d.accept() : d.dismiss());
  });
  await page.click("text=Load what was pushed");
  assert.match(await typed(page), /^\{"endpoints"/);
  answer = true;
  await page.click("text=Load what was pushed");
  await has(page, /Nothing to apply/, "button");
  assert.match(await typed(page), /^cluster_name: orders\n/);
  assert.equal(questions.length, 2);
  await page.focus("#body");
  await page.keyboard.press("Control+z");
  assert.match(await typed(page), /^\{"endpoints"/, "it can be undone");
  await has(page, /us\/b removed/, ".differences");
  await page.keyboard.press("Control+y");
  await has(page, /Nothing to apply/, "button");
  await page.fill("input[required]", "unknown");
  await page.click("text=Load what was pushed");
  await has(page, /Nothing was pushed for unknown/, ".alert");
  assert.deepEqual(faults, []);
});

test("drafts outlive the page, by cluster", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=orders");
  await write(page, good);
  await has(page, /It can be applied/);
  await page.click('header a:has-text("Push")');
  await has(page, /Drafts: for orders/);
  assert.equal(await typed(page), "");
  await page.click("text=for orders");
  await has(page, /It can be applied/);
  assert.equal(await typed(page), good);
  assert.equal(await page.inputValue("input[required]"), "orders");
  assert.doesNotMatch((await page.textContent("main")) ?? "", /Drafts:/);
  const asks = () => page.evaluate(() => !dispatchEvent(new Event("beforeunload", { cancelable: true })));
  assert.ok(await asks(), "the browser asks before the page is left");
  await write(page, "");
  await page.waitForFunction(() => dispatchEvent(new Event("beforeunload", { cancelable: true })));
  await page.click('header a:has-text("Clusters")');
  await page.click('header a:has-text("Push")');
  await has(page, /Paste, type or drop/);
  assert.doesNotMatch((await page.textContent("main")) ?? "", /Drafts:/);
  assert.deepEqual(faults, []);
});

test("a failed dry run is reported and can be retried", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=orders");
  await page.route("**/v1/clusters/orders/endpoints?dry_run=true", (route) => route.abort());
  await write(page, good);
  await has(page, /The effect is unknown: lbd cannot be reached/, ".refusal");
  assert.equal(await page.$("text=Apply"), null);
  await page.unroute("**/v1/clusters/orders/endpoints?dry_run=true");
  await page.click("text=Ask again");
  await has(page, /It can be applied/);
  assert.deepEqual(faults, []);
});

test("changes during a push are not reported as pushed", async (t) => {
  await push(daemon, "/v1/clusters/slow/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  let answer = () => {};
  const held = new Promise<void>((open) => (answer = open));
  const { page, faults } = await visit(t, browser, daemon, "#/push?cluster=slow", {}, (p) =>
    p.route("**/v1/clusters/slow/endpoints", async (route) => {
      if (route.request().method() === "PUT") await held;
      await route.continue();
    }),
  );
  await write(page, good);
  await page.click("text=Apply");
  await write(page, good.replace("port_value: 81", "port_value: 82"));
  answer();
  await has(page, /The text was pushed without your latest changes: 1 resource changed/, ".alert");
  await has(page, /10\.0\.0\.2:82 added/, ".differences");
  await has(page, /Effect/, "#verdict-title");
  assert.match(await (await daemon.call("GET", "/v1/clusters/slow/endpoints")).text(), /"port_value": 81/);
  assert.deepEqual(faults, []);
});
