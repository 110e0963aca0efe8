// A real daemon and a real browser.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";
import type { AxeResults } from "axe-core";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

const lbd = process.env.LBD ?? "";
const flags = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** How long something may take on a busy machine, in milliseconds. */
export const patience = 60_000;

export const openBrowser = (...more: string[]): Promise<Browser> =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: [...flags, ...more] });

// A port that nothing listens on until the test does. Test files run in parallel, each in its own process:
// each process has its own range, below the ports that the kernel chooses from.
let nextPort = 10_000 + (process.pid % 500) * 40;

export async function freePort(): Promise<number> {
  for (;;) {
    const port = nextPort++;
    const server = createServer();
    const free = await new Promise<boolean>((done) => {
      server.once("error", () => done(false));
      server.listen(port, "127.0.0.1", () => done(true));
    });
    if (!free) continue;
    await new Promise((closed) => server.close(closed));
    return port;
  }
}

export interface Daemon {
  url: string;
  /** What stops and starts the demo's upstreams. */
  control: string;
  stop(signal?: NodeJS.Signals): Promise<void>;
  /** Suspends or resumes the process. */
  freeze(still: boolean): void;
  call(method: string, path: string, body?: unknown): Promise<Response>;
  /** The same daemon, called with a token. */
  as(token: string): Daemon;
}

/**
 * Starts the daemon that LBD names: "serve", or "demo" with its upstreams and callers. Without a port, the kernel chooses
 * one. The options are those of the listener, with a comma in front.
 */
