// A daemon with the management server of examples/control-plane.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, fits, freePort, has, openBrowser, patience, startDaemon, violations, visit } from "./kit.ts";

let browser: Browser;
let controlPlane: ChildProcess;
let daemon: Daemon;
let orders: string;

before(async () => {
  const [xds, admin] = [await freePort(), await freePort()];
  orders = `http://127.0.0.1:${admin}`;
  const program = process.env.CONTROL_PLANE;
  if (!program) throw new Error("CONTROL_PLANE should name the management server: run make test-web");
  controlPlane = spawn(program, ["-no-daemon", "-xds", `127.0.0.1:${xds}`, "-admin", `127.0.0.1:${admin}`], { stdio: ["ignore", "pipe", "ignore"] });
  const bootstrap = await new Promise<string>((found, failed) => {
    let said = "";
    controlPlane.once("exit", (code) => failed(new Error(`the management server ended with ${code}: ${said}`)));
    controlPlane.stdout?.on("data", (d: Buffer) => {
      said += d.toString();
      const file = /bootstrap file +(\S+)\n/.exec(said);
      if (file?.[1]) found(file[1]);
    });
  });
  browser = await openBrowser();
  daemon = await startDaemon("serve", 0, ["--bootstrap", bootstrap, "--target", "shop"]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
  controlPlane?.kill("SIGTERM");
});

/** Waits for a row. Showing the page again refreshes it at once. */
const row = (page: Page, ...words: string[]) =>
  page.waitForFunction(
    (all) => {
      document.dispatchEvent(new Event("visibilitychange"));
      return [...document.querySelectorAll("tr")].some((tr) => all.every((w) => tr.textContent?.includes(w)));
    },
    words,
    { timeout: patience },
  );
const order = async (what: string) => assert.ok((await fetch(`${orders}/${what}`, { method: "POST" })).ok, what);

test("resources of the management server are shown, with rejections", async (t) => {
  const { page, faults } = await visit(t, browser, daemon, "#/xds");
  await row(page, "127.0.0.1", "in use", "● connected");
  await row(page, "ClusterLoadAssignment", "orders", "acked");
  assert.deepEqual(await violations(page), []);
  await order("bad");
  await row(page, "Cluster", "nacked", "rejected version");
  await page.setViewportSize({ width: 360, height: 740 });
  await fits(page);
  assert.deepEqual(await violations(page), []);
  await order("good");
  await row(page, "Cluster", "orders", "acked");

  // No event reports new routes.
  const target = await visit(t, browser, daemon, "#/targets/xds%3A%2F%2F%2Fshop");
  await has(target.page, /● live/, ".live");
  await has(target.page, /orders 9\d %, orders-canary \d %|orders 100 %|→ orders/, ".routes");
  await order("canary?weight=37");
  await has(target.page, /orders 63 %, orders-canary 37 %/, ".routes");
  assert.deepEqual(target.faults, []);

  await order("stop");
  await row(page, "in use", "✕ not connected");

  // Picks continue with resources that may be outdated.
  const cluster = await visit(t, browser, daemon, "#/clusters/orders?target=xds%3A%2F%2F%2Fshop");
  await cluster.page.waitForFunction(() => /may be outdated/.test(document.querySelector("#headline")?.textContent ?? ""), undefined, { timeout: patience });

  const list = await visit(t, browser, daemon, "#/clusters");
  const stale = '[data-key="orders"] .of-source .tag';
  await has(list.page, /^stale$/, stale);
  await list.page.waitForFunction((s) => {
    const cell = document.querySelector(s)!.closest(".cell")!;
    return cell.scrollWidth <= cell.clientWidth;
  }, stale);
  await list.page.setViewportSize({ width: 390, height: 740 });
  await list.page.waitForSelector('[data-key="orders"] .of-state .tag:has-text("stale")', { state: "visible" });
  await fits(list.page);
  assert.deepEqual(await violations(list.page), []);
  assert.deepEqual([...faults, ...cluster.faults, ...list.faults], []);
});
