// The dashboard and /docs of a daemon whose callers need a token.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import type { Browser, BrowserContextOptions, Page, Request } from "playwright-core";
import { type Daemon, endpointsOf, fits, has, openBrowser, patience, push, startDaemon, typed, violations, visit, write } from "./kit.ts";

let browser: Browser;
let dir: string;

before(async () => {
  [browser, dir] = await Promise.all([openBrowser(), mkdtemp(join(tmpdir(), "lbd-token-"))]);
});
after(async () => {
  await browser?.close();
  await rm(dir, { recursive: true });
});

interface Caller {
  name: string;
  roles: string;
  expires?: string;
  clusters?: string;
}

/** A daemon with a cluster of the name orders, and the tokens of its callers. */
interface Guarded {
  daemon: Daemon;
  tokens: Record<string, string>;
  /** Replaces the identity file. */
  allow(...callers: Caller[]): Promise<void>;
}

let files = 0;

async function guarded(t: TestContext, callers: Caller[], options = ""): Promise<Guarded> {
  const file = join(dir, `identities-${++files}.yaml`);
  const tokens: Record<string, string> = {};
  const allow = async (...all: Caller[]) => {
    const entries = all.map(({ name, roles, expires, clusters }) => {
      tokens[name] ??= `lbd_${randomBytes(32).toString("base64url")}`;
      const sha256 = createHash("sha256").update(tokens[name]).digest("hex");
      return { name, sha256, roles: roles.split("+"), ...(expires && { expires }), ...(clusters && { clusters: [clusters] }) };
    });
    await writeFile(`${file}.new`, JSON.stringify({ tokens: entries }), { mode: 0o600 });
    await rename(`${file}.new`, file);
  };
  const setup: Caller = { name: "setup", roles: "push+read" };
  await allow(setup, ...callers);
  const daemon = await startDaemon("serve", 0, ["--connect", "none", "--tokens", file], options);
  t.after(() => daemon.stop());
  await push(daemon.as(tokens.setup!), "/v1/clusters/orders/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  return { daemon, tokens, allow };
}

/** Opens a page and records its requests. */
async function open(t: TestContext, g: Guarded, place: string, options: BrowserContextOptions = {}, prepare?: (p: Page) => Promise<unknown>) {
  const requests: Request[] = [];
  const { page, faults } = await visit(t, browser, g.daemon, place, options, async (p) => {
    p.on("request", (r) => requests.push(r));
    await prepare?.(p);
  });
  return { page, faults, requests, sent: (token: string) => requests.filter((r) => r.headers().authorization === `Bearer ${token}`) };
}

const field = 'dialog input[type="password"]';
const asksForToken = (page: Page) => page.waitForSelector(field, { timeout: patience });
const closed = (page: Page) => page.waitForSelector("dialog", { state: "detached", timeout: patience });

async function enter(page: Page, token: string): Promise<void> {
  await page.fill(field, token);
  await page.keyboard.press("Enter");
}

/** Asserts that a token is only in headers of requests. */
async function isSecret(page: Page, requests: Request[], token: string): Promise<void> {
  for (const r of requests) {
    assert.ok(!r.url().includes(token), r.url());
    assert.ok(!(r.postData() ?? "").includes(token), r.url());
    assert.ok(!(r.headers().referer ?? "").includes(token), r.url());
  }
  const kept = await page.evaluate(async () => ({
    document: document.documentElement.outerHTML,
    fields: [...document.querySelectorAll("input, textarea")].map((f) => (f as HTMLInputElement).value),
    stores: [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, window.name],
    address: [location.href, document.title, JSON.stringify(history.state)],
    databases: await indexedDB.databases(),
    caches: await (globalThis.caches?.keys() ?? []),
    globals: Object.keys(globalThis).map((k) => {
      const value = (globalThis as unknown as Record<string, unknown>)[k];
      return typeof value === "string" ? value : "";
    }),
    timings: performance.getEntries().map((e) => e.name),
  }));
  assert.ok(!JSON.stringify(kept).includes(token), "the token is in the page");
  assert.deepEqual(kept.stores, ["{}", "{}", "", ""]);
  assert.deepEqual([...kept.databases, ...kept.caches], []);
}

const viewer = { name: "viewer", roles: "read" };
const operator = { name: "operator", roles: "pick+read+push+admin" };

test("the page asks for a token, and uses it in headers only", async (t) => {
  const g = await guarded(t, [operator]);
  const token = g.tokens.operator!;
  const { page, faults, requests, sent } = await open(t, g, "#/clusters", {}, (p) => p.clock.install());
  await asksForToken(page);
  await has(page, /Missing role: read\. lbd answered: role read is required: callers without identity have no roles\./, "#prompt-why");
  assert.deepEqual(await page.evaluate((f) => document.activeElement === document.querySelector(f), field), true);
  assert.deepEqual(await violations(page), []);
  await has(page, /access refused/, ".live.is-refused");

  const calls = () => requests.filter((r) => r.url().includes("/v1/")).length;
  const before = calls();
  await page.clock.fastForward(300_000);
  assert.equal(calls(), before, "no call without a token is repeated");
  await enter(page, "");
  await has(page, /^Enter a token\.$/, "#prompt-error");
  await enter(page, "geheim ü");
  await has(page, /only printable ASCII characters/, "#prompt-error");
  assert.equal(calls(), before);
  const wrong = `lbd_${"x".repeat(43)}`;
  await enter(page, wrong);
  await has(page, /^the token is unknown$/, "#prompt-error");
  assert.deepEqual(await violations(page), []);
  await page.clock.fastForward(300_000);
  assert.equal(sent(wrong).length, 1, "a wrong token is sent once");
  assert.equal(calls(), before + 1);

  await enter(page, token);
  await closed(page);
  await has(page, /orders.*READY/, '[data-key="orders"]');
  await has(page, /live/, ".live");
  await has(page, /test-lbd/, "header .which");
  assert.ok(sent(token).some((r) => r.url().endsWith("/v1/clusters/watch")), "streams send it");
  await isSecret(page, requests, token);
  for (const place of ["clusters/orders", "targets", "xds", "events", "explain?cluster=orders", "push?cluster=orders"]) {
    await page.goto(`${g.daemon.url}/#/${place}`);
    await page.waitForSelector("#title");
    assert.equal(await page.$("dialog"), null);
  }
  await write(page, "endpoints: []");
  await has(page, /It would be rejected|It can be applied/, ".verdict");
  await isSecret(page, requests, token);
  await isSecret(page, requests, wrong);

  await page.goto(`${g.daemon.url}/#/clusters/orders`);
  await has(page, /READY on priority 0/, "#headline");
  await page.reload();
  await asksForToken(page);
  assert.deepEqual(faults, []);
});

test("the token is forgotten with a button", async (t) => {
  const g = await guarded(t, [viewer]);
  const { page, faults } = await open(t, g, "#/clusters/orders");
  await enter(page, g.tokens.viewer!);
  await has(page, /READY on priority 0/, "#headline");
  await has(page, /token in use/, "header");
  assert.deepEqual(await violations(page), []);
  await page.click('header button:has-text("Forget")');
  await asksForToken(page);
  assert.equal(await page.$("#headline"), null);
  assert.deepEqual(faults, []);
});

test("a revoked token: the data is marked as old, and the prompt has the reason", async (t) => {
  const g = await guarded(t, [viewer]);
  const watched = await open(t, g, "#/clusters/orders");
  const polled = await open(t, g, "#/xds");
  for (const { page } of [watched, polled]) {
    await enter(page, g.tokens.viewer!);
    await closed(page);
  }
  await has(watched.page, /READY on priority 0/, "#headline.good");
  await has(polled.page, /no management server/);
  await g.allow();
  for (const { page } of [watched, polled]) {
    await asksForToken(page);
    await has(page, /The token is no longer accepted.*lbd rejected the token: the token is unknown\./, "dialog");
  }
  await has(watched.page, /access refused: this page may be outdated/, ".live.is-refused");
  await has(watched.page, /^Last known, .*READY on priority 0/, "#headline.unknown");
  await has(polled.page, /role read is required/, ".old .alert");
  const last = g.tokens.viewer!;
  const sent = watched.sent(last).length;

  delete g.tokens.viewer;
  await g.allow(viewer);
  await enter(watched.page, g.tokens.viewer!);
  await has(watched.page, /the token is unknown|READY on priority 0/, "#prompt-error, #headline.good"); // lbd reads the file within 2 s
  while (await watched.page.$("dialog")) {
    if (await watched.page.$('dialog button[type="submit"][aria-disabled="false"]')) await enter(watched.page, g.tokens.viewer!);
    await watched.page.waitForTimeout(200);
  }
  await has(watched.page, /^READY on priority 0/, "#headline.good");
  await has(watched.page, /live/, ".live");
  assert.equal(watched.sent(last).length, sent, "the revoked token is not sent again");
  assert.deepEqual([watched.faults, polled.faults].flat(), []);
});

test("the prompt can be closed, and opened again", async (t) => {
  const g = await guarded(t, [viewer]);
  const { page, faults } = await open(t, g, "#/clusters");
  await asksForToken(page);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Escape");
  await closed(page);
  await has(page, /Access refused.*Missing role: read/, '[aria-label="Access"]');
  assert.deepEqual(await violations(page), []);
  await page.click('header a:has-text("Events")');
  await has(page, /Access refused/, '[aria-label="Access"]');
  await has(page, /access refused/, ".live");
  assert.equal(await page.$("dialog"), null, "it does not open by itself again");
  await page.focus('[aria-label="Access"] button');
  await page.keyboard.press("Enter");
  await asksForToken(page);
  await page.click('dialog button:has-text("Cancel")');
  await closed(page);
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Enter a token", "the focus returns");
  await page.keyboard.press("Enter");
  await asksForToken(page);
  await page.evaluate(() => {
    // The prompt opens again before the browser dispatches the close event of the removed dialog.
    new MutationObserver((_, observer) => {
      if (document.querySelector("dialog")) return;
      observer.disconnect();
      document.querySelector<HTMLElement>('[aria-label="Access"] button')!.click();
    }).observe(document.body, { childList: true, subtree: true });
    [...document.querySelectorAll<HTMLElement>("dialog button")].find((b) => b.textContent === "Cancel")!.click();
  });
  await enter(page, g.tokens.viewer!);
  await closed(page);
  await has(page, /live/, ".live.is-live");
  await page.waitForSelector('[aria-label="Access"]', { state: "detached" });
  assert.deepEqual(faults, []);
});

test("a push without the role shows the reason, and the text stays", async (t) => {
  const g = await guarded(t, [viewer, operator]);
  const { page, faults } = await open(t, g, "#/push?cluster=orders");
  await enter(page, g.tokens.viewer!);
  await closed(page);
  const body = JSON.stringify(endpointsOf({ a: ["10.0.0.2:80"] }));
  await write(page, body);
  await has(page, /The effect is unknown: role push is required: viewer has the roles read/, ".verdict");
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.$("dialog"), null, "typing is not interrupted");
  await page.click('.verdict button:has-text("Enter another token")');
  await has(page, /Missing role: push/, "#prompt-why");
  await enter(page, g.tokens.operator!);
  await closed(page);
  await has(page, /It can be applied/, ".verdict");
  assert.equal(await typed(page), body);
  await page.click('.verdict button:has-text("Apply")');
  await has(page, /Applied: 1 resource changed/, ".verdict");
  const events = await g.daemon.as(g.tokens.operator!).call("GET", "/v1/events?cluster=orders&type=pushed&limit=1");
  assert.match(await events.text(), /"by":"operator"/);
  assert.deepEqual(faults, []);
});

