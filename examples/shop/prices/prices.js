// The prices of the shop. What the service stock has plenty of is cheaper.

import http from "node:http";

import { Client } from "lbd-client";
import { createFetch } from "lbd-client/fetch";

const instance = process.env.INSTANCE ?? "prices";
const cents = new Map([
  ["tea", 1250],
  ["coffee", 990],
  ["cup", 1600],
  ["kettle", 4900],
]);
const plenty = 100;

const client = new Client();
const fetch = createFetch(client); // knows the hosts CLUSTER.lbd

/** What stock says of a product. Without it, the price is the usual one. */
async function inStock(product) {
  try {
    const response = await fetch(`http://stock.lbd/stock/${product}`, { signal: AbortSignal.timeout(1000) });
    if (response.ok) return await response.json();
    return { error: `stock: status ${response.status}` };
  } catch (error) {
    return { error: error.message };
  }
}

async function price(product) {
  const stock = await inStock(product);
  const sale = stock.pieces > plenty;
  return { cents: cents.get(product) * (sale ? 0.8 : 1), sale, instance, stock };
}

const server = http.createServer(async ({ url }, response) => {
  const product = url.replace("/prices/", "");
  const known = cents.has(product);
  const content = known ? await price(product) : { error: `${url} not found` };
  response.writeHead(known ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(content));
});
server.listen(Number(process.env.PORT ?? 9301), "127.0.0.1");

process.once("SIGTERM", async () => {
  await client.close(); // sends the last report
  process.exit();
});
