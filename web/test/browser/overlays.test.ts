// Overlays on the pages of clusters, and the undo.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, push, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"] }));
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("a drain is shown with who, why and what is in flight, and can be undone", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/orders");
  await has(page, /10\.0\.0\.1:80/, ".tree, [role=treegrid], main");
  assert.equal(await page.$(".overlays"), null);
  for (let i = 0; i < 2; i++) assert.equal((await daemon.call("POST", "/pick?cluster=orders&ttl=10m")).status, 201);
  await push(daemon, "/v1/clusters/orders/overlays/deploy-7", { kind: "drain", endpoint: "10.0.0.1:80", reason: "kernel <b>update</b>", expires: "2h" });
  await has(page, /deploy-7 drains endpoint 10\.0\.0\.1:80/, ".overlays");
  await has(page, /1 in flight left/, ".overlays");
  await has(page, /kernel <b>update<\/b>; by 127\.0\.0\.1.* ends in 1 h/, ".overlays");
  await has(page, /10\.0\.0\.1:80\s*▲ UNHEALTHY.*overlay deploy-7/);
  assert.deepEqual(await violations(page), []);
  assert.ok(await fits(page));

  const list = await visit(t, browser, daemon, "#/");
  await has(list.page, /1 overlay/);
  assert.deepEqual(await violations(list.page), []);

  await page.click(".overlays button");
  await has(page, /Remove it/, ".overlays");
  await page.click("text=Remove it");
  await page.waitForSelector(".overlays", { state: "detached" });
  await has(page, /overlay ended/);
  assert.deepEqual(JSON.parse(await (await daemon.call("GET", "/v1/overlays")).text()), { overlays: [] });
  assert.deepEqual(faults, []);
});

test("a push over a file says what it covers", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "lbd-"));
  t.after(() => rmSync(dir, { recursive: true }));
  writeFileSync(join(dir, "filed.json"), JSON.stringify({ cluster_name: "filed", ...endpointsOf({ a: ["10.0.0.1:80"] }) }));
  const filed = await startDaemon("serve", 0, ["--connect", "none", "--resources", dir]);
  t.after(() => filed.stop());
  const { page, faults } = await visit(t, browser, filed, "#/clusters/filed");
  await has(page, /endpoints from file/);
  assert.doesNotMatch((await page.textContent("#headline")) ?? "", /covered/);
  await push(filed, "/v1/clusters/filed/endpoints", endpointsOf({ a: ["10.0.0.1:80", "10.0.0.2:80"] }));
  await has(page, /ClusterLoadAssignment\/filed of a resource file is not in use: a push by 127\.0\.0\.1.* covers it .*1 endpoint added/, "#headline");
  assert.deepEqual(await violations(page), []);
  await filed.call("DELETE", "/v1/clusters/filed/endpoints");
  await has(page, /endpoints from file/);
  assert.doesNotMatch((await page.textContent("#headline")) ?? "", /covered/);
  assert.deepEqual(faults, []);
});
