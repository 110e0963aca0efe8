// Server-sent events that survive what breaks them.

import { useEffect, useRef, useState } from "preact/hooks";
import { now, told } from "./clock.ts";

/**
 * How a stream is doing. What it tells was known until "since", by lbd's clock: paused is
 * while the page is hidden; waiting is what a page says where there is nothing to be told.
 */
export type Liveness = { state: "live" } | { state: "connecting" | "reconnecting" | "paused" | "waiting"; since: number };

/** Until when what a stream tells is known, by lbd's clock. */
export const knownUntil = (l: Liveness, time: number) => (l.state === "live" ? time : l.since);

export interface Message {
  type: string;
  id: string;
  data: unknown;
}

export interface StreamOptions {
  url: string;
  types: string[];
  onMessage(m: Message): void;
  onLiveness(l: Liveness): void;
  /** The server does not stream now: says why, if anybody asks it otherwise. */
  onRefused(): void;
}

/** What is refused is asked for again after so long, in milliseconds. */
const firstWait = 1000;
const longestWait = 5000;

/** lbd lets no stream be silent for longer than half of this, in milliseconds. */
const silence = 30_000;
/** Since when a stream is longer silent than lbd ever is, which tells that it is alive every 15 s. */
const overdue = 20_000;

/**
 * Stream is one EventSource that is opened anew when it is refused (the browser
 * does so itself only when a connection breaks) or silent for too long, and that is
 * closed while the page is hidden. It resumes after the last event seen.
 */
export class Stream {
  private source?: EventSource;
  private retry?: ReturnType<typeof setTimeout>;
  private watchdog?: ReturnType<typeof setTimeout>;
  private wait = firstWait;
  private lastEventId = "";
  private liveness: Liveness = { state: "connecting", since: now() };
  private broken = false;
  private closed = false;
  /** When the stream was asked for or last heard of, by the clock here; and by lbd's. */
  private since = 0;
  private heard = now();
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

  private readonly visibility = () => {
    if (document.hidden) {
      this.disconnect();
      this.is("paused");
    } else if (!this.source) {
      this.connect();
    }
  };

  private is(state: "connecting" | "reconnecting" | "paused", since = this.knownUntil()): void {
    this.liveness = { state, since };
    this.o.onLiveness(this.liveness);
  }

  /** Until when what was told is known to be so: a break may be noticed long after it was, as by who was asleep. */
  private knownUntil(): number {
    const until = knownUntil(this.liveness, now());
    return this.liveness.state === "live" && until - this.heard > overdue ? this.heard : until;
  }

  private disconnect(): void {
    clearTimeout(this.retry);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = undefined;
  }

  private connect(): void {
    if (this.closed) return;
    this.disconnect();
    this.is(this.broken ? "reconnecting" : "connecting");
    // A new EventSource cannot set the header that the browser sends when it reconnects.
    const mark = this.lastEventId && `${this.o.url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(this.lastEventId)}`;
    const source = new EventSource(this.o.url + mark);
    this.source = source;
    this.listen();
    source.onopen = () => {
      this.wait = firstWait;
      this.broken = false;
      this.heard = now();
      this.liveness = { state: "live" };
      this.o.onLiveness(this.liveness);
    };
    source.onerror = () => this.fail(source);
    source.addEventListener("heartbeat", (e) => {
      if (source !== this.source) return;
      told(Date.parse((JSON.parse((e as MessageEvent<string>).data) as { time: string }).time), this.since);
      this.listen();
    });
    for (const type of this.o.types) {
      source.addEventListener(type, (e) => {
        if (source !== this.source) return;
        this.listen();
        const m = e as MessageEvent<string>;
        if (m.lastEventId) this.lastEventId = m.lastEventId;
        this.o.onMessage({ type, id: m.lastEventId, data: JSON.parse(m.data) as unknown });
      });
    }
  }

  /** Waits for the next sign of life. */
  private listen(): void {
    this.since = Date.now();
    this.heard = now();
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => {
      this.broken = true;
      if (this.liveness.state === "live") this.is("reconnecting", this.heard);
      this.o.onRefused();
      this.connect();
    }, silence);
  }

  private fail(source: EventSource): void {
    if (source !== this.source) return;
    this.broken = true;
    this.is("reconnecting");
    this.listen();
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
    this.o.onRefused();
    clearTimeout(this.watchdog);
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 2, longestWait);
  }
}

/**
 * useStream keeps one stream open while the component is shown. Handlers may change
 * without the stream being opened anew; another URL opens another one. onLiveness is
 * called before the messages of the stream that it tells of.
 */
export function useStream(
  url: string | null,
  types: string[],
  onMessage: StreamOptions["onMessage"],
  onRefused: () => void,
  onLiveness?: (l: Liveness) => void,
): Liveness {
  const [liveness, setLiveness] = useState<Liveness>(() => ({ state: "connecting", since: now() }));
  const handlers = useRef({ onMessage, onRefused, onLiveness });
  handlers.current = { onMessage, onRefused, onLiveness };
  useEffect(() => {
    if (url === null) return;
    const stream = new Stream({
      url,
      types,
      onMessage: (m) => handlers.current.onMessage(m),
      onLiveness: (l) => {
        handlers.current.onLiveness?.(l);
        setLiveness(l);
      },
      onRefused: () => handlers.current.onRefused(),
    });
    return () => stream.close();
  }, [url]);
  return liveness;
}
