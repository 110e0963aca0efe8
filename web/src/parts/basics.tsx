// Small parts that every page uses.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { now } from "../clock.ts";
import { useDaemon } from "../daemon.ts";
import { dayAndClock, span } from "../format.ts";
import type { Liveness } from "../stream.ts";

/** The time of lbd's clock, updated every second while the page is visible. */
export function useNow(every = 1000): number {
  const [time, setTime] = useState(now);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setTime(now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return time;
}

const stateTones: Record<string, string> = {
  READY: "good",
  CONNECTING: "busy",
  IDLE: "idle",
  WARMING: "idle",
  TRANSIENT_FAILURE: "bad",
  UNHEALTHY: "unwell",
  EJECTED: "unwell",
};

/** Shapes in addition to colors, for people who cannot distinguish colors. */
const shapes: Record<string, string> = { good: "●", busy: "◐", idle: "○", bad: "✕", unwell: "▲" };

export const stateTone = (state: string) => stateTones[state] ?? "idle";

export function State({ of }: { of: string }) {
  const tone = stateTone(of);
  return (
    <span class={`state ${tone}`}>
      <span aria-hidden="true">{shapes[tone]}</span> {of}
    </span>
  );
}

/** How long ago, with the time itself on hover. */
export function Ago({ at, now, suffix = " ago" }: { at: string | undefined; now: number; suffix?: string }) {
  if (!at) return <>–</>;
  const t = Date.parse(at);
  return (
    <time dateTime={at} title={dayAndClock(t)}>
      {span(now - t)}
      {suffix}
    </time>
  );
}

/** Counts down to a time; then shows "over". */
export function Countdown({ to, now, what, over = `${what} now` }: { to: string | undefined; now: number; what: string; over?: string }) {
  if (!to) return null;
  const left = Date.parse(to) - now;
  if (left <= 0) return <span class="timer">{over}</span>;
  return (
    <span class="timer" title={dayAndClock(Date.parse(to))}>
      {what} in {span(left)}
    </span>
  );
}

/** The state of the live updates. */
export function Live({ of, now }: { of: Liveness; now: number }) {
  const words = {
    connecting: "connecting…",
    live: "live",
    reconnecting: "",
    refused: "access refused: this page may be outdated",
    paused: "paused",
    waiting: "retrying every few seconds",
  };
  const text = of.state === "reconnecting" ? `reconnecting for ${span(now - of.since)}: this page may be outdated` : words[of.state];
  return (
    <span class={`live is-${of.state}`}>
      <span aria-hidden="true">{of.state === "live" ? "●" : of.state === "reconnecting" || of.state === "refused" ? "✕" : "○"}</span> {text}
      <span class="unseen" role="status">
        {of.state === "reconnecting" ? "The connection to lbd is lost; reconnecting." : ""}
      </span>
    </span>
  );
}

/** The title of the page, which gets the focus on a visit. */
export function Title({ children, text }: { children?: ComponentChildren; text: string }) {
  const h1 = useRef<HTMLHeadingElement>(null);
  const name = useDaemon()?.name;
  useEffect(() => {
    document.title = name ? `${text} · ${name} · lbd` : `${text} · lbd`;
  }, [text, name]);
  return (
    <h1 ref={h1} tabIndex={-1} id="title">
      {children ?? text}
    </h1>
  );
}

/** An error, which screen readers announce at once. */
export function Alert({ children, title }: { children: ComponentChildren; title?: string }) {
  return (
    <div class="alert" role="alert">
      {title && <strong>{title}: </strong>}
      {children}
    </div>
  );
}

/** A part of one as a bar, next to its number. */
export function Bar({ part, expected, tone = "" }: { part: number; expected?: number; tone?: string }) {
  const w = (p: number) => Math.round(Math.min(1, Math.max(0, p)) * 1000) / 10;
  return (
    <svg class={`bar ${tone}`} viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="rest" width="100" height="8" />
      <rect class="part" width={w(part)} height="8" />
      {expected !== undefined && <rect class="expected" x={Math.max(0, w(expected) - 1)} width="2" height="8" />}
    </svg>
  );
}
