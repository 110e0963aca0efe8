// A real lbd and real upstreams for the tests.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

const LBD_BIN = process.env.LBD_BIN ?? join(import.meta.dirname, "../../../bin/lbd");
const DEADLINE = 120_000;

/** Waits until condition is true. */
export async function until(condition, what) {
  const end = performance.now() + DEADLINE;
  while (!(await condition())) {
    assert(performance.now() < end, `not within ${DEADLINE} ms: ${what}`);
    await sleep(20);
  }
}

/** lbd with a listener on a unix socket. */
export class Daemon {
  #directory = mkdtempSync(join(tmpdir(), "lbd"));
  #log = openSync(join(this.#directory, "lbd.log"), "a");
  socket = join(this.#directory, "lbd.sock");
  lbd = `unix:${this.socket}`;
  /** @type {import("node:child_process").ChildProcess} */
  process;

  async start(connect = "none") {
    const flags = [`--listen=${this.lbd}`, `--data=${join(this.#directory, "data")}`, `--connect=${connect}`];
    this.process = spawn(LBD_BIN, ["serve", ...flags], { stdio: ["ignore", "ignore", this.#log] });
    await until(() => {
      assert.equal(this.process.exitCode, null, readFileSync(join(this.#directory, "lbd.log"), "utf8"));
      return this.call("GET", "/v1/daemon").catch(() => undefined);
    }, "lbd is ready");
  }

  async call(method, path, body = undefined) {
    const request = http.request({ socketPath: this.socket, method, path, agent: false });
    request.end(body === undefined ? undefined : JSON.stringify(body));
    const [response] = await once(request, "response");
    const content = await text(response);
    assert(response.statusCode < 300, `${method} ${path}: ${response.statusCode} ${content}`);
    return content.startsWith("{") ? JSON.parse(content) : content;
  }

  /** Pushes a cluster; the addresses of each list in others have another priority. */
  async push(cluster, addresses, policy = undefined, ...others) {
    const endpoints = [addresses, ...others].map((list, priority) => ({
      priority,
      locality: { zone: `zone ${priority}` },
      lb_endpoints: list.map((address) => {
        const [host, port] = address.split(":");
        return { endpoint: { address: { socket_address: { address: host, port_value: Number(port) } } } };
      }),
    }));
    const body = { endpoints, policy };
    await this.call("PUT", `/v1/clusters/${encodeURIComponent(cluster)}/endpoints`, /** @type {any} */ (body));
  }

  /** Pushes a target whose routes match prefixes, or a header tenant. */
  async pushTarget(name, routes) {
    const type = "type.googleapis.com/envoy";
    const all = routes.map(({ prefix = "/", tenant = undefined, cluster }) => {
      const headers = tenant && [{ name: "tenant", string_match: { exact: tenant } }];
      return { match: { prefix, headers }, route: { cluster } };
    });
    const api_listener = {
      "@type": `${type}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`,
      route_config: { virtual_hosts: [{ name, domains: ["*"], routes: all }] },
    };
    const listener = { "@type": `${type}.config.listener.v3.Listener`, name, api_listener: { api_listener } };
    await this.call("POST", "/v1/snapshot", /** @type {any} */ ({ resources: [listener] }));
  }

  /** The requests of a cluster that were reported with an outcome. */
  reported(cluster, outcome) {
    return this.metric(`lbd_reported_requests_total{cluster="${cluster}",outcome="${outcome}"} `);
  }

  async metric(name) {
    const metrics = await this.call("GET", "/metrics");
    const line = metrics.split("\n").find((/** @type {string} */ line) => line.startsWith(name));
    return Number(line?.slice(name.length) ?? 0);
  }

  /** The leases of a cluster that are held. */
  async inFlight(cluster) {
    const state = await this.call("GET", `/v1/clusters/${cluster}?endpoints=false`);
    return state.circuit_breaker.in_flight;
  }

  async stop() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.kill();
    await once(this.process, "exit");
  }

  async close() {
    await this.stop();
    rmSync(this.#directory, { recursive: true });
  }
}

/** An HTTP server on loopback. Its behavior answers, by default with the address. */
export class Upstream {
  /** @type {{method, path, host, body}[]} */
  requests = [];
  connections = new Set();
  /** @type {http.Server} */
  #server;
  address = "";

  static async start(behave = undefined) {
    const upstream = new Upstream();
    upstream.#server = http.createServer(async (request, response) => {
      request.on("error", () => {});
      const body = await text(request).catch(() => "");
      upstream.connections.add(request.socket);
      upstream.requests.push({ method: request.method, path: request.url, host: request.headers.host, body });
      if (behave === undefined) response.end(upstream.address);
      else behave(request, response, body);
    });
    upstream.#server.listen(0, "127.0.0.1");
    await once(upstream.#server, "listening");
    const address = /** @type {import("node:net").AddressInfo} */ (upstream.#server.address());
    upstream.address = `127.0.0.1:${address.port}`;
    return upstream;
  }

  close() {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** The address of an endpoint that refuses connections. */
export async function refuses() {
  const server = net.createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  server.close();
  return `127.0.0.1:${port}`;
}

/** An endpoint that answers no SYN: a process whose queue of new connections is full. */
export class Silent {
  address = "";

  static async start(t) {
    const program = `const server = require("node:net").createServer();
      server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
        require("node:fs").writeSync(1, String(server.address().port));
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      });`;
    const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    const [port] = await once(child.stdout, "data");
    const silent = new Silent();
    silent.address = `127.0.0.1:${port}`;
    for (let full = false; !full; ) {
      const socket = net.connect(Number(port), "127.0.0.1");
      t.after(() => socket.destroy());
      socket.on("error", () => {});
      full = await Promise.race([once(socket, "connect").then(() => false), sleep(500, true)]);
    }
    return silent;
  }
}

/** A process that is a proxy of HTTP. It prints the addresses that requests are for. */
export class HttpProxy {
  targets = [];
  url = "";

  static async start(t) {
    const program = `const http = require("node:http"), net = require("node:net");
      const server = http.createServer((request, response) => {
        const { host, pathname } = new URL(request.url);
        console.log(host);
        request.pipe(http.request({ host: host.split(":")[0], port: host.split(":")[1], path: pathname }, (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        }));
      });
      server.on("connect", (request, socket) => {
        console.log(request.url);
        const [host, port] = request.url.split(":");
        const other = net.connect(port, host, () => {
          socket.write("HTTP/1.1 200 OK\\r\\n\\r\\n");
          socket.pipe(other).pipe(socket);
        });
        for (const one of [socket, other]) one.on("error", () => {});
      });
      server.listen(0, "127.0.0.1", () => console.log(server.address().port));`;
    const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    const proxy = new HttpProxy();
    const lines = createInterface(child.stdout);
    const [port] = await once(lines, "line");
    lines.on("line", (line) => proxy.targets.push(line));
    proxy.url = `http://127.0.0.1:${port}`;
    return proxy;
  }
}

export const status = (code) => (_, response) => response.writeHead(code).end("no");
export const reset = (request) => request.socket.resetAndDestroy();
export const hang = () => {};
