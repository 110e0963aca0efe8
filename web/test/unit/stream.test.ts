import assert from "node:assert/strict";
import { mock, test, type TestContext } from "node:test";
import { now } from "../../src/clock.ts";
import { session } from "../../src/session.ts";
import { type Liveness, type Message, Stream } from "../../src/stream.ts";

interface Call {
  url: string;
  headers: Headers;
  signal: AbortSignal;
  /** Answers with a stream, and returns what sends a part of it, ends or breaks it. */
  open(): { send(text: string): void; end(): void; fail(): void };
  refuse(status: number, problem: object): void;
  fail(): void;
}

const settled = async () => {
  for (let i = 0; i < 10; i++) await new Promise((done) => setImmediate(done));
};

/** A page with one stream, whose requests the test answers. */
function page(t: TestContext) {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.parse("2026-11-20T03:00:00Z") });
  const document = Object.assign(new EventTarget(), { hidden: false });
  const before = Object.getOwnPropertyDescriptor(globalThis, "document");
  Object.defineProperty(globalThis, "document", { configurable: true, value: document });
  const calls: Call[] = [];
  t.mock.method(globalThis, "fetch", (url: string, init: RequestInit) =>
    new Promise<Response>((answer, refuse) => {
      const signal = init.signal!;
      signal.addEventListener("abort", () => refuse(signal.reason as Error));
      calls.push({
        url, headers: new Headers(init.headers), signal,
        open() {
          let to!: ReadableStreamDefaultController<Uint8Array>;
          const body = new ReadableStream<Uint8Array>({ start: (c) => void (to = c) });
          signal.addEventListener("abort", () => to.error(signal.reason));
          answer(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
          return { send: (text) => to.enqueue(new TextEncoder().encode(text)), end: () => to.close(), fail: () => to.error(new TypeError("network error")) };
        },
        refuse: (status, problem) => answer(new Response(JSON.stringify(problem), { status, headers: { "Content-Type": "application/problem+json" } })),
        fail: () => refuse(new TypeError("Failed to fetch")),
      });
    }));
  const messages: Message[] = [];
  const states: Liveness[] = [];
  let refusals = 0;
  const stream = new Stream({
    url: "v1/watch", types: ["state"], onMessage: (m) => messages.push(m), onLiveness: (l) => states.push(l), onRefused: () => refusals++,
  });
  t.after(() => {
    stream.close();
    session.use("");
    mock.timers.reset();
    if (before) Object.defineProperty(globalThis, "document", before);
    else Reflect.deleteProperty(globalThis, "document");
  });
  return {
    calls, messages, stream,
    state: () => states.at(-1)!.state,
    refusals: () => refusals,
    hide(hidden: boolean) {
      document.hidden = hidden;
      document.dispatchEvent(new Event("visibilitychange"));
    },
    async wait(ms: number) {
      mock.timers.tick(ms);
      await settled();
    },
  };
}
const missing = { code: "unauthenticated", detail: "role read is required", role: "read" };

test("a stream resumes after the last event, with a header", async (t) => {
  const p = page(t);
  assert.equal(p.state(), "connecting");
  const first = p.calls[0]!.open();
  await settled();
  assert.equal(p.state(), "live");
  assert.deepEqual([p.calls[0]!.url, p.calls[0]!.headers.get("Last-Event-ID"), p.calls[0]!.headers.get("Authorization")], ["v1/watch", null, null]);
  first.send('retry: 200\n\nevent: state\nid: 7\ndata: {"a":1}\n\nevent: other\nid: 8\ndata: x\n\nevent: state\ndata: 2\n\n');
  await settled();
  assert.deepEqual(p.messages, [{ type: "state", data: { a: 1 } }, { type: "state", data: 2 }]);
  first.end();
  await settled();
  assert.equal(p.state(), "reconnecting");
  await p.wait(199);
  assert.equal(p.calls.length, 1);
  await p.wait(1);
  assert.equal(p.calls[1]!.headers.get("Last-Event-ID"), "7");
  assert.equal(p.calls[1]!.url, "v1/watch");
  assert.equal(p.refusals(), 0);
});

