// Errors of requests that got no endpoint from lbd.

export interface LbdErrorFields {
  readonly cluster: string;
  readonly code?: string;
  readonly retryAfter?: number;
}

/** Base of all errors of lbd. */
export class LbdError extends Error {
  /** The cluster of the request. */
  readonly cluster: string;
  /** The code of lbd's answer; "" if lbd did not answer. */
  readonly code: string;
  /** Milliseconds after which lbd asks to call again; 0 if it does not say. */
  readonly retryAfter: number;

  constructor(message: string, { cluster, code = "", retryAfter = 0 }: LbdErrorFields) {
    super(message);
    this.name = new.target.name;
    this.cluster = cluster;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/** The drop policy of the cluster rejected the request. Do not retry it: the operator wants less load. */
export class DroppedError extends LbdError {}

/** The circuit breaker of the cluster is full. Do not retry at once. */
export class CircuitBrokenError extends LbdError {}

/** lbd has no endpoint, or is unreachable and the last batch is too old. */
export class UnavailableError extends LbdError {}

/** lbd does not know the cluster or target. */
export class UnknownClusterError extends LbdError {}

/** lbd rejected the token, or the token does not permit picks from this cluster. */
export class PermissionDeniedError extends LbdError {}

const kinds = new Map<string, typeof LbdError>([
  ["dropped", DroppedError],
  ["circuit_broken", CircuitBrokenError],
  ["unknown_cluster", UnknownClusterError],
  ["unknown_target", UnknownClusterError],
  ["permission_denied", PermissionDeniedError],
  ["unauthenticated", PermissionDeniedError],
]);

/** The error for an answer of lbd that rejects; problem is its body (RFC 9457), or empty. */
export function ofAnswer(
  cluster: string,
  status: number,
  problem: Record<string, unknown>,
  retryAfter: number,
): LbdError {
  const code = typeof problem.code === "string" ? problem.code : "";
  const Kind = kinds.get(code) ?? (status === 401 || status === 403 ? PermissionDeniedError : UnavailableError);
  const detail = problem.detail || problem.title || `status ${status}`;
  const message = `cluster ${cluster}: ${detail}${code && ` (${code})`}`;
  return new Kind(message, { cluster, code: code || String(status), retryAfter });
}

/** An error of the same kind, with the stack of the caller. */
export function like(error: LbdError): LbdError {
  const Kind = error.constructor as typeof LbdError;
  return new Kind(error.message, error);
}

/** Whether lbd rejects the name of the cluster, or the token: the same call would not help soon. */
export function isFinal(error: LbdError): boolean {
  const { code } = error;
  return error instanceof UnknownClusterError || error instanceof PermissionDeniedError || code === "invalid_argument";
}

/** The error of a request whose deadline has passed: the same as that of AbortSignal.timeout. */
export function timeoutError(): DOMException {
  return new DOMException("The deadline of the request has passed", "TimeoutError");
}

/** Whether an error says that a deadline has passed, also one of the caller's AbortSignal.timeout. */
export function isTimeout(error: unknown): boolean {
  return error instanceof Error && (error.name === "TimeoutError" || error.name === "HeadersTimeoutError");
}

/** The error of a connect that took too long. */
export function connectTimeoutError(address: string, timeout: number): Error {
  return Object.assign(new Error(`no connection to ${address} in ${timeout} ms`), { code: "ETIMEDOUT" });
}

/** The error of a composition in which redirects are followed within a try: at its endpoint, whatever their host is. */
export function orderError(): Error {
  return new TypeError(
    "lbd: the interceptor of lbd must be before that of redirects: compose(interceptor(client), redirect)",
  );
}

const shortages = new Set(["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "EADDRNOTAVAIL"]);
const local = new Set([
  "UND_ERR_ABORTED",
  "UND_ERR_CLOSED",
  "UND_ERR_DESTROYED",
  "UND_ERR_INVALID_ARG",
  "UND_ERR_NOT_SUPPORTED",
  "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH",
]);

const misuse = /^ERR_(HTTP|INVALID|STREAM|UNESCAPED)/;

/**
 * Whether the endpoint is to blame for an error before the headers of its response. It is not for an error of the
 * caller, or a shortage of this machine. All errors of connections in Node have a code.
 */
export function blamesEndpoint(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" && !shortages.has(code) && !local.has(code) && !misuse.test(code);
}
