// Events, newest first.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, Refusal, says, withQuery } from "../api.ts";
import { EventLog, isAbout } from "../eventlog.ts";
import { count, dayAndClock, plural } from "../format.ts";
import type { EventList, EventType, LbdEvent } from "../model.ts";
import { Alert, Live, Title, useNow } from "../parts/basics.tsx";
import { EventRows, eventTypes, eventWord } from "../parts/events.tsx";
import { useQuestion } from "../question.ts";
import { replaceQuery } from "../route.ts";
import { isAnotherCluster } from "../session.ts";
import { useStream } from "../stream.ts";

const firstLoad = 1000;
const most = 5000;
const page = 200;

/** The maximum length of a cluster name. */
const longestName = 512;

/** Delay of a search after the last key, in milliseconds. */
const pause = 150;

/** Types that are hidden by default, because they are frequent. */
const noisy: EventType[] = ["connection_changed", "circuit_breaker_opened", "circuit_breaker_closed"];

/** How far back the page has searched for events of the types, of any cluster. */
interface Looked {
  /** What was asked. */
  of: string;
  oldest: LbdEvent | undefined;
  count: number;
  all: boolean;
}

export function Events({ query }: { query: URLSearchParams }) {
  const log = useRef(new EventLog(3 * most)).current;
  const [version, setVersion] = useState(0);
  const [last, setLast] = useState<Looked | null>(null);
  const [error, setError] = useState("");
  const [cluster, setCluster] = useState(query.get("cluster") ?? "");
  const [target, setTarget] = useState(query.get("target") ?? "");
  const [types, setTypes] = useState<Set<string>>(() => {
    const asked = query.get("types")?.split(",").filter(Boolean);
    return new Set(asked?.length ? asked : eventTypes.filter((t) => !noisy.includes(t)));
  });
  const [limit, setLimit] = useState(firstLoad);
  const [shown, setShown] = useState(page);
  const [wide] = useState(() => matchMedia("(min-width: 701px)").matches); // on a phone, the types would cover the events
  const now = useNow();
  const question = useQuestion();

  const type = [...types].sort();
  const name = cluster.trim();
  const of = JSON.stringify([type, name, target, limit]);
  const looked = last?.of === of ? last : null;
  const load = () => {
    if (type.length === 0) {
      question.drop();
      return;
    }
    // The last events, and those of the cluster or target, which other events may have evicted.
    const exact = name.length <= longestName ? name : "";
    const about = [{}, exact && { cluster: exact }, target && { target, cluster: exact }].filter((q) => typeof q === "object");
    question.ask(
      (signal) =>
        Promise.all(
          about.map((q) =>
            get<EventList>(withQuery("v1/events", { ...q, type, limit: String(limit) }), signal).catch((why: unknown): EventList => {
              // A caller of some clusters may not use the name, which may be a part of one.
              if (why instanceof Refusal && isAnotherCluster(why.problem) && Object.keys(q).length > 0) return { events: [] };
              throw why;
            }),
          ),
        ),
      (lists) => {
        log.remembered(lists.flatMap((l) => l.events));
        const newest = lists[0]?.events ?? [];
        setLast({ of, oldest: newest.at(-1), count: newest.length, all: newest.length < limit });
        setVersion((v) => v + 1);
        setError("");
      },
      (e) => setError(says(e)),
    );
  };
  const live = useStream(
    type.length > 0 ? withQuery("v1/events/watch", { type }) : null,
    ["event", "resync"],
    (m) => {
      if (m.type === "resync") {
        log.invalidate();
        load();
      } else {
        log.add([m.data as LbdEvent]);
        setVersion((v) => v + 1);
      }
    },
    load,
  );
  // A stream does not start with past events.
  useEffect(() => {
    const timer = setTimeout(load, last ? pause : 0);
    return () => clearTimeout(timer);
  }, [live.state === "live", of]);

  const remember = (c: string, t: Set<string>, of: string) => {
    const isUsual = t.size === eventTypes.length - noisy.length && noisy.every((n) => !t.has(n));
    replaceQuery(["events"], { cluster: c, target: of, types: isUsual ? "" : [...t].join(",") });
  };
  const about = useMemo(() => log.events.filter((e) => isAbout(e, { cluster, target })), [version, cluster, target]);
  const chosen = useMemo(() => about.filter((e) => types.has(e.type)), [about, types]);
  const counts = useMemo(() => {
    const out: Record<string, number> = {};
    for (const e of chosen) out[e.type] = (out[e.type] ?? 0) + 1;
    return out;
  }, [chosen]);
  const offered = [...eventTypes, ...type.filter((t) => !(eventTypes as string[]).includes(t))] as EventType[];

  return (
    <>
      <div class="top">
        <Title text="Events" />
        <p class="sums" role="status">{looked && plural(chosen.length, "event")}</p>
        <Live of={live} now={now} />
      </div>
      {error && <Alert>{error}</Alert>}
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Cluster{" "}
          <input
            type="search" value={cluster} placeholder="part of a name" autocomplete="off"
            onInput={(e) => {
              setCluster(e.currentTarget.value);
              remember(e.currentTarget.value, types, target);
            }}
          />
        </label>
        {target && (
          <span>
            of the tree of {target}{" "}
            <button
              type="button" class="link"
              onClick={() => {
                setTarget("");
                remember(cluster, types, "");
              }}
            >
              of every tree
            </button>
          </span>
        )}
        <details class="types" open={wide}>
          <summary>{type.length} of {offered.length} types</summary>
          <fieldset>
            <legend class="unseen">Types</legend>
            {offered.map((t) => (
              <label key={t} class="choice">
                <input
                  type="checkbox" checked={types.has(t)}
                  onChange={(e) => {
                    const next = new Set(types);
                    if (e.currentTarget.checked) next.add(t);
                    else next.delete(t);
                    setTypes(next);
                    remember(cluster, next, target);
                  }}
                />
                <span>
                  {eventWord(t)} {types.has(t) && <b>{count(counts[t] ?? 0)}</b>}
                </span>
              </label>
            ))}
          </fieldset>
        </details>
      </form>
      {type.length === 0 && <p>No type is selected.</p>}
      {!looked && type.length > 0 && !error && <p>Loading…</p>}
      {looked && type.length > 0 && chosen.length === 0 && <p>{nothing(looked, name, target)}</p>}
      <EventRows events={chosen.slice(0, shown)} withCluster today={false} />
      <p class="more">
        {chosen.length > shown && (
          <button type="button" onClick={() => setShown(shown + page)}>
            Show more
          </button>
        )}
        {looked && !looked.all && limit < most && (
          <button type="button" onClick={() => setLimit(most)}>
            Go further back
          </button>
        )}
        {looked?.oldest && !looked.all && chosen.length > 0 && <span>Searched: {lookedThrough(looked)}.</span>}
      </p>
    </>
  );
}

const lookedThrough = (l: Looked) => `the last ${count(l.count)} events of these types, back to ${l.oldest ? dayAndClock(Date.parse(l.oldest.time)) : ""}`;

/** What it means that nothing was found. */
function nothing(l: Looked, cluster: string, target: string): string {
  if (l.all) return "No matching event since lbd started, among the events that it keeps.";
  const nor = [cluster && "of a cluster with exactly this name", target && "in the tree of this target"].filter(Boolean).join(" ");
  return `No match in ${lookedThrough(l)}.${nor && ` lbd keeps no event ${nor}.`}`;
}
