// The example, with a real daemon and a real upstream.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Daemon, Upstream, until } from "./stand.js";

test("the shop answers with pages of orders", async (t) => {
  const daemon = new Daemon();
  t.after(() => daemon.close());
  await daemon.start();
  const orders = await Upstream.start((request, response) => response.end(`order of ${request.url}`));
  t.after(() => orders.close());
  const free = await Upstream.start();
  const port = free.address.split(":")[1];
  free.close();

  const env = { ...process.env, LBD: daemon.lbd, PORT: port };
  const path = fileURLToPath(new URL("../examples/shop.js", import.meta.url));
  const shop = spawn(process.execPath, [path], { env, stdio: "inherit" });
  t.after(() => shop.kill("SIGKILL"));
  const get = async () => {
    const response = await fetch(`http://${free.address}/7`, { headers: { connection: "close" } });
    return `${response.status} ${await response.text()}`;
  };
  await until(() => get().catch(() => undefined), "the shop listens");
  assert.match(await get(), /^502 orders: cluster orders: .*\(unknown_cluster\)/);
  await daemon.push("orders", [orders.address]);
  let answered = 0;
  await until(async () => {
    const answer = await get();
    if (answer === "200 order of /7") answered++;
    return answered === 4;
  }, "the shop knows orders");
  shop.kill("SIGTERM");
  assert.deepEqual(await once(shop, "exit"), [0, null]);
  assert.equal(await daemon.reported("orders", "success"), orders.requests.length);
});