test("a token without the role that the page needs is not used", async (t) => {
  const g = await guarded(t, [{ name: "pusher", roles: "push" }, viewer]);
  const { page, faults, sent } = await open(t, g, "#/clusters");
  await enter(page, g.tokens.pusher!);
  await has(page, /^role read is required: pusher has the roles push$/, "#prompt-error");
  assert.equal(sent(g.tokens.pusher!).length, 1);
  await enter(page, g.tokens.viewer!);
  await closed(page);
  await has(page, /live/, ".live.is-live");
  assert.deepEqual(faults, []);
});

test("a caller of some clusters sees them", async (t) => {
  const g = await guarded(t, [{ ...viewer, roles: "read+pick", clusters: "orders*" }]);
  await push(g.daemon.as(g.tokens.setup!), "/v1/clusters/secret/endpoints", endpointsOf({ a: ["10.0.0.1:80"] }));
  const { page, faults } = await open(t, g, "#/clusters");
  await enter(page, g.tokens.viewer!);
  await closed(page);
  const refused: string[] = [];
  page.on("response", (r) => void (r.status() >= 400 && refused.push(r.url())));
  await has(page, /orders.*READY/, '[data-key="orders"]');
  assert.equal(await page.$('[data-key="secret"]'), null);
  await has(page, /test-lbd/, "header .which");
  await page.goto(`${g.daemon.url}/#/clusters/orders`);
  await has(page, /READY on priority 0/, "#headline.good");
  await has(page, /1 resource changed: orders/, '[aria-labelledby="event-title"]');

  await page.goto(`${g.daemon.url}/#/events`);
  await has(page, /live/, ".live.is-live");
  await has(page, /1 resource changed: orders:/);
  const rejected = page.waitForResponse(/cluster=ord(&|$)/);
  await page.fill('input[type="search"]', "ord"); // not the name of a cluster that the caller may see
  assert.equal((await rejected).status(), 403);
  await has(page, /1 resource changed: orders:/);
  await push(g.daemon.as(g.tokens.setup!), "/v1/clusters/secret/endpoints", endpointsOf({ a: ["10.0.0.2:80"] }));
  await push(g.daemon.as(g.tokens.setup!), "/v1/clusters/orders-eu/endpoints", endpointsOf({ a: ["10.0.0.3:80"] }));
  await has(page, /1 resource changed: orders-eu/);
  assert.equal(await page.$(".alert"), null);
  for (const place of ["targets", "xds", "explain", "push?cluster=orders"]) {
    await page.goto(`${g.daemon.url}/#/${place}`);
    await page.waitForSelector("#title");
    assert.equal(await page.$(".alert"), null, place);
    assert.ok(!(await page.textContent("body"))?.includes("secret"), place);
  }
  assert.equal(await page.$("dialog"), null);
  assert.deepEqual(refused.filter((url) => !/cluster=ord(&|$)/.test(url)), []);
  await page.goto(`${g.daemon.url}/#/clusters/secret`);
  await has(page, /viewer may not use "secret"/, ".alert");
  assert.equal(await page.$("dialog"), null);
  assert.deepEqual(faults, []);
});

