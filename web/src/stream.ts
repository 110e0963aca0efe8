// Streams of server-sent events that reconnect.

import type { EventSourceMessage } from "eventsource-parser";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal, request, waitsForToken } from "./api.ts";
import { learnFromTime, now } from "./clock.ts";
import { readEvents } from "./eventsource.ts";
import { session } from "./session.ts";

/**
 * The state of a stream. Its data was current until "since", by lbd's clock. A stream is
 * paused while the page is hidden, and refused until there is another token. A page is waiting
 * if there is nothing to stream.
 */
export type Liveness = { state: "live" } | { state: "connecting" | "reconnecting" | "refused" | "paused" | "waiting"; since: number };

/** The time until which the data of a stream is current, by lbd's clock. */
export const knownUntil = (l: Liveness, time: number) => (l.state === "live" ? time : l.since);

export interface Message {
  type: string;
  data: unknown;
}

export interface StreamOptions {
  url: string;
  types: string[];
  onMessage(m: Message): void;
  onLiveness(l: Liveness): void;
  /** Called when the server refuses the stream for another reason than a missing role: another call may return the reason. */
  onRefused(): void;
}

/** Bounds of the retry interval after a refusal, in milliseconds. */
const firstWait = 1000;
const longestWait = 5000;

/** The retry interval after a broken connection, in milliseconds, until the server sends another one. */
const firstRetry = 1000;

/** A stream that is silent for this time, in milliseconds, is reconnected: lbd sends a heartbeat every 15 s. */
const silence = 30_000;
/** A stream that is silent for longer, in milliseconds, has probably lost its connection. */
const overdue = 20_000;

/**
 * Stream does what an EventSource does, with the token. It also reconnects when it is refused
 * or silent for too long, and is closed while the page is hidden. Without the required role,
 * it waits for another token. It resumes after the last received event.
 */
export class Stream {
  private source?: AbortController;
  private retry?: ReturnType<typeof setTimeout>;
  private watchdog?: ReturnType<typeof setTimeout>;
  private wait = firstWait;
  private reconnection = firstRetry;
  private lastEventId = "";
  private liveness: Liveness = { state: "connecting", since: now() };
  private broken = false;
  private closed = false;
  private refused = false;
  /** The time of the last message or connection attempt, by this clock and by lbd's. */
  private since = 0;
  private lastMessage = now();
  private readonly o: StreamOptions;
  private readonly forget: () => void;

  constructor(o: StreamOptions) {
    this.o = o;
    document.addEventListener("visibilitychange", this.visibility);
    this.forget = session.onChange(() => {
      this.refused = false;
      if (!document.hidden) this.connect();
    });
    this.visibility();
  }

  close(): void {
    this.closed = true;
    this.forget();
    document.removeEventListener("visibilitychange", this.visibility);
    this.disconnect();
  }

  private readonly visibility = () => {
    if (document.hidden) {
      this.disconnect();
      this.is("paused");
    } else if (this.refused) {
      this.is("refused");
    } else if (!this.source) {
      this.connect();
    }
  };

  private is(state: "connecting" | "reconnecting" | "refused" | "paused", since = this.knownUntil()): void {
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
    this.source?.abort();
    this.source = undefined;
  }

  private connect(): void {
    if (this.closed) return;
    this.disconnect();
    this.is(this.broken ? "reconnecting" : "connecting");
    const source = new AbortController();
    this.source = source;
    this.restartWatchdog();
    this.read(source).then(
      () => this.fail(source),
      (why: unknown) => this.fail(source, why),
    );
  }

  /** Reads the stream until it ends. */
  private async read(source: AbortController): Promise<void> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (this.lastEventId) headers["Last-Event-ID"] = this.lastEventId;
    const { body } = await request(this.o.url, { headers, signal: source.signal });
    if (source !== this.source || !body) return;
    this.wait = firstWait;
    this.broken = false;
    this.lastMessage = now();
    this.liveness = { state: "live" };
    this.o.onLiveness(this.liveness);
    session.accept(session.version);
    await readEvents(body, {
      onRetry: (ms) => {
        this.reconnection = ms;
      },
      onEvent: (e) => {
        if (source !== this.source) return;
        try {
          this.take(e);
        } catch (why) {
          reportError(why); // it does not break the connection
        }
      },
    });
  }

  private take({ id, event = "message", data }: EventSourceMessage): void {
    if (event === "heartbeat") {
      learnFromTime(Date.parse((JSON.parse(data) as { time: string }).time), this.since);
      this.restartWatchdog();
    } else if (this.o.types.includes(event)) {
      this.restartWatchdog();
      if (id) this.lastEventId = id;
      this.o.onMessage({ type: event, data: JSON.parse(data) as unknown });
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

  /** Retries after the connection ended or broke, or lbd refused it. */
  private fail(source: AbortController, why?: unknown): void {
    if (source !== this.source) return;
    this.disconnect();
    this.broken = true;
    if (waitsForToken(why)) {
      this.refused = true;
      this.is("refused");
      return;
    }
    this.is("reconnecting");
    if (!(why instanceof Refusal)) {
      this.retry = setTimeout(() => this.connect(), this.reconnection);
      return;
    }
    this.o.onRefused();
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
