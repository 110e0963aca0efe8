// Server-sent events, read with fetch: an EventSource cannot send headers.

import { createParser, type EventSourceMessage } from "eventsource-parser";

export interface EventHandlers {
  /** The id is undefined if the event has none. */
  onEvent(e: EventSourceMessage): void;
  /** Called with the reconnection time that the server requests, in milliseconds. */
  onRetry(ms: number): void;
}

/** Reads the events of a response as they arrive. It returns when the response ends, and rejects if it breaks. */
export async function readEvents(body: ReadableStream<Uint8Array>, handlers: EventHandlers): Promise<void> {
  const parser = createParser(handlers);
  const decoder = new TextDecoder(); // it removes a BOM, and keeps the begin of a character until its end arrives
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.feed(decoder.decode(value, { stream: true }));
  }
}