test("callers without identity may read: the page asks only for what needs a token", async (t) => {
  const g = await guarded(t, [operator], ",anonymous=read+pick");
  const { page, faults, sent } = await open(t, g, "#/push?cluster=orders");
  await has(page, /test-lbd/, "header .which");
  await write(page, JSON.stringify(endpointsOf({ a: ["10.0.0.3:80"] })));
  await has(page, /The effect is unknown: role push is required: callers without identity have the roles pick\+read/, ".verdict");
  assert.equal(await page.$("dialog"), null);
  await page.click('.verdict button:has-text("Enter a token")');
  await enter(page, g.tokens.operator!);
  await closed(page);
  await has(page, /It can be applied/, ".verdict");
  // The identity ends: the page goes on without one.
  await g.allow({ ...operator, expires: "2026-01-01T00:00:00Z" });
  await asksForToken(page);
  await has(page, /lbd rejected the token: the identity operator expired at 2026-01-01T00:00:00Z\./, "#prompt-why");
  await page.keyboard.press("Escape");
  await closed(page);
  const last = sent(g.tokens.operator!).length;
  await page.goto(`${g.daemon.url}/#/clusters/orders`);
  await has(page, /live/, ".live.is-live");
  assert.equal(await page.$('[aria-label="Access"]'), null);
  assert.equal(sent(g.tokens.operator!).length, last);
  assert.deepEqual(faults, []);
});

