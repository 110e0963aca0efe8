// The differences that a push would make, as texts.

import type { Assignment, AssignedEndpoint, AssignedLocality, Message, Value } from "./document.ts";
import { assignedName, isMessage } from "./document.ts";

export interface Difference {
  change: "added" | "removed" | "modified";
  /** The subject: "priority 0, us-east1/b, 10.0.0.7:8080". */
  what: string;
  /** The old and the new value. */
  from?: string;
  to?: string;
}

const placeOf = (l: AssignedLocality) => `priority ${l.priority}, ${assignedName(l)}`;

/** The differences of two assignments; before may be null. */
export function compareAssignments(before: Assignment | null, after: Assignment): Difference[] {
  const out: Difference[] = [];
  const old = byKey(before?.localities ?? [], placeOf);
  const now = byKey(after.localities, placeOf);
  for (const [place, l] of now) {
    const was = old.get(place);
    if (!was) {
      const n = l.endpoints.length;
      out.push({ change: "added", what: place, to: `${n} ${n === 1 ? "endpoint" : "endpoints"}, ${weightWords(l.weight)}${restWords(l.rest)}` });
      continue;
    }
    if (was.weight !== l.weight) out.push({ change: "modified", what: place, from: weightWords(was.weight), to: weightWords(l.weight) });
    out.push(...compareRest(place, was.rest, l.rest));
    out.push(...compareEndpoints(place, was.endpoints, l.endpoints));
  }
  for (const [place, l] of old) {
    if (!now.has(place)) {
      const n = l.endpoints.length;
      out.push({ change: "removed", what: place, from: `${n} ${n === 1 ? "endpoint" : "endpoints"}` });
    }
  }
  out.push(...compareDrops(before?.drops ?? [], after.drops));
  walk("", before?.rest ?? {}, after.rest, out);
  return out;
}

function compareEndpoints(place: string, before: AssignedEndpoint[], after: AssignedEndpoint[]): Difference[] {
  const out: Difference[] = [];
  const old = byKey(before, (e) => e.address);
  const now = byKey(after, (e) => e.address);
  for (const [address, e] of now) {
    const what = `${place}, ${address}`;
    const was = old.get(address);
    if (!was) {
      out.push({ change: "added", what, to: endpointWords(e) + restWords(e.rest) });
      continue;
    }
    if (endpointWords(was) !== endpointWords(e)) out.push({ change: "modified", what, from: endpointWords(was), to: endpointWords(e) });
    out.push(...compareRest(what, was.rest, e.rest));
  }
  for (const address of old.keys()) if (!now.has(address)) out.push({ change: "removed", what: `${place}, ${address}` });
  return out;
}

function compareDrops(before: Assignment["drops"], after: Assignment["drops"]): Difference[] {
  const out: Difference[] = [];
  const old = byKey(before, (d) => d.category);
  const now = byKey(after, (d) => d.category);
  for (const [category, d] of now) {
    const what = `drop category ${JSON.stringify(category)}`;
    const was = old.get(category);
    if (!was) out.push({ change: "added", what, to: dropWords(d.perMillion) });
    else if (was.perMillion !== d.perMillion) out.push({ change: "modified", what, from: dropWords(was.perMillion), to: dropWords(d.perMillion) });
  }
  for (const category of old.keys()) if (!now.has(category)) out.push({ change: "removed", what: `drop category ${JSON.stringify(category)}` });
  return out;
}

const weightWords = (w: number | null) => (w === null ? "no weight" : `weight ${w}`);
const dropWords = (perMillion: number) => `${perMillion / 10_000} %`;
const endpointWords = (e: AssignedEndpoint) =>
  [e.hostname, `weight ${e.weight}`, e.health === "UNKNOWN" ? "" : e.health, e.also.length > 0 ? `also ${e.also.join(", ")}` : ""].filter(Boolean).join(", ");

/** Further fields of something new. */
const restWords = (rest: Message) => (Object.keys(rest).length > 0 ? `, with ${Object.keys(rest).join(" and ")}` : "");

function compareRest(what: string, before: Message, after: Message): Difference[] {
  const out: Difference[] = [];
  walk("", before, after, out);
  return out.map((d) => ({ ...d, what: `${what}, ${d.what}` }));
}

/** By key; duplicates are numbered. */
function byKey<T>(all: T[], key: (each: T) => string): Map<string, T> {
  const out = new Map<string, T>();
  for (const each of all) {
    let k = key(each);
    for (let n = 2; out.has(k); n++) k = `${key(each)} (${n})`;
    out.set(k, each);
  }
  return out;
}

/** The differences of two messages, by field path. */
export function compareMessages(before: Message | null, after: Message): Difference[] {
  if (!before) return [{ change: "added", what: "the whole resource" }];
  const out: Difference[] = [];
  walk("", before, after, out);
  return out;
}

function walk(path: string, before: Value | undefined, after: Value | undefined, out: Difference[]): void {
  if (isMessage(before) && isMessage(after)) {
    for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
      walk(path ? `${path}.${name}` : name, before[name], after[name], out);
    }
  } else if (Array.isArray(before) && Array.isArray(after)) {
    for (let i = 0; i < Math.max(before.length, after.length); i++) walk(`${path}[${i}]`, before[i], after[i], out);
  } else if (before === undefined) {
    out.push({ change: "added", what: path, to: brief(after) });
  } else if (after === undefined) {
    out.push({ change: "removed", what: path, from: brief(before) });
  } else if (written(before) !== written(after)) {
    out.push({ change: "modified", what: path, from: brief(before), to: brief(after) });
  }
}

/** The canonical form of a value: 64-bit and wrapped numbers have several forms. */
function written(v: Value): string {
  const inner = isMessage(v) && Object.keys(v).length === 1 && v.value !== undefined ? v.value : v;
  return typeof inner === "object" ? JSON.stringify(inner) : String(inner);
}

function brief(v: Value | undefined): string {
  const s = JSON.stringify(v) ?? "";
  return s.length > 80 ? `${s.slice(0, 79)}…` : s;
}
