// Spans of tries, with an exporter in memory.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";

import { Client } from "lbd-client";
import { spans } from "lbd-client/opentelemetry";

import { libraries } from "./libraries.js";
import { Daemon, refuses, status, Upstream } from "./stand.js";

const daemon = new Daemon();
before(() => daemon.start());
after(() => daemon.close());
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
after(() => context.disable());

for (const [library, connect] of Object.entries(libraries)) {
  test(`tries are spans: ${library}`, async (t) => {
    const exporter = new InMemorySpanExporter();
    const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
    const client = new Client({ lbd: daemon.lbd, mode: "pick", onAttempt: spans(provider) });
    t.after(() => client.close());
    const send = connect(client);
    const upstreams = await Promise.all([Upstream.start(status(503)), Upstream.start(status(503))]);
    t.after(() => upstreams.map((upstream) => upstream.close()));
    const addresses = upstreams.map(({ address }) => address);
    const parent = provider.getTracer("test").startSpan("parent");
    const inParent = (url) =>
      context.with(trace.setSpan(context.active(), parent), () => send("GET", url).catch(() => undefined));
    const check = (span, expected, address) => {
      assert.equal(span.name, "GET");
      assert.equal(span.kind, SpanKind.CLIENT);
      assert.equal(span.status.code, SpanStatusCode.ERROR);
      assert.equal(span.parentSpanContext.spanId, parent.spanContext().spanId);
      assert.deepEqual(span.attributes, {
        "http.request.method": "GET",
        "server.address": "orders.lbd",
        "server.port": 80,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": Number(address.split(":")[1]),
        "lbd.cluster": "orders",
        ...expected,
      });
    };

    await daemon.push("orders", addresses);
    await inParent("http://orders.lbd/?key=secret");
    const tries = exporter.getFinishedSpans();
    assert.equal(tries.length, 2);
    const peers = tries.map((span) => `127.0.0.1:${span.attributes["network.peer.port"]}`);
    assert.deepEqual(peers.toSorted(), addresses.toSorted());
    const answered = { "http.response.status_code": 503, "error.type": "503" };
    check(tries[0], answered, peers[0]);
    check(tries[1], { "http.request.resend_count": 1, ...answered }, peers[1]);

    exporter.reset();
    const address = await refuses();
    await daemon.push("orders", [address]);
    await inParent("http://orders.lbd:8080/");
    check(exporter.getFinishedSpans()[0], { "server.port": 8080, "error.type": "unreachable" }, address);
  });
}
