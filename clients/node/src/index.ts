export type { Ask, Choice, Host } from "./ask.js";
export { Client } from "./client.js";
export {
  CircuitBrokenError,
  DroppedError,
  LbdError,
  PermissionDeniedError,
  UnavailableError,
  UnknownClusterError,
} from "./errors.js";
export type { EndedAttempt, Logger, State } from "./hooks.js";
export type { Hosts, Settings } from "./settings.js";
export type { RequestOptions, Response } from "./upstream.js";
