// Events, as a list and as marks on a time axis; changes of the history as marks.

import { brief, clock, dayAndClock } from "../format.ts";
import type { EventType, HistoryEntry, LbdEvent } from "../model.ts";
import { clusterHref, href } from "../route.ts";
import type { Mark } from "./chart.tsx";

interface Words {
  letter: string;
  color: string;
  word: string;
}

const words: Partial<Record<EventType, Words>> = {
  priority_switched: { letter: "P", color: "bad", word: "priority" },
  leaf_skipped: { letter: "L", color: "bad", word: "leaf skipped" },
  leaf_restored: { letter: "l", color: "muted", word: "leaf restored" },
  state_changed: { letter: "S", color: "busy", word: "state" },
  connection_changed: { letter: "C", color: "muted", word: "connection" },
  ejected: { letter: "E", color: "unwell", word: "ejected" },
  unejected: { letter: "e", color: "unwell", word: "unejected" },
  circuit_breaker_opened: { letter: "B", color: "busy", word: "breaker full" },
  circuit_breaker_closed: { letter: "b", color: "muted", word: "breaker not full" },
  pushed: { letter: "U", color: "accent", word: "push" },
  overlay_set: { letter: "O", color: "busy", word: "overlay set" },
  overlay_ended: { letter: "o", color: "accent", word: "overlay ended" },
  push_refused: { letter: "R", color: "bad", word: "push refused" },
  file_refused: { letter: "R", color: "bad", word: "file refused" },
  file_accepted: { letter: "F", color: "accent", word: "file" },
  file_changed: { letter: "U", color: "accent", word: "file changed" },
  change_held: { letter: "H", color: "bad", word: "change held" },
  leases_ended: { letter: "L", color: "accent", word: "leases ended" },
  streams_ended: { letter: "L", color: "bad", word: "streams ended" },
  change_permitted: { letter: "H", color: "accent", word: "change permitted" },
  covered_changed: { letter: "U", color: "muted", word: "covered source changed" },
  xds_changed: { letter: "U", color: "muted", word: "xDS changed" },
  dns_changed: { letter: "U", color: "muted", word: "DNS changed" },
  store_failing: { letter: "D", color: "bad", word: "store failing" },
  store_recovered: { letter: "D", color: "accent", word: "store recovered" },
  xds_connected: { letter: "X", color: "muted", word: "xDS connected" },
  xds_disconnected: { letter: "X", color: "bad", word: "xDS disconnected" },
  xds_rejected: { letter: "N", color: "bad", word: "xDS rejected" },
  xds_resource_error: { letter: "N", color: "bad", word: "xDS resource error" },
  xds_fell_back: { letter: "X", color: "busy", word: "xDS fell back" },
  xds_returned: { letter: "X", color: "muted", word: "xDS returned" },
  shortage_began: { letter: "L", color: "bad", word: "shortage began" },
  shortage_ended: { letter: "L", color: "muted", word: "shortage ended" },
};

/** The types in the order in which they are offered; there may be others. */
export const eventTypes = Object.keys(words) as EventType[];

const wordsOf = (t: EventType): Words => words[t] ?? { letter: "?", color: "muted", word: t.replaceAll("_", " ") };
export const eventWord = (t: EventType) => wordsOf(t).word;

/** The color of an event. A first priority, or a return to a higher one, is no fault. */
export const colorOf = (e: LbdEvent) =>
  e.type === "priority_switched" && (e.from === "none" || Number(e.to) < Number(e.from)) ? "muted" : wordsOf(e.type).color;

/**
 * Events of some types as marks of a chart. Within a second, only the first of the types is
 * marked. Events and marks are sorted newest first.
 */
export function marksOf(events: LbdEvent[], types: EventType[]): Mark[] {
  const out: (Mark & { rank: number })[] = [];
  for (const e of events) {
    const rank = types.indexOf(e.type);
    if (rank < 0) continue;
    const t = Date.parse(e.time);
    const mark = { t, letter: wordsOf(e.type).letter, color: colorOf(e), says: sentence(e), rank };
    const before = out.at(-1);
    if (!before || before.t - t >= 1000) out.push(mark);
    else if (rank < before.rank) out[out.length - 1] = mark;
  }
  return out;
}

/** Changes of the history as marks of a chart, in their order. */
export const marksOfChanges = (changes: HistoryEntry[]): Mark[] =>
  changes.map((c) => {
    const { letter, color } = wordsOf(c.source === "server" ? "xds_changed" : "pushed");
    const says = [c.says || "changed", c.message && `“${c.message}”`, c.caller && `by ${c.caller}`].filter(Boolean).join(", ");
    return { t: Date.parse(c.time), letter, color, says: brief(says), href: href(["history", String(c.index)]) };
  });

/** An event as a sentence with its details. */
export function sentence(e: LbdEvent): string {
  const about = e.address ? `${e.address}: ` : e.file ? `${e.file}: ` : "";
  const error = e.error && !e.says.includes(e.error) ? ` (${e.error})` : "";
  const by = e.by ? `, by ${e.by}` : "";
  return brief(`${about}${e.says}${error}${by}`);
}

export function EventRows({ events, withCluster, today }: { events: LbdEvent[]; withCluster: boolean; today: boolean }) {
  return (
    <ol class="events">
      {events.map((e) => (
        <li key={e.id} class={`event ${e.type}`}>
          <time dateTime={e.time} title={dayAndClock(Date.parse(e.time))}>
            {today ? clock(Date.parse(e.time)) : dayAndClock(Date.parse(e.time))}
          </time>
          <span class={`tag tone-${colorOf(e)}`}>{eventWord(e.type)}</span>
          <span class="says">
            {withCluster && e.cluster && (
              <>
                <a href={clusterHref(e.cluster, e.target)}>{e.cluster}</a>{" "}
              </>
            )}
            {sentence(e)}
            {e.target && <span class="of"> in {e.target}</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}
