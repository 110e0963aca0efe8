// How numbers, times and names are written. All of it is for people.

import type { Locality } from "./model.ts";

/** A rate per second: "0", "0.3", "12", "1,204", "84.1k". */
export function rate(perSecond: number): string {
  if (perSecond >= 100_000) return `${(perSecond / 1000).toFixed(0)}k`;
  if (perSecond >= 10_000) return `${(perSecond / 1000).toFixed(1)}k`;
  if (perSecond >= 10) return count(Math.round(perSecond));
  if (perSecond >= 0.05) return perSecond.toFixed(1);
  return "0";
}

/** A whole number with separators. */
export function count(n: number): string {
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A part of one as percent: "0 %", "<0.1 %", "4.8 %", "75 %". */
export function percent(part: number): string {
  const p = part * 100;
  if (!Number.isFinite(p) || p <= 0) return "0 %";
  if (p < 0.1) return "<0.1 %";
  if (p > 99.9 && p < 100) return ">99.9 %";
  return `${Number(p.toFixed(1))} %`;
}

/** A span of milliseconds: "3 s", "4 min 10 s", "2 h 5 min", "3 d 4 h". */
export function span(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return s % 60 && m < 10 ? `${m} min ${s % 60} s` : `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 24) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  return h % 24 ? `${d} d ${h % 24} h` : `${d} d`;
}

const units: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, "µs": 1e-3, ns: 1e-6 };

/** The milliseconds of a Go duration: "1h2m3.5s", "1.05ms". */
export function duration(text: string): number {
  let ms = 0;
  for (const [, n, unit] of text.matchAll(/([\d.]+)(h|ms|m|s|µs|ns)/g)) ms += Number(n) * units[unit!]!;
  return ms;
}

/** A clock time of the reader's zone: "03:12:44". */
export function clock(t: number): string {
  return new Date(t).toLocaleTimeString("en-GB", { hour12: false });
}

const two = (n: number) => String(n).padStart(2, "0");

/** How far the reader's zone is from UTC, in which logs and the API are: "UTC", "+01:00". */
function zone(d: Date): string {
  const ahead = -d.getTimezoneOffset();
  if (ahead === 0) return "UTC";
  return `${ahead < 0 ? "−" : "+"}${two(Math.floor(Math.abs(ahead) / 60))}:${two(Math.abs(ahead) % 60)}`;
}

/** A day and clock time with its zone, for what may be older than today: "2026-11-20 03:12:44 +01:00". */
export function dayAndClock(t: number): string {
  const d = new Date(t);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(t)} ${zone(d)}`;
}

/** region/zone/sub_zone without what is empty at its end. */
export function localityName(l: Locality): string {
  const name = [l.region, l.zone, l.sub_zone].join("/").replace(/\/+$/, "");
  return name === "" ? "(no locality)" : name;
}

/** "1 endpoint", "2 endpoints". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** An error of a connection without what it says twice: Go's names the address again. */
export function brief(error: string): string {
  return error.replace(/(connect to (\S+): )dial \w+ \2: (connect: )?/g, "$1");
}
