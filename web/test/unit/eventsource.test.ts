// Streams of events in all forms of the HTML standard (section 9.2, server-sent events).

import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents } from "../../src/eventsource.ts";

interface Got {
  events: { event?: string; id?: string; data: string }[];
  retries: number[];
}

/** Reads a stream that arrives in pieces. */
async function read(pieces: Uint8Array[]): Promise<Got> {
  const got: Got = { events: [], retries: [] };
  const body = new ReadableStream<Uint8Array>({
    start(c) {
      for (const p of pieces) c.enqueue(p);
      c.close();
    },
  });
  await readEvents(body, {
    onEvent: ({ event, id, data }) => got.events.push({ ...(event !== undefined && { event }), ...(id !== undefined && { id }), data }),
    onRetry: (ms) => got.retries.push(ms),
  });
  return got;
}
const bytes = (text: string) => new TextEncoder().encode(text);
const of = (text: string) => read([bytes(text)]);
const events = async (text: string) => (await of(text)).events;

test("an event has a type, an id and data", async () => {
  assert.deepEqual(await events('event: state\nid: 7.a\ndata: {"a":1}\n\ndata: b\n\n'), [{ event: "state", id: "7.a", data: '{"a":1}' }, { data: "b" }]);
});

test("lines end with LF, CR or CR LF", async () => {
  for (const end of ["\n", "\r", "\r\n"]) {
    const text = `event: a${end}data: 1${end}data: 2${end}${end}data: 3${end}${end}`;
    // The last CR of a stream could be half of a CR LF, so an event ends when the next byte arrives.
    assert.deepEqual(await events(text + ":"), [{ event: "a", data: "1\n2" }, { data: "3" }], JSON.stringify(end));
  }
});

test("one space after the colon is not part of the value", async () => {
  assert.deepEqual(await events("data:a\n\ndata: a\n\ndata:  a\n\ndata\n\ndata:\n\ndata\ndata\n\n"), [
    { data: "a" }, { data: "a" }, { data: " a" }, { data: "" }, { data: "" }, { data: "\n" },
  ]);
});

test("comments, unknown fields and unfinished events are ignored", async () => {
  assert.deepEqual(await events(": comment\n:\nother: x\ndatas: x\n data: x\nevent: a\n\ndata: b\n\ndata: c\n"), [{ data: "b" }]);
});

test("an id with NULL is ignored", async () => {
  assert.deepEqual(await events("id: a\0b\ndata: 1\n\nid: c\ndata: 2\n\nid\ndata: 3\n\n"), [{ data: "1" }, { id: "c", data: "2" }, { id: "", data: "3" }]);
});

test("only digits set the reconnection time", async () => {
  assert.deepEqual(await of("retry: 1000\n\nretry: 2s\nretry: -1\nretry:\nretry: 0\n\n"), { events: [], retries: [1000, 0] });
});

test("one BOM at the begin is removed", async () => {
  assert.deepEqual(await events("\ufeffdata: a\n\n\ufeffdata: b\n\ndata: \ufeffc\n\n"), [{ data: "a" }, { data: "\ufeffc" }]);
});

test("invalid UTF-8 is replaced", async () => {
  assert.deepEqual((await read([bytes("data: a"), new Uint8Array([0xff]), bytes("b\n\n")])).events, [{ data: "a\ufffdb" }]);
});

test("the result does not depend on how the stream is divided", async () => {
  const text = '\ufeffretry: 5\r\n: é\r\nevent: state\r\nid: 1\r\ndata: {"é":"€😀"}\r\ndata: 日本\r\n\r\nevent: x\rdata: 2\r\rid: 3\ndata: 4\n\n:';
  const all = bytes(text);
  const want = await read([all]);
  assert.deepEqual(want, { events: [{ event: "state", id: "1", data: '{"é":"€😀"}\n日本' }, { event: "x", data: "2" }, { id: "3", data: "4" }], retries: [5] });
  for (let i = 0; i <= all.length; i++) {
    for (let j = i; j <= all.length; j += 3) {
      assert.deepEqual(await read([all.slice(0, i), all.slice(i, j), all.slice(j)]), want, `divided at ${i} and ${j}`);
    }
  }
  assert.deepEqual(await read([...all].map((b) => new Uint8Array([b]))), want, "single bytes");
});

test("a stream that breaks rejects, after its events", async () => {
  const got: string[] = [];
  const body = new ReadableStream<Uint8Array>({
    pull(c) {
      if (got.length === 0) c.enqueue(bytes("data: a\n\ndata: b"));
      else c.error(new TypeError("broken"));
    },
  }, { highWaterMark: 0 });
  await assert.rejects(readEvents(body, { onEvent: (e) => got.push(e.data), onRetry: () => undefined }), /broken/);
  assert.deepEqual(got, ["a"]);
});
