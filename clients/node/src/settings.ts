import { statSync } from "node:fs";

import { isAddress } from "./address.js";
import { type Host, type Route, routeOf } from "./ask.js";

import type { EndedAttempt, HookSettings, Logger, State } from "./hooks.js";

/** Clusters of hosts, or what requests to them are for: an object, or a function that returns undefined for others. */
export type Hosts = Readonly<Record<string, string | Host>> | ((host: string) => string | Host | undefined);

/** Settings of a client. All times are in milliseconds. */
export interface Settings {
  /**
   * Address of lbd: unix:PATH, http://HOST:PORT or https://HOST:PORT. Default: environment LBD, else the first of
   * unix:/run/lbd.sock and unix:/run/lbd/lbd.sock that is a socket, else http://localhost:8080.
   */
  lbd?: string | undefined;
  /** "batch" (default); "pick" for processes that live for one request; "lease" for exact circuit breaking. */
  mode?: "batch" | "pick" | "lease" | undefined;
  /** Token for lbd. Default: environment LBD_TOKEN. */
  token?: string | undefined;
  /** File with the token, read again after a 401. Default: environment LBD_TOKEN_FILE. */
  tokenFile?: string | undefined;
  /** PEM file of the certificates that may sign lbd's. Default: environment LBD_CA, else those of Node. */
  ca?: string | undefined;
  /** Name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID. */
  owner?: string | undefined;
  /** Clusters of other hosts, and what requests to hosts ask. */
  hosts?: Hosts | undefined;
  /** HOST:PORT for requests while lbd is unreachable and the last batch is too old. */
  fallback?: string | undefined;
  /** Deadline of a request that sets none. Default: 30,000; Infinity for none. */
  timeout?: number | undefined;
  /** Time to connect to an endpoint, with TLS, in client.request. Default: 5,000; Infinity for that of the request. */
  connectTimeout?: number | undefined;
  /** How long the last batch is used while lbd is unreachable. Default: 60,000. */
  staleFor?: number | undefined;
  /** Age after which a batch is replaced in any case. Default: 10,000. */
  maxAge?: number | undefined;
  /** Retries of a request, at most. Default: 2. */
  retries?: number | undefined;
  /** Budget of retries of a cluster (gRFC A6). Default: 100. */
  maxTokens?: number | undefined;
  /** Ttl of the lease of a request without a deadline. Default: 30,000. */
  ttl?: number | undefined;
  /** Time between two reports. Default: 5,000. */
  reportInterval?: number | undefined;
  /** Called with each try that has ended, in the async context of its request. */
  onAttempt?: ((attempt: EndedAttempt) => void) | undefined;
  /** Called when lbd is unreachable, the last batch is too old, or lbd has answered again. */
  onState?: ((state: State) => void) | undefined;
  /** Gets what the hooks get, without hash keys, headers and queries: at debug tries, at warn and info states. */
  logger?: Logger | undefined;
}

/** Settings with their defaults. */
export interface Resolved extends HookSettings {
  readonly lbd: string;
  /** How lbd was found. */
  readonly found: string;
  readonly mode: "batch" | "pick" | "lease";
  readonly token: string;
  readonly tokenFile: string;
  readonly ca: string;
  readonly owner: string;
  readonly hosts: (host: string) => Route | undefined;
  readonly fallback: string | undefined;
  readonly timeout: number;
  readonly connectTimeout: number;
  readonly staleFor: number;
  readonly maxAge: number;
  readonly retries: number;
  readonly maxTokens: number;
  readonly ttl: number;
  readonly reportInterval: number;
}

/** Throws a TypeError or a RangeError for a setting that is not valid. */
export function resolve(settings: Settings): Resolved {
  const { mode = "batch", fallback, onAttempt, onState, logger } = settings;
  if (!["batch", "pick", "lease"].includes(mode)) throw new TypeError(`mode: ${mode} is not batch, pick or lease`);
  if (fallback !== undefined && !isAddress(fallback)) {
    throw new TypeError(`fallback: ${fallback} is not HOST:PORT`);
  }
  const { env } = process;
  return {
    mode,
    fallback,
    onAttempt,
    onState,
    logger,
    lbd: settings.lbd || env.LBD || defaultAddress(),
    found: settings.lbd ? "the setting lbd" : env.LBD ? "environment LBD" : "default; set LBD",
    token: settings.token || (!settings.tokenFile && env.LBD_TOKEN) || "",
    tokenFile: settings.tokenFile || env.LBD_TOKEN_FILE || "",
    ca: settings.ca || env.LBD_CA || "",
    owner: settings.owner || env.LBD_OWNER || "",
    hosts: routes(settings.hosts ?? {}),
    timeout: number("timeout", settings.timeout, 30_000, 1),
    connectTimeout: number("connectTimeout", settings.connectTimeout, 5000, 1),
    staleFor: number("staleFor", settings.staleFor, 60_000),
    maxAge: number("maxAge", settings.maxAge, 10_000, 1),
    retries: number("retries", settings.retries, 2),
    maxTokens: number("maxTokens", settings.maxTokens, 100),
    ttl: number("ttl", settings.ttl, 30_000, 1),
    reportInterval: number("reportInterval", settings.reportInterval, 5000, 1),
  };
}

function routes(hosts: Hosts): Resolved["hosts"] {
  const route = (host: string, value: string | Host | undefined) => (value ? routeOf(host, value) : undefined);
  if (typeof hosts === "function") return (host) => route(host, hosts(host));
  const names = Object.entries(hosts).map(([host, value]) => [host.toLowerCase(), value] as const);
  const known = new Map(names.map(([host, value]) => [host, route(host, value)]));
  return (host) => known.get(host);
}

function number(name: string, value: number | undefined, byDefault: number, least = 0): number {
  if (value === undefined) return byDefault;
  if (!(value >= least)) throw new RangeError(`${name}: ${value} is not a number from ${least} on`);
  return value;
}

function defaultAddress(): string {
  const isSocket = (path: string) => statSync(path, { throwIfNoEntry: false })?.isSocket();
  const socket = ["/run/lbd.sock", "/run/lbd/lbd.sock"].find((path) => {
    try {
      return isSocket(path);
    } catch {
      return false; // the directory is not readable
    }
  });
  return socket === undefined ? "http://localhost:8080" : `unix:${socket}`;
}
