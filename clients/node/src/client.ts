// The client: knows the clusters, and makes calls for the adapters of HTTP libraries.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { Api } from "./api.js";
import { ASKS_MAX, NAME_MAX, type Route } from "./ask.js";
import { type Asking, Call, type Context } from "./call.js";
import { Cluster } from "./cluster.js";
import type { Deadline } from "./deadline.js";
import { ofAnswer, UnavailableError } from "./errors.js";
import { Hooks } from "./hooks.js";
import { Sender } from "./sender.js";
import { type Resolved, resolve, type Settings } from "./settings.js";
import { type RequestOptions, type Response, Upstreams } from "./upstream.js";

const CLUSTERS_MAX = 1000;

/** Milliseconds for the last report and the ends of leases. */
const CLOSE_TIME = 1000;

/**
 * Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks.
 *
 * Make one for the process, and use it for all requests. A worker thread has its own.
 */
export class Client {
  readonly #settings: Resolved;
  readonly #context: Context;
  readonly #clusters = new Map<string, Cluster>();
  readonly #upstreams: Upstreams;
  #closed: Promise<void> | undefined;
  #unreported = false;

  /** Throws a TypeError or a RangeError for a setting that is not valid. */
  constructor(settings: Settings = {}) {
    this.#settings = resolve(settings);
    const { owner, reportInterval } = this.#settings;
    const hooks = new Hooks(this.#settings);
    const api = new Api(this.#settings, hooks);
    const name = processName();
    // Containers may have the same host name, and all have the PID 1.
    const reporter = `${name}/${randomBytes(4).toString("hex")}`;
    const sender = new Sender(api, this.#clusters, reporter, reportInterval);
    this.#context = { settings: this.#settings, owner: owner || name, api, sender, hooks };
    this.#upstreams = new Upstreams(this, this.#settings.connectTimeout);
    add(this, () => this.#flush());
  }

  /** Deadline of a request that sets none, in milliseconds. */
  get timeout(): number {
    return this.#settings.timeout;
  }

  /** The cluster that a host names, or the target, as xds:///NAME; undefined if requests to the host are not for lbd. */
  clusterOf(host: string): string | undefined {
    return this.routeOf(host)?.name;
  }

  /**
   * What requests to a host are for; undefined if not for lbd.
   * @internal
   */
  routeOf(host: string): Route | undefined {
    const name = host.toLowerCase();
    const route = this.#settings.hosts(name);
    if (route !== undefined) return route;
    return name.endsWith(".lbd") && name.length > ".lbd".length ? { name: name.slice(0, -".lbd".length) } : undefined;
  }

  /**
   * Sends a request with node:http, and resolves when the status and the headers of the response are there. Read its
   * body to the end, or destroy it. url is http://CLUSTER.lbd/PATH, with https for upstreams with TLS.
   *
   * Rejects with an LbdError without an endpoint, with a DOMException named TimeoutError at the deadline, with the
   * reason of options.signal, and otherwise as node:http does.
   */
  request(url: string | URL, options: RequestOptions = {}): Promise<Response> {
    return this.#upstreams.request(url, options);
  }

  /**
   * A request to a cluster, for an adapter of an HTTP library. repeatable permits retries; asks is that of asksOf.
   * @internal
   */
  call(cluster: string, deadline: Deadline, repeatable: boolean, asks = "", request?: Asking): Call {
    if (asks.length > ASKS_MAX || Buffer.byteLength(cluster) > NAME_MAX) {
      const detail = "the name of the cluster has more than 512 bytes, or what the request asks more than 24 KiB";
      throw ofAnswer(cluster.slice(0, NAME_MAX), 400, { code: "invalid_argument", detail }, 0);
    }
    this.#unreported = true;
    return new Call(this.#context, this.#cluster(cluster), deadline, repeatable, asks, request);
  }

  #cluster(name: string): Cluster {
    if (this.#closed !== undefined) {
      throw new UnavailableError(`cluster ${name}: the client is closed`, { cluster: name });
    }
    let cluster = this.#clusters.get(name);
    if (cluster === undefined) {
      if (this.#clusters.size >= CLUSTERS_MAX) {
        let others = [...this.#clusters.values()];
        if (this.#settings.mode === "batch") others = others.filter((known) => !known.hasBatch);
        else others = [others.reduce((least, known) => (known.picked < least.picked ? known : least))];
        for (const known of others) {
          known.forgotten = true;
          this.#clusters.delete(known.name);
        }
      }
      if (this.#clusters.size >= CLUSTERS_MAX) {
        throw new UnavailableError(`cluster ${name}: the client has ${CLUSTERS_MAX} clusters`, { cluster: name });
      }
      cluster = new Cluster(name, this.#context, (chosen) => this.#cluster(chosen));
      this.#clusters.set(name, cluster);
    }
    return cluster;
  }

  /** Sends the last report, ends the leases and stops the background work, in at most 1 s. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    remove(this);
    this.#context.hooks.closed = true;
    for (const cluster of this.#clusters.values()) cluster.stop();
    await this.#context.sender.close(CLOSE_TIME);
    this.#context.api.close();
    this.#upstreams.close();
  }

  /** Sends what there is to tell lbd since the last flush. */
  async #flush(): Promise<void> {
    if (!this.#unreported) return;
    this.#unreported = false;
    await this.#context.sender.flush(CLOSE_TIME);
  }
}

const processName = () => `${hostname().slice(0, 90)}/${process.pid}`;

/** The open clients, and what they do when the event loop has no work left. */
const clients = new Map<Client, () => Promise<void>>();

// Node emits beforeExit again after the work that a listener does, until no listener does any.
const onBeforeExit = () => {
  for (const flush of clients.values()) void flush();
};

function add(client: Client, flush: () => Promise<void>): void {
  if (clients.size === 0) process.on("beforeExit", onBeforeExit);
  clients.set(client, flush);
}

function remove(client: Client): void {
  clients.delete(client);
  if (clients.size === 0) process.off("beforeExit", onBeforeExit);
}
