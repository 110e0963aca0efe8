// Server-sent events that survive what breaks them.

import { useEffect, useRef, useState } from "preact/hooks";
import { now } from "./clock.ts";

/** How a stream is doing. */
export type Liveness =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "reconnecting"; since: number }
  | { state: "paused" } // the page is hidden
  | { state: "ended" }; // nothing more will come

export interface Message {
  type: string;
  id: string;
  data: unknown;
}

export interface StreamOptions {
  /** Resolves the stream's URL; lastEventId is "" at first. */
  url: string;
  types: string[];
  onMessage(m: Message): void;
  onLiveness(l: Liveness): void;
  /** The server does not stream now: says why, if anybody asks it otherwise. */
  onRefused(): void;
}

const firstWait = 1000;
const longestWait = 30_000;

/**
 * Stream is one EventSource that is opened anew when it is refused (the browser
 * does so itself only when a connection breaks), and that is closed while the page is
 * hidden. It resumes after the last event seen.
 */
export class Stream {
  private source?: EventSource;
  private retry?: ReturnType<typeof setTimeout>;
  private wait = firstWait;
  private lastEventId = "";
  private brokenSince = 0;
  private closed = false;
  private readonly o: StreamOptions;

  constructor(o: StreamOptions) {
    this.o = o;
    document.addEventListener("visibilitychange", this.visibility);
    this.visibility();
  }

  close(): void {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.visibility);
    this.disconnect();
  }

  /** Ends the stream: nothing more will come. */
  end(): void {
    this.close();
    this.o.onLiveness({ state: "ended" });
  }

  private readonly visibility = () => {
    if (document.hidden) {
      this.disconnect();
      this.o.onLiveness({ state: "paused" });
    } else if (!this.source) {
      this.connect();
    }
  };

  private disconnect(): void {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = undefined;
  }

  private connect(): void {
    if (this.closed) return;
    this.disconnect();
    this.o.onLiveness(this.brokenSince ? { state: "reconnecting", since: this.brokenSince } : { state: "connecting" });
    // A new EventSource cannot set the header that the browser sends when it reconnects.
    const mark = this.lastEventId && `${this.o.url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(this.lastEventId)}`;
    const source = new EventSource(this.o.url + mark);
    this.source = source;
    source.onopen = () => {
      this.wait = firstWait;
      this.brokenSince = 0;
      this.o.onLiveness({ state: "live" });
    };
    source.onerror = () => this.broken(source);
    for (const type of this.o.types) {
      source.addEventListener(type, (e) => {
        if (source !== this.source) return;
        const m = e as MessageEvent<string>;
        if (m.lastEventId) this.lastEventId = m.lastEventId;
        this.o.onMessage({ type, id: m.lastEventId, data: JSON.parse(m.data) as unknown });
      });
    }
  }

  private broken(source: EventSource): void {
    if (source !== this.source) return;
    this.brokenSince ||= now();
    this.o.onLiveness({ state: "reconnecting", since: this.brokenSince });
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
    this.o.onRefused();
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 2, longestWait);
  }
}

/**
 * useStream keeps one stream open while the component is shown. Handlers may change
 * without the stream being opened anew; another URL opens another one. A handler of a
 * message that returns "end" ends the stream.
 */
export function useStream(
  url: string | null,
  types: string[],
  onMessage: (m: Message) => void | "end",
  onRefused: () => void,
): Liveness {
  const [liveness, setLiveness] = useState<Liveness>({ state: "connecting" });
  const handlers = useRef({ onMessage, onRefused });
  handlers.current = { onMessage, onRefused };
  useEffect(() => {
    if (url === null) return;
    const stream: Stream = new Stream({
      url,
      types,
      onMessage: (m) => {
        if (handlers.current.onMessage(m) === "end") stream.end();
      },
      onLiveness: setLiveness,
      onRefused: () => handlers.current.onRefused(),
    });
    return () => stream.close();
  }, [url]);
  return liveness;
}
