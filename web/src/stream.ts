// Server-sent events that reconnect.

import { useEffect, useRef, useState } from "preact/hooks";
import { learnFromTime, now } from "./clock.ts";

/**
 * The state of a stream. Its data was current until "since", by lbd's clock. A stream is
 * paused while the page is hidden. A page is waiting if there is nothing to stream.
 */
export type Liveness = { state: "live" } | { state: "connecting" | "reconnecting" | "paused" | "waiting"; since: number };

/** The time until which the data of a stream is current, by lbd's clock. */
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
  /** Called when the server refuses the stream: another call may return the reason. */
  onRefused(): void;
}

/** Bounds of the retry interval after a refusal, in milliseconds. */
const firstWait = 1000;
const longestWait = 5000;

/** A stream that is silent for this time, in milliseconds, is reconnected: lbd sends a heartbeat every 15 s. */
const silence = 30_000;
/** A stream that is silent for longer, in milliseconds, has probably lost its connection. */
const overdue = 20_000;

/**
 * Stream is an EventSource that reconnects when it is refused (browsers do so only when a
 * connection breaks) or silent for too long, and is closed while the page is hidden. It
 * resumes after the last received event.
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
  /** The time of the last message or connection attempt, by this clock and by lbd's. */
  private since = 0;
  private lastMessage = now();
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

  /** The time until which the data is current: a sleeping computer notices a break late. */
  private knownUntil(): number {
    const until = knownUntil(this.liveness, now());
    return this.liveness.state === "live" && until - this.lastMessage > overdue ? this.lastMessage : until;
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
    // A new EventSource cannot set Last-Event-ID, which browsers send when they reconnect.
    const mark = this.lastEventId && `${this.o.url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(this.lastEventId)}`;
    const source = new EventSource(this.o.url + mark);
    this.source = source;
    this.restartWatchdog();
    source.onopen = () => {
      this.wait = firstWait;
      this.broken = false;
      this.lastMessage = now();
      this.liveness = { state: "live" };
      this.o.onLiveness(this.liveness);
    };
    source.onerror = () => this.fail(source);
    source.addEventListener("heartbeat", (e) => {
      if (source !== this.source) return;
      learnFromTime(Date.parse((JSON.parse((e as MessageEvent<string>).data) as { time: string }).time), this.since);
      this.restartWatchdog();
    });
    for (const type of this.o.types) {
      source.addEventListener(type, (e) => {
        if (source !== this.source) return;
        this.restartWatchdog();
        const m = e as MessageEvent<string>;
        if (m.lastEventId) this.lastEventId = m.lastEventId;
        this.o.onMessage({ type, id: m.lastEventId, data: JSON.parse(m.data) as unknown });
      });
    }
  }

  /** Waits for the next message. */
  private restartWatchdog(): void {
    this.since = Date.now();
    this.lastMessage = now();
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => {
      this.broken = true;
      if (this.liveness.state === "live") this.is("reconnecting", this.lastMessage);
      this.o.onRefused();
      this.connect();
    }, silence);
  }

  private fail(source: EventSource): void {
    if (source !== this.source) return;
    this.broken = true;
    this.is("reconnecting");
    this.restartWatchdog();
    if (source.readyState !== EventSource.CLOSED) return; // the browser retries
    this.o.onRefused();
    clearTimeout(this.watchdog);
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 2, longestWait);
  }
}

/**
 * useStream keeps a stream open while the component is shown. Handlers may change without a
 * new connection; another URL opens another stream. onLiveness is called before the messages
 * of the stream.
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