test("/docs uses a token that is entered with Authorize, and keeps it in memory only", async (t) => {
  const g = await guarded(t, [viewer]);
  const token = g.tokens.viewer!;
  const context = await browser.newContext({ viewport: { width: 1280, height: 1000 } });
  t.after(() => context.close());
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const requests: Request[] = [];
  const faults: string[] = [];
  page.on("request", (r) => requests.push(r));
  page.on("pageerror", (e) => faults.push(e.message));
  await page.goto(`${g.daemon.url}/docs`);
  const operation = page.locator(".opblock", { hasText: "/v1/clusters" }).filter({ has: page.locator('[data-path="/v1/clusters"]') }).first();
  await operation.locator(".opblock-control-arrow").click();
  await operation.locator("button.try-out__btn").click();
  await operation.locator("button.execute").click();
  await has(page, /role read is required/, ".live-responses-table");

  await page.click(".auth-wrapper > button.authorize");
  await page.fill(".auth-container input", token);
  await page.click('.auth-btn-wrapper button[type="submit"]');
  await page.click(".auth-btn-wrapper .btn-done");
  await operation.locator("button.execute").click();
  await has(page, /"name": "orders"/, ".live-responses-table");
  await has(page, /Authorization: Bearer TOKEN/, ".curl-command");
  const sent = requests.filter((r) => r.headers().authorization === `Bearer ${token}`);
  assert.deepEqual(sent.map((r) => new URL(r.url()).pathname), ["/v1/clusters"]);
  await isSecret(page, requests, token);
  assert.deepEqual(requests.filter((r) => !r.url().startsWith(`${g.daemon.url}/`) && !/^(data|blob):/.test(r.url())).map((r) => r.url()), []);
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, "docs.png") });

  await page.reload();
  await operation.locator(".opblock-control-arrow").waitFor();
  assert.equal(await page.locator(".auth-wrapper > button.authorize.unlocked").count(), 1, "the token is gone");
  assert.deepEqual(faults, []);
});

const looks: Record<string, BrowserContextOptions> = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: { colorScheme: "dark", viewport: { width: 360, height: 640 } },
  forced: { forcedColors: "active", viewport: { width: 700, height: 500 } },
};
for (const [name, options] of Object.entries(looks)) {
  test(`the prompt is accessible: ${name}`, async (t) => {
    const g = await guarded(t, [viewer]);
    const { page, faults } = await open(t, g, "#/clusters", options);
    await asksForToken(page);
    await enter(page, "lbd_wrong");
    await has(page, /the token is unknown/, "#prompt-error");
    assert.deepEqual(await violations(page), []);
    await fits(page);
    const box = (await (await page.$("dialog"))!.boundingBox())!;
    const size = page.viewportSize()!;
    assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= size.width && box.y + box.height <= size.height, JSON.stringify(box));
    if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, `prompt-${name}.png`) });
    await page.keyboard.press("Escape");
    await closed(page);
    assert.deepEqual(await violations(page), []);
    await fits(page);
    if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, `notice-${name}.png`) });
    assert.deepEqual(faults, []);
  });
}
