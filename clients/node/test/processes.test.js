// What becomes of a client when its process ends, with real processes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { after, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Daemon, hang, Upstream } from "./stand.js";

const daemon = new Daemon();
let upstream, hanging, cluster, url;
let tests = 0;
before(async () => {
  await daemon.start();
  upstream = await Upstream.start();
  hanging = await Upstream.start(hang);
});
after(async () => {
  upstream.close();
  hanging.close();
  await daemon.close();
});
beforeEach(async () => {
  cluster = `processes-${++tests}`;
  url = `http://${cluster}.lbd/`;
  await daemon.push(cluster, [upstream.address]);
});

/** Starts a program that has a client and url. */
function start(t, program) {
  const head = `
    import { Client } from "lbd-client";
    const client = new Client();
    const url = ${JSON.stringify(url)};
    const get = async () => (await client.request(url)).text();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", head + program], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    env: { ...process.env, LBD: daemon.lbd },
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  return child;
}

async function ended(child) {
  const [code, signal] = await once(child, "exit", { signal: AbortSignal.timeout(120_000) });
  return signal ?? code;
}

const printed = async (child) => String((await once(child.stdout, "data"))[0]);

test("reports at the end of a process", async (t) => {
  const child = start(t, "for (let i = 0; i < 3; i++) await get();");
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.reported(cluster, "success"), 3);
});

test("reports of requests with fetch and undici at the end of a process", async (t) => {
  const child = start(
    t,
    `import { createFetch } from "lbd-client/fetch";
    import { interceptor } from "lbd-client/undici";
    import { Agent, request, setGlobalDispatcher } from "undici";
    await (await createFetch(client)(url)).text();
    setGlobalDispatcher(new Agent().compose(interceptor(client)));
    await (await request(url)).body.text();
    await (await fetch(url)).text();`,
  );
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.reported(cluster, "success"), 3);
});

test("ends leases at the end of a process", async (t) => {
  const child = start(
    t,
    `const leasing = new Client({ mode: "lease" });
    const response = await leasing.request(url);
    await response.text();`,
  );
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.inFlight(cluster), 0);
});

test("waits for a response", async (t) => {
  await daemon.push(cluster, [hanging.address]);
  const child = start(t, "await client.request(url, { timeout: 500 }).catch((error) => console.log(error.name));");
  assert.equal(await printed(child), "TimeoutError\n");
  assert.equal(await ended(child), 0);
});

test("sends no report with process.exit, unless the client is closed", async (t) => {
  assert.equal(await ended(start(t, "await get(); process.exit();")), 0);
  assert.equal(await daemon.reported(cluster, "success"), 0);
  assert.equal(await ended(start(t, "await get(); await client.close(); process.exit(3);")), 3);
  assert.equal(await daemon.reported(cluster, "success"), 1);
});

test("works on after beforeExit", async (t) => {
  const child = start(t, 'await get(); process.once("beforeExit", get);');
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.reported(cluster, "success"), 2);
});

test("does not swallow signals", async (t) => {
  for (const signal of /** @type {const} */ (["SIGTERM", "SIGINT"])) {
    const child = start(t, "await get(); console.log('sent'); setInterval(() => {}, 1000);");
    await printed(child);
    child.kill(signal);
    assert.equal(await ended(child), signal);
  }
});

test("runs the program of the README", async (t) => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const program = /```js\n(import .*?)```/s.exec(readme)[1].replaceAll("orders.lbd", `${cluster}.lbd`);
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    env: { ...process.env, LBD: daemon.lbd },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  assert.equal(await text(child.stdout), `200 ${upstream.address}\n`.repeat(3));
  assert.equal(await daemon.reported(cluster, "success"), 3);
});

test("reports with the handler of SIGTERM of the README", async (t) => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const handler = /^process\.once\("SIGTERM".*?^}\);$/ms.exec(readme)[0];
  const child = start(t, `${handler} await get(); console.log('sent'); setInterval(() => {}, 1000);`);
  await printed(child);
  child.kill();
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.reported(cluster, "success"), 1);
});

test("ends while lbd hangs", async (t) => {
  const child = start(t, "await get(); console.log('sent'); process.stdin.resume();");
  await printed(child);
  daemon.process.kill("SIGSTOP");
  try {
    child.stdin.end();
    assert.equal(await ended(child), 0);
  } finally {
    daemon.process.kill("SIGCONT");
  }
});

test("workers of cluster report for themselves", async (t) => {
  const child = start(
    t,
    `import cluster from "node:cluster";
    import { fileURLToPath } from "node:url";
    cluster.setupPrimary({ exec: fileURLToPath(import.meta.resolve("./worker.js")), args: [url], execArgv: [] });
    const workers = [cluster.fork(), cluster.fork()];
    await Promise.all(workers.map((worker) => new Promise((resolve) => worker.on("message", resolve))));
    for (const worker of workers) worker.disconnect();
    await get();`,
  );
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.reported(cluster, "success"), 5);
});

test("worker threads report for themselves", async (t) => {
  const child = start(
    t,
    `import { Worker } from "node:worker_threads";
    for (let i = 0; i < 2; i++) new Worker(new URL(import.meta.resolve("./worker.js")), { argv: [url], execArgv: [] });
    await get();`,
  );
  assert.equal(await ended(child), 0);
  assert.equal(await daemon.reported(cluster, "success"), 5);
});

test("background work does not hold the context of a request", async (t) => {
  // A connection that node:http keeps holds it.
  const closing = await Upstream.start((_, response) => response.writeHead(200, { connection: "close" }).end());
  t.after(() => closing.close());
  await daemon.push(cluster, [closing.address]);
  const child = start(
    t,
    `import { AsyncLocalStorage } from "node:async_hooks";
    import { setFlagsFromString } from "node:v8";
    import { runInNewContext } from "node:vm";
    for (const name of ["stdout", "stderr"]) process[name]; // Node would make them within the context
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc");
    const storage = new AsyncLocalStorage();
    let collected = false;
    const registry = new FinalizationRegistry(() => { collected = true; });
    const request = async () => {
      const context = { large: Buffer.alloc(1000) };
      registry.register(context);
      await storage.run(context, get);
    };
    await request();
    for (let i = 0; i < 100 && !collected; i++) {
      await get();
      await new Promise((resolve) => setTimeout(resolve, 20));
      collect();
    }
    console.log(collected);`,
  );
  assert.equal(await printed(child), "true\n");
});
