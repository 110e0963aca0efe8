// The README's screenshots: the demo in the middle of a fail-over, among other clusters.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { type Daemon, endpointsOf, openBrowser, patience, push, startDaemon, startEtcd, visit, write } from "../browser/kit.ts";

const to = process.env.SCREENSHOTS ?? "screenshots";
let browser: Browser;
let demo: Daemon;

const says = (page: Page, selector: string, text: RegExp) =>
  page.waitForFunction(
    ([s, source]) => new RegExp(source!).test(document.querySelector(s!)?.textContent ?? ""),
    [selector, text.source],
    { timeout: patience },
  );

const assigned = (zones: Record<string, string[]>) => {
  const { endpoints } = endpointsOf(zones);
  return { endpoints };
};

before(async () => {
  [browser, demo] = await Promise.all([openBrowser(), startDaemon("demo", 0, ["--name", "front-1"])]);
  // Clusters whose endpoints count as connected, and two that are not well.
  const zones = (n: number) => ({ a: [`10.1.${n}.1:8080`, `10.1.${n}.2:8080`, `10.1.${n}.3:8080`], b: [`10.2.${n}.1:8080`, `10.2.${n}.2:8080`] });
  const names = ["cart", "catalog", "checkout", "images", "inventory", "mail", "orders", "payments", "pricing", "ratings", "search", "sessions", "shipping", "stock", "tax", "users"];
  for (const [i, name] of names.entries()) {
    await push(demo, `/v1/clusters/${name}/config`, {
      type: "EDS", eds_cluster_config: { eds_config: { ads: {} } }, metadata: { filter_metadata: { lbd: { connect: "none" } } },
    });
    await push(demo, `/v1/clusters/${name}/endpoints`, assigned(zones(i)));
  }
  await push(demo, "/v1/clusters/legacy/endpoints", assigned({ a: ["127.0.0.1:9"] }));
  await push(demo, "/v1/clusters/reports/config", { type: "EDS", eds_cluster_config: { eds_config: { ads: {} } } });
});
after(async () => {
  await browser?.close();
  await demo?.stop();
});

const light: BrowserContextOptions = { colorScheme: "light" };
const dark: BrowserContextOptions = { colorScheme: "dark" };

test("a screenshot with every upstream stopped", async (t) => {
  const resources = await mkdtemp(join(tmpdir(), "lbd-screenshots-"));
  t.after(() => rm(resources, { recursive: true }));
  await writeFile(join(resources, "orders.yaml"), "cluster_name: orders\nlb_endpoint: []\n");
  const d = await startDaemon("serve", 0, ["--name", "front-1", "--resources", resources]);
  t.after(() => d.stop());
  const names = ["cart", "catalog", "checkout", "mail", "payments", "users"];
  for (const [i, name] of names.entries()) await push(d, `/v1/clusters/${name}/endpoints`, assigned({ a: ["127.0.0.1:9", `127.0.0.1:${10 + i}`] }));
  const traffic = setInterval(() => names.forEach((name, i) => void d.call("GET", `/pick?cluster=${name}&wait=0s&n=${i + 1}`).catch(() => undefined)), 100);
  t.after(() => clearInterval(traffic));
  const { page } = await visit(t, browser, d, "#/clusters", { ...light, viewport: { width: 1280, height: 560 } });
  await says(page, ".vitals", /Success0 %/);
  await page.waitForTimeout(5000);
  await page.screenshot({ path: `${to}/failing-light.png` });
});

test("a screenshot of the prompt for a token", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "lbd-screenshots-"));
  t.after(() => rm(dir, { recursive: true }));
  const tokens = join(dir, "tokens.yaml");
  await writeFile(tokens, "tokens: []\n", { mode: 0o600 });
  const d = await startDaemon("serve", 0, ["--tokens", tokens]);
  t.after(() => d.stop());
  const { page } = await visit(t, browser, d, "#/clusters", { ...light, viewport: { width: 800, height: 420 } });
  await says(page, "dialog", /Missing role: read/);
  await page.screenshot({ path: `${to}/token-light.png` });
});

