// Resources and requests of an attacker.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, freePort, has, openBrowser, patience, push, startDaemon, visit, write } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;

before(async () => {
  [browser, daemon] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--connect", "none"])]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

/** Texts that run a script or load something if they are not shown as text. */
const texts = [
  `<img src="http://127.0.0.1:1/x" onerror="globalThis.ran=1">`, `"><svg onload=globalThis.ran=2>`, `'-globalThis.ran=3-'`, `javascript:globalThis.ran=4`,
  `</script><script>globalThis.ran=5</script>`, `<iframe srcdoc="<script>parent.ran=6</script>"></iframe>`, `<style>@import "http://127.0.0.1:1/y"</style>`,
  "${globalThis.ran=7}{{constructor.constructor('globalThis.ran=8')()}}", `url(http://127.0.0.1:1/z)`, `__proto__`,
];
const type = "type.googleapis.com/envoy.config";

/** A cluster with the text wherever a pusher can choose one. */
const resourcesOf = (text: string) => [
  {
    "@type": `${type}.cluster.v3.Cluster`, name: text, type: "EDS", eds_cluster_config: { service_name: text, eds_config: { ads: {} } },
    alt_stat_name: text, metadata: { filter_metadata: { [text]: { [text]: text } } },
  },
  {
    "@type": `${type}.endpoint.v3.ClusterLoadAssignment`, cluster_name: text,
    endpoints: [0, 1].map((priority) => ({
      priority, locality: { region: text, zone: text, sub_zone: `${text} ${priority}` }, load_balancing_weight: 1,
      lb_endpoints: [{ endpoint: { hostname: text, address: { socket_address: { address: "10.0.0.1", port_value: 80 + priority } } }, metadata: { filter_metadata: { [text]: { a: text } } } }],
    })),
    policy: { drop_overloads: [{ category: text, drop_percentage: { numerator: 100 } }] },
  },
];

const listener = (name: string, text: string) => ({
  "@type": `${type}.listener.v3.Listener`, name,
  api_listener: {
    api_listener: {
      "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
      route_config: {
        name: text,
        virtual_hosts: [
          {
            name: text, domains: ["*"],
            routes: [
              { name: text, match: { path: `/${text}`, headers: [{ name: "x-a", string_match: { exact: text } }] }, route: { cluster: text } },
              { name: text, match: { prefix: "/" }, route: { cluster: text, hash_policy: [{ header: { header_name: "x-b" } }] } },
            ],
          },
        ],
      },
      http_filters: [{ name: text, typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } }],
    },
  },
});

/** What is in a page that no page of the dashboard has, and whether a script ran. */
const foreign = (page: Page) =>
  page.evaluate(() => ({
    ran: (globalThis as unknown as { ran?: number }).ran ?? 0,
    elements: [...document.querySelectorAll("img, iframe, object, embed, base, form[action], script:not([src]), style:not(head style), svg[onload]")].map((e) => e.outerHTML),
    handlers: [...document.querySelectorAll("*")].flatMap((e) => e.getAttributeNames().filter((n) => n.startsWith("on"))),
    links: [...document.querySelectorAll("[href], [src]")].map((e) => e.getAttribute("href") ?? e.getAttribute("src") ?? "").filter((h) => /^\s*(javascript|vbscript):|127\.0\.0\.1:1\//i.test(h)),
    policy: (globalThis as unknown as { violated?: string[] }).violated,
  }));

/** Notes violations of the Content-Security-Policy. */
const watchPolicy = (page: Page) =>
  page.addInitScript(() => {
    const violated: string[] = [];
    Object.assign(globalThis, { violated });
    document.addEventListener("securitypolicyviolation", (e) => violated.push(`${e.violatedDirective} ${e.blockedURI}`));
  });

// Without the policy, a script that is not prevented by it would run.
for (const bypassCSP of [false, true]) {
  test(`texts of a pusher are shown as text, ${bypassCSP ? "also without" : "with"} the Content-Security-Policy`, async (t) => {
    for (const text of texts) await push(daemon, "/v1/snapshot", { resources: resourcesOf(text) }, "POST");
    const refused = await daemon.call("PUT", "/v1/clusters/orders/endpoints", { [texts[0]!]: 1 });
    assert.equal(refused.ok, false);
    await refused.text();
    const shown: string[] = [];
    for (const [i, text] of texts.entries()) {
      const r = await daemon.call("POST", "/v1/snapshot", { resources: [listener(`${text} ${i}`, text)] });
      const answer = await r.text();
      if (r.ok) shown.push(`${text} ${i}`);
      else assert.equal(r.status, 422, answer);
    }
    assert.ok(shown.length >= texts.length / 2, `${shown.length} targets`);

    const { page, faults } = await visit(t, browser, daemon, "#/clusters", { bypassCSP }, watchPolicy);
    const requested: string[] = [];
    page.on("request", (r) => requested.push(r.url()));
    const q = encodeURIComponent;
    const clean = { ran: 0, elements: [], handlers: [], links: [], policy: [] };
    const inspect = async (what: string) => assert.deepEqual(await foreign(page), clean, what);
    await has(page, /<svg onload/, '[role="table"]');
    await inspect("clusters");
    for (const text of texts) {
      await page.goto(`${daemon.url}/#/clusters/${q(text)}`);
      await has(page, /READY on priority 0/, "#headline");
      assert.equal(await page.textContent("#title"), text);
      await page.waitForFunction((s) => document.querySelector(".tree")?.textContent?.includes(s), text);
      await inspect(`cluster ${text}`);
      await page.goto(`${daemon.url}/#/events?cluster=${q(text)}`);
      await page.waitForFunction((s) => document.querySelector(".event .says")?.textContent?.includes(s), text);
      await inspect(`events ${text}`);
      await page.goto(`${daemon.url}/#/explain?cluster=${q(text)}`);
      await has(page, /Dropped/, "#outcome");
      await inspect(`explain ${text}`);
      await page.goto(`${daemon.url}/#/push?cluster=${q(text)}`);
      await write(page, JSON.stringify({ ...resourcesOf(text)[1], policy: { drop_overloads: [{ category: `${text}2`, drop_percentage: { numerator: 1 } }] }, [text]: 1 }));
      await has(page, /It would be rejected/, ".verdict");
      await page.waitForSelector(".cm-lintRange-error");
      await page.keyboard.press("F8");
      await page.waitForFunction((s) => document.querySelector(".cm-tooltip-lint")?.textContent?.includes(s), text);
      await inspect(`push with errors ${text}`);
      await write(page, JSON.stringify({ ...resourcesOf(text)[1], policy: { drop_overloads: [{ category: `${text}2`, drop_percentage: { numerator: 1 } }] } }));
      await has(page, /It can be applied/, ".verdict");
      await inspect(`push ${text}`);
    }
    await page.goto(`${daemon.url}/#/targets`);
    await page.waitForFunction((s) => document.querySelector("main table")?.textContent?.includes(s), shown[0]!);
    await inspect("targets");
    for (const name of shown) {
      await page.goto(`${daemon.url}/#/targets/${q(name)}`);
      await has(page, /Its routes lead to/, ".headline");
      await inspect(`target ${name}`);
      await page.goto(`${daemon.url}/#/explain?target=${q(name)}&path=/`);
      await has(page, /Dropped/, "#outcome");
      await inspect(`explain target ${name}`);
    }
    for (const place of ["xds", "events", `${q(texts[0]!)}?${q(texts[0]!)}`, `clusters/${q(texts[0]!)}x?target=${q(texts[3]!)}`]) {
      await page.goto(`${daemon.url}/#/${place}`);
      await page.waitForSelector("#title");
      await inspect(place);
    }
    assert.deepEqual(requested.filter((r) => !/\/(v1\/|pick\?|assets\/|#|$)/.test(r.slice(daemon.url.length))), []);
    assert.deepEqual(faults, []);
  });
}

test("a page of another origin cannot show the dashboard in a frame, or read the API", async (t) => {
  const port = await freePort();
  const server = createServer((_, w) => {
    w.setHeader("Content-Type", "text/html");
    w.end(["", "docs", "problems/not_found"].map((path) => `<iframe src="${daemon.url}/${path}"></iframe>`).join(""));
  });
  await new Promise<void>((listening) => server.listen(port, "127.0.0.1", listening));
  t.after(() => new Promise((done) => server.close(done)));
  const context = await browser.newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  const blocked: string[] = [];
  page.on("console", (m) => blocked.push(m.text()));
  await page.goto(`http://127.0.0.1:${port}/`, { waitUntil: "load" });
  assert.deepEqual(page.frames().slice(1).map((f) => f.url()), Array(3).fill("chrome-error://chromewebdata/"));
  assert.equal(blocked.filter((m) => /frame-ancestors 'none'/.test(m)).length, 3, blocked.join("\n"));
  const results = await page.evaluate(async (url) => {
    const ask = (path: string, init?: RequestInit) => fetch(url + path, init).then((r) => `read ${r.status}`, () => "not read");
    return Promise.all([
      ask("/v1/clusters"), ask("/v1/daemon/watch"), ask("/v1/clusters", { headers: { Authorization: "Bearer x" } }),
      ask("/v1/snapshot", { method: "PUT", body: "{}" }), ask("/v1/snapshot", { method: "POST", body: "{}", mode: "no-cors" }).then(() => "not read"),
    ]);
  }, daemon.url);
  assert.deepEqual(results, Array(5).fill("not read"));
});

/** Everything that a request could have changed. */
async function stateOf(d: Daemon): Promise<unknown[]> {
  const of = async (path: string) => (await d.call("GET", path)).json() as Promise<unknown>;
  return Promise.all([of("/v1/snapshot"), of("/v1/leases"), of("/v1/targets"), of("/v1/files")]);
}

/** Requests that change something, as a page of another origin can send them without asking first. */
const changes = ["/v1/snapshot", "/pick?cluster=orders&ttl=10m", "/pick?cluster=orders&n=1000&ttl=10m", "/v1/leases/done", "/v1/files/held/0123456789abcdef0123456789abcdef/permit"];
const evil = JSON.stringify({ resources: resourcesOf("evil") });

test("a page of another origin changes nothing by simple requests", async (t) => {
  await push(daemon, "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  const port = await freePort();
  const server = createServer((_, w) => {
    w.setHeader("Content-Type", "text/html");
    w.end("<p>another origin</p>");
  });
  await new Promise<void>((listening) => server.listen(port, "127.0.0.1", listening));
  t.after(() => new Promise((done) => server.close(done)));
  const rebound = await openBrowser("--host-resolver-rules=MAP attacker.test 127.0.0.1");
  t.after(() => rebound.close());
  const before = await stateOf(daemon);
  // Of the same site and of another one, of which the browser sends no Sec-Fetch-Site.
  for (const origin of [`http://127.0.0.1:${port}`, `http://localhost:${port}`, `http://attacker.test:${port}`]) {
    const page = await rebound.newPage();
    const statuses = new Map<string, number[]>();
    page.on("response", (r) => {
      if (r.url().startsWith(daemon.url)) statuses.set(r.request().method(), [...(statuses.get(r.request().method()) ?? []), r.status()]);
    });
    for (const path of changes) {
      for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
        await page.goto(origin);
        await Promise.all([
          page.waitForURL((to) => to.href.startsWith(daemon.url), { timeout: patience }),
          page.evaluate(({ action, enctype, evil }) => {
            const form = document.createElement("form");
            Object.assign(form, { method: "POST", action, enctype });
            const field = document.createElement("input");
            // In text/plain, the body is the name, an equals sign and the value: JSON here.
            Object.assign(field, { type: "hidden", name: evil.slice(0, -1) + ',"x":"', value: '"}' });
            form.append(field);
            document.body.append(form);
            form.submit();
          }, { action: daemon.url + path, enctype, evil }),
        ]);
      }
      await page.goto(origin);
      await page.evaluate(async ({ url, evil }) => {
        const image = new Image();
        const loaded = new Promise((done) => (image.onload = image.onerror = done));
        image.src = url;
        navigator.sendBeacon(url, evil);
        navigator.sendBeacon(url, new Blob([evil], { type: "application/x-www-form-urlencoded" }));
        const sent = ["text/plain", "application/x-www-form-urlencoded", "application/json"].flatMap((type) =>
          ["no-cors", "cors"].map((mode) => fetch(url, { method: "POST", body: evil, mode: mode as RequestMode, credentials: "include", headers: { "Content-Type": type } }).catch(() => null)));
        await Promise.all([loaded, ...sent]);
      }, { url: daemon.url + path, evil });
    }
    assert.deepEqual([...new Set(statuses.get("POST"))], [403], `${origin}: ${JSON.stringify([...statuses])}`);
    await page.close();
  }
  assert.deepEqual(await stateOf(daemon), before);
});

test("a page whose name resolves to lbd (DNS rebinding) reads and changes nothing", async (t) => {
  const rebound = await openBrowser("--host-resolver-rules=MAP attacker.test 127.0.0.1");
  t.after(() => rebound.close());
  const before = await stateOf(daemon);
  const page = await rebound.newPage();
  const origin = `http://attacker.test:${new URL(daemon.url).port}`;
  await page.goto(origin); // lbd's own answer has the origin that a page of the attacker would have
  const results = await page.evaluate(async (evil) => {
    const ask = (path: string, init?: RequestInit) => fetch(path, init).then(async (r) => `${r.status} ${((await r.json()) as { code: string }).code}`, (e: unknown) => String(e));
    return Promise.all([
      ask("/v1/snapshot"), ask("/"), ask("/metrics"), ask("/pick?cluster=orders"), ask("/pick?cluster=orders&ttl=10m", { method: "POST" }),
      ask("/v1/snapshot", { method: "PUT", body: evil, headers: { "Content-Type": "application/json" } }), ask("/v1/clusters/orders/endpoints", { method: "DELETE" }),
    ]);
  }, evil);
  assert.deepEqual(results, Array(7).fill("421 misdirected_request"));
  assert.deepEqual(await stateOf(daemon), before);
});
