// A shop whose pages come from the service orders, through lbd, in one process for each core:
//
//     LBD=unix:/run/lbd.sock PORT=3000 node shop.js

import cluster from "node:cluster";
import http from "node:http";
import { availableParallelism } from "node:os";

import { CircuitBrokenError, Client, DroppedError, LbdError } from "lbd-client";
import { createFetch } from "lbd-client/fetch";

function work() {
  const client = new Client();
  const fetch = createFetch(client);

  const server = http.createServer(async (request, response) => {
    try {
      const order = await fetch(`http://orders.lbd${request.url}`, { signal: AbortSignal.timeout(2000) });
      response.writeHead(order.status, { "content-type": "text/plain" }).end(await order.text());
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      if (error instanceof DroppedError || error instanceof CircuitBrokenError) {
        // All callers together send too much: do not add to it.
        response.writeHead(503, { "retry-after": "5" }).end(`${message}\n`);
      } else {
        response.writeHead(error instanceof LbdError ? 502 : 504).end(`orders: ${message}\n`);
      }
    }
  });
  server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");

  process.once("SIGTERM", () => {
    server.close(async () => {
      await client.close(); // the last report
      process.exit();
    });
  });
}

function supervise() {
  for (let i = 0; i < availableParallelism(); i++) cluster.fork();
  let ending = false;
  cluster.on("exit", () => ending || cluster.fork());
  process.once("SIGTERM", () => {
    ending = true;
    for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill("SIGTERM");
  });
}

if (cluster.isPrimary) supervise();
else work();