test("screenshots of a fleet, its history and an overlay", async (t) => {
  const etcd = await startEtcd();
  t.after(() => etcd.stop());
  const replicas = await Promise.all(
    ["front-1", "front-2", "front-3"].map((name, i) =>
      startDaemon("serve", 0, ["--store", `etcd://${etcd.address}/lbd`, "--name", name, "--zone", `us-east1-${"abc"[i]}`, "--connect", i === 2 ? "tcp" : "none"]),
    ),
  );
  t.after(() => Promise.all(replicas.map((d) => d.stop("SIGKILL"))));
  const [first] = replicas as [Daemon];
  const say = (path: string, body: unknown, message = "", method = "PUT") =>
    fetch(`${first.url}${path}`, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...(message && { "Lbd-Message": message }) } });
  const endpoints = ["10.1.6.1:8080", "10.1.6.2:8080", "10.1.6.3:8080"];
  await push(first, "/v1/clusters/payments/config", {
    type: "EDS", circuit_breakers: { thresholds: [{ max_requests: 60 }] }, metadata: { filter_metadata: { lbd: { limit_scope: "fleet" } } },
  });
  await push(first, "/v1/clusters/payments/endpoints", assigned({ a: endpoints }));
  for (const d of replicas) for (let i = 0; i < 8; i++) await d.call("POST", "/pick?cluster=payments&ttl=10m");
  await say("/v1/clusters/payments/endpoints", assigned({ a: [...endpoints, "10.1.6.4:8080"] }), "one more for the sale");
  await say("/v1/clusters/payments/overlays/kernel", { kind: "drain", endpoint: "10.1.6.2:8080", reason: "kernel update", expires: "2h" });
  await say("/v1/clusters/payments/endpoints", assigned({ a: endpoints.slice(1), b: ["10.2.6.1:8080"] }), "move to zone b");

  const fleet = await visit(t, browser, first, "#/fleet", { ...light, viewport: { width: 1100, height: 360 } });
  await says(fleet.page, ".replicas", /front-3/);
  await says(fleet.page, ".limits", /payments/);
  await fleet.page.waitForTimeout(6000); // the summaries of the replicas
  await fleet.page.screenshot({ path: `${to}/fleet-light.png` });

  const history = await visit(t, browser, first, "#/history", { ...dark, viewport: { width: 1180, height: 360 } });
  await says(history.page, "main", /move to zone b/);
  await history.page.waitForTimeout(1000);
  await history.page.screenshot({ path: `${to}/history-dark.png` });

  const cluster = await visit(t, browser, first, "#/clusters/payments", { ...light, viewport: { width: 1280, height: 620 } });
  await says(cluster.page, ".overlays", /in flight/);
  await cluster.page.waitForTimeout(3000);
  await cluster.page.screenshot({ path: `${to}/overlay-light.png` });
});

test("screenshots", async (t) => {
  const pages: [string, Page][] = [];
  for (const [scheme, options] of [["light", light], ["dark", dark]] as const) {
    const { page } = await visit(t, browser, demo, "#/clusters/demo", { ...options, viewport: { width: 1280, height: 860 } });
    await says(page, ".live", /live/);
    pages.push([scheme, page]);
  }
  const seen = pages[0]![1];
  await seen.waitForTimeout(25_000); // something to see in the charts
  await fetch(`${demo.control}/stop?priority=0`, { method: "POST" });
  for (const [, page] of pages) await says(page, "#headline .first", /priority 1/);
  await seen.waitForTimeout(20_000);
  for (const [scheme, page] of pages) await page.screenshot({ path: `${to}/cluster-${scheme}.png` });

  // Some traffic in the list.
  const names = ["orders", "cart", "search", "users", "payments"];
  const traffic = setInterval(() => names.forEach((name, i) => void demo.call("GET", `/pick?cluster=${name}&n=${10 * (i + 1)}`)), 100);
  t.after(() => clearInterval(traffic));
  for (const [scheme, options] of [["light", light], ["dark", dark]] as const) {
    const { page } = await visit(t, browser, demo, "#/clusters", { ...options, viewport: { width: 1280, height: 720 } });
    await page.waitForTimeout(6000);
    await page.screenshot({ path: `${to}/clusters-${scheme}.png` });
  }

  const explain = await visit(t, browser, demo, "#/explain?cluster=demo", { ...light, viewport: { width: 1000, height: 860 } });
  await says(explain.page, "#outcome", /Picked|Refused/);
  for (let tries = 0; tries < 50 && !/Picked/.test((await explain.page.textContent("#outcome")) ?? ""); tries++) {
    await explain.page.click("#pick"); // until it is neither dropped nor refused
    await explain.page.waitForTimeout(300);
  }
  await explain.page.screenshot({ path: `${to}/explain-light.png` });

  const body = (port: number, weight: number) => `endpoints:
- locality: {region: us, zone: a}
  load_balancing_weight: ${weight}
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.1.6.1, port_value: 8080}}}
  - endpoint: {address: {socket_address: {address: 10.1.6.9, port_value: ${port}}}}
- locality: {region: us, zone: b}
  load_balancing_weight: 1
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.2.6.1, port_value: 8080}}}
  - endpoint: {address: {socket_address: {address: 10.2.6.2, port_value: 8080}}}
policy:
  drop_overloads:
  - {category: throttle, drop_percentage: {numerator: 2}}
`;
  const push1 = await visit(t, browser, demo, "#/push?cluster=orders", { ...dark, viewport: { width: 1280, height: 760 } });
  await write(push1.page, body(99999, 3));
  await says(push1.page, ".verdict", /error/);
  await push1.page.screenshot({ path: `${to}/push-refused-dark.png` });
  const push2 = await visit(t, browser, demo, "#/push?cluster=orders", { ...light, viewport: { width: 1280, height: 890 } });
  await write(push2.page, body(8080, 3));
  await says(push2.page, ".verdict", /Effect on picks/);
  await push2.page.waitForTimeout(1000);
  await push2.page.screenshot({ path: `${to}/push-light.png` });

  const phone = await visit(t, browser, demo, "#/clusters/demo", { ...dark, viewport: { width: 360, height: 740 }, deviceScaleFactor: 1.5 });
  await says(phone.page, "#headline", /Dropped/);
  await phone.page.screenshot({ path: `${to}/phone-dark.png` });
});
