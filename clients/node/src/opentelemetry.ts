// Spans for OpenTelemetry: new Client({ onAttempt: spans(trace.getTracerProvider()) }).

import { SpanKind, SpanStatusCode, type TracerProvider } from "@opentelemetry/api";

import type { EndedAttempt } from "./hooks.js";

/**
 * A hook for onAttempt. Each try becomes a span, which is a child of the current one of the request. It has ended by
 * then, so headers do not name it: an instrumentation of the HTTP library adds those of its own span.
 */
export function spans(provider: TracerProvider): (attempt: EndedAttempt) => void {
  const tracer = provider.getTracer("lbd-client");
  return ({ cluster, address, attempt, outcome, duration, method, origin, status = 0 }) => {
    const end = Date.now();
    const url = new URL(origin);
    const [, host = "", port] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
    const failed = status >= 400 ? String(status) : outcome === "success" ? undefined : outcome;
    const attributes = {
      "http.request.method": method,
      "server.address": url.hostname,
      "server.port": Number(url.port) || (url.protocol === "https:" ? 443 : 80),
      "network.peer.address": host,
      "network.peer.port": Number(port),
      "lbd.cluster": cluster,
      ...(attempt > 1 && { "http.request.resend_count": attempt - 1 }),
      ...(status > 0 && { "http.response.status_code": status }),
      ...(failed && { "error.type": failed }),
    };
    const span = tracer.startSpan(method, { kind: SpanKind.CLIENT, startTime: end - duration, attributes });
    if (failed) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(end);
  };
}