export async function startDaemon(command: "serve" | "demo", port = 0, more: string[] = [], options = ""): Promise<Daemon> {
  if (!lbd) throw new Error("LBD should name the daemon: run make test-web");
  const args = [command, "--listen", `127.0.0.1:${port}${options}`, "--data", "", "--name", "test-lbd", ...more];
  if (command === "demo") args.push("--control", "127.0.0.1:0");
  const child: ChildProcess = spawn(lbd, args, { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  let url = "";
  let control = "";
  const read = (d: Buffer) => {
    output += d.toString();
    url ||= /msg=serving addresses=\[([^\]\s]+)/.exec(output)?.[1] ?? "";
    control ||= /localhost:(\d+)\/stop/.exec(output)?.[1] ?? "";
    output = output.slice(-4000);
  };
  child.stdout?.on("data", read);
  child.stderr?.on("data", read);
  const ended = new Promise<void>((end) => child.once("exit", () => end()));
  const isReady = () => url !== "" && (command === "serve" || control !== "") && fetch(`http://${url}/readyz`).then((r) => r.ok, () => false);
  for (const end = Date.now() + patience; !(await isReady()); await new Promise((again) => setTimeout(again, 50))) {
    if (child.exitCode === null && Date.now() < end) continue;
    child.kill("SIGKILL");
    throw new Error(`lbd ${args.join(" ")} is not ready: ${output}`);
  }
  url = `http://${url}`;
  const daemon: Daemon = {
    url,
    control: `http://127.0.0.1:${control}`,
    async stop(signal = "SIGTERM") {
      child.kill("SIGCONT");
      child.kill(signal);
      await ended;
    },
    freeze: (still) => void child.kill(still ? "SIGSTOP" : "SIGCONT"),
    call: (method, path, body) => send({}, method, path, body),
    as: (token) => ({ ...daemon, call: (method, path, body) => send({ Authorization: `Bearer ${token}` }, method, path, body) }),
  };
  const send = (headers: Record<string, string>, method: string, path: string, body?: unknown) =>
    fetch(url + path, body === undefined ? { method, headers } : { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } });
  return daemon;
}

export interface Etcd {
  /** HOST:PORT for --store. */
  address: string;
  stop(): Promise<void>;
}

/** Starts the lbd-etcd that ETCD names, with a fleet at /lbd. It ends with this process, too. */
export async function startEtcd(): Promise<Etcd> {
  if (!process.env.ETCD) throw new Error("ETCD should name lbd-etcd: run make test-web");
  const child = spawn(process.env.ETCD, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise<void>((end) => child.once("exit", () => end()));
  const address = await new Promise<string>((ready, failed) => {
    child.stdout.once("data", (d: Buffer) => ready(d.toString().trim()));
    child.once("exit", (code) => failed(new Error(`etcd ended with ${code}`)));
  });
  execFileSync(lbd, ["store", "init", `etcd://${address}/lbd`]);
  return {
    address,
    async stop() {
      child.stdin.end();
      await ended;
    },
  };
}

/** Pushes a resource. */
export async function push(d: Daemon, path: string, body: unknown, method = "PUT"): Promise<void> {
  const r = await d.call(method, path, body);
  if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${await r.text()}`);
}

export const endpointsOf = (zones: Record<string, string[]>, drops: { category: string; percent: number }[] = []) => ({
  endpoints: Object.entries(zones).map(([zone, addresses], i) => ({
    locality: { region: "us", zone },
    load_balancing_weight: i + 1,
    lb_endpoints: addresses.map((a) => ({
      endpoint: { address: { socket_address: { address: a.split(":")[0], port_value: Number(a.split(":")[1]) } } },
    })),
  })),
  policy: { drop_overloads: drops.map((d) => ({ category: d.category, drop_percentage: { numerator: d.percent } })) },
});

/** Hides the page, or shows it. */
export const hide = (page: Page, hidden: boolean) =>
  page.evaluate((h) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => h });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

/** The same, with one zone per priority. */
export const prioritiesOf = (...priorities: string[][]) => ({
  endpoints: priorities.map((addresses, priority) => ({ ...endpointsOf({ a: addresses }).endpoints[0], priority })),
});

export interface Upstream {
  address: string;
  stop(): Promise<void>;
}

/** Accepts connections, with or without TLS, and sends nothing. */
export async function startUpstream(port = 0, tls?: TlsOptions): Promise<Upstream> {
  const open = new Set<Socket>();
  const server = tls ? createTlsServer(tls) : createServer();
  server.on("connection", (s: Socket) => {
    open.add(s.on("close", () => open.delete(s)).on("error", () => undefined));
    if (!tls) s.resume();
  });
  server.on("secureConnection", (s: Socket) => s.on("error", () => undefined).resume());
  server.listen(port, "127.0.0.1");
  await new Promise((listening) => server.once("listening", listening));
  const address = server.address();
  if (typeof address !== "object" || !address) throw new Error("no port");
  return {
    address: `127.0.0.1:${address.port}`,
    async stop() {
      const closed = new Promise((done) => server.close(done));
      for (const s of open) s.destroy();
      await closed;
    },
  };
}

export interface Visit {
  page: Page;
  /** Errors of the page, and requests to other hosts. */
  faults: string[];
}

/** Opens a page until the test ends. */
export async function visit(
  t: TestContext, browser: Browser, d: Daemon, place: string, options: BrowserContextOptions = {}, prepare?: (page: Page) => Promise<unknown>,
): Promise<Visit> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  t.after(() => context.close());
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (e) => faults.push(e.message));
  page.on("console", (m) => {
    if (m.type() === "error" && !/Failed to load resource/.test(m.text())) faults.push(m.text());
  });
  page.on("request", (r) => {
    if (!r.url().startsWith(`${d.url}/`) && !/^(data|blob):/.test(r.url())) faults.push(`asks ${r.url()}`);
  });
  await prepare?.(page);
  await page.goto(`${d.url}/${place}`);
  await page.waitForSelector("#title");
  return { page, faults };
}

/** Replaces the text in the editor, as a user does. */
export async function write(page: Page, text: string): Promise<void> {
  await page.focus("#body");
  await page.keyboard.press("Control+a");
  if (text) await page.keyboard.insertText(text);
  else await page.keyboard.press("Delete");
}

/** The text in the editor, if all of it is visible. */
export const typed = (page: Page) =>
  page.$$eval("#body .cm-line", (all) => (document.querySelector(".cm-placeholder") ? "" : all.map((line) => line.textContent).join("\n")));

/** Waits until the text of an element matches. */
export async function has(page: Page, text: RegExp, selector = "main"): Promise<void> {
  try {
    await page.waitForFunction(
      ([s, source]) => [...document.querySelectorAll(s!)].some((e) => new RegExp(source!).test(e.textContent ?? "")),
      [selector, text.source],
      { timeout: patience },
    );
  } catch (e) {
    throw new Error(`${selector} says ${JSON.stringify(await page.locator(selector).allTextContents())}, not ${text.source}`, { cause: e });
  }
}

const axeSource = readFileSync(new URL(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/** The violations that axe finds, except those of some rules. */
export async function violations(page: Page, except: string[] = []): Promise<string[]> {
  await page.evaluate(axeSource);
  const results = await page.evaluate((off) => {
    const { axe } = globalThis as unknown as { axe: { run(o: object): Promise<AxeResults> } };
    return axe.run({ rules: Object.fromEntries(off.map((rule) => [rule, { enabled: false }])) });
  }, except);
  return results.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.html.slice(0, 160)} ${n.failureSummary ?? ""}`));
}

/** Waits until the page fits the width of the window; charts resize late. */
export const fits = (page: Page) =>
  page.waitForFunction(() => document.documentElement.scrollWidth <= innerWidth, undefined, { timeout: patience });