test("a broken connection and a daemon that is not there are retried", async (t) => {
  const p = page(t);
  const first = p.calls[0]!.open();
  await settled();
  first.fail();
  await settled();
  assert.equal(p.state(), "reconnecting");
  for (let i = 1; i < 5; i++) {
    await p.wait(1000);
    assert.equal(p.calls.length, i + 1);
    p.calls[i]!.fail();
    await settled();
  }
  assert.equal(p.refusals(), 0);
});

test("a refusal is retried with longer intervals, and reported", async (t) => {
  const p = page(t);
  const intervals = [1000, 2000, 4000, 5000, 5000];
  for (const [i, ms] of intervals.entries()) {
    p.calls[i]!.refuse(404, { code: "unknown_cluster", detail: "no" });
    await settled();
    assert.equal(p.refusals(), i + 1);
    await p.wait(ms - 1);
    assert.equal(p.calls.length, i + 1);
    await p.wait(1);
    assert.equal(p.calls.length, i + 2);
  }
  p.calls[5]!.open().end();
  await settled();
  await p.wait(1000);
  p.calls[6]!.refuse(500, {});
  await settled();
  await p.wait(1000);
  assert.equal(p.calls.length, 8, "the first interval again");
});

test("a silent stream is reconnected, and a heartbeat is not silence", async (t) => {
  const p = page(t);
  const first = p.calls[0]!.open();
  await settled();
  await p.wait(29_000);
  first.send(`event: heartbeat\ndata: {"time":"${new Date(Date.now() + 3_600_000).toISOString()}"}\n\n`);
  await settled();
  assert.ok(now() - Date.now() > 3_500_000, "the heartbeat has lbd's time");
  await p.wait(29_999);
  assert.equal(p.calls.length, 1);
  await p.wait(1);
  assert.equal(p.calls.length, 2);
  assert.deepEqual([p.calls[0]!.signal.aborted, p.state(), p.refusals()], [true, "reconnecting", 1]);
  await p.wait(30_000);
  assert.equal(p.calls.length, 3, "a connection that is not answered");
});

test("a stream is closed while the page is hidden", async (t) => {
  const p = page(t);
  p.calls[0]!.open();
  await settled();
  p.hide(true);
  assert.deepEqual([p.calls[0]!.signal.aborted, p.state()], [true, "paused"]);
  await p.wait(60_000);
  session.use("abc");
  assert.equal(p.calls.length, 1);
  p.hide(false);
  assert.equal(p.calls.length, 2);
  assert.equal(p.calls[1]!.headers.get("Authorization"), "Bearer abc");
  p.stream.close();
  await settled();
  assert.ok(p.calls[1]!.signal.aborted);
  await p.wait(60_000);
  session.use("");
  assert.equal(p.calls.length, 2, "closed");
});

test("without the role, a stream waits for another token", async (t) => {
  const p = page(t);
  p.calls[0]!.refuse(401, missing);
  await settled();
  assert.equal(p.state(), "refused");
  assert.equal(session.access.open, true);
  await p.wait(600_000);
  p.hide(true);
  p.hide(false);
  assert.equal(p.state(), "refused");
  assert.deepEqual([p.calls.length, p.refusals()], [1, 0], "no retry");
  session.use("abc");
  assert.equal(p.calls.length, 2);
  assert.equal(p.calls[1]!.headers.get("Authorization"), "Bearer abc");
  const second = p.calls[1]!.open();
  await settled();
  assert.equal(p.state(), "live");

  second.end(); // the token is revoked
  await settled();
  await p.wait(1000);
  p.calls[2]!.refuse(401, { code: "unauthenticated", detail: "the token is unknown" });
  await settled();
  assert.equal(session.access.rejected?.detail, "the token is unknown");
  assert.equal(p.calls[3]!.headers.get("Authorization"), null, "one attempt without it");
  p.calls[3]!.refuse(401, missing);
  await settled();
  await p.wait(600_000);
  assert.deepEqual([p.calls.length, p.state()], [4, "refused"]);
});
