// What happened, the newest first.

import { useEffect, useMemo, useState } from "preact/hooks";
import { get, says, withQuery } from "../api.ts";
import { plural } from "../format.ts";
import type { EventList, EventType, LbdEvent } from "../model.ts";
import { Alert, Live, Title, useNow } from "../parts/basics.tsx";
import { EventRows, eventTypes, eventWord } from "../parts/events.tsx";
import { replaceQuery } from "../route.ts";
import { useStream } from "../stream.ts";

const firstLoad = 1000;
const most = 5000;
const page = 200;

/** Those that are hidden at first: there are very many of them. */
const noisy: EventType[] = ["connection_changed", "circuit_breaker_opened", "circuit_breaker_closed"];

export function Events({ query }: { query: URLSearchParams }) {
  const [events, setEvents] = useState<LbdEvent[] | null>(null);
  const [error, setError] = useState("");
  const [cluster, setCluster] = useState(query.get("cluster") ?? "");
  const [types, setTypes] = useState<Set<string>>(() => {
    const asked = query.get("types")?.split(",").filter(Boolean);
    return new Set(asked?.length ? asked : eventTypes.filter((t) => !noisy.includes(t)));
  });
  const [limit, setLimit] = useState(firstLoad);
  const [shown, setShown] = useState(page);
  const now = useNow();

  const load = () => {
    get<EventList>(withQuery("v1/events", { limit: String(limit) })).then(
      (l) => {
        setEvents(l.events);
        setError("");
      },
      (e: unknown) => setError(says(e)),
    );
  };
  useEffect(load, [limit]);
  const live = useStream(
    "v1/events/watch",
    ["event", "resync"],
    (m) => {
      if (m.type === "resync") load();
      else {
        const e = m.data as LbdEvent;
        setEvents((known) => (known?.some((k) => k.id === e.id) ? known : [e, ...(known ?? [])].slice(0, most)));
      }
    },
    load,
  );

  const remember = (c: string, t: Set<string>) => {
    const isUsual = t.size === eventTypes.length - noisy.length && noisy.every((n) => !t.has(n));
    replaceQuery(["events"], { cluster: c, types: isUsual ? "" : [...t].join(",") });
  };
  const counts = useMemo(() => {
    const out: Record<string, number> = {};
    for (const e of events ?? []) out[e.type] = (out[e.type] ?? 0) + 1;
    return out;
  }, [events]);
  const offered = [...eventTypes, ...(Object.keys(counts) as EventType[]).filter((t) => !eventTypes.includes(t))];
  const chosen = useMemo(() => {
    const wanted = cluster.trim().toLowerCase();
    return (events ?? []).filter((e) => types.has(e.type) && (!wanted || (e.cluster ?? "").toLowerCase().includes(wanted)));
  }, [events, types, cluster]);

  return (
    <>
      <div class="top">
        <Title text="Events" />
        <p class="sums" role="status">{events && plural(chosen.length, "event")}</p>
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
              remember(e.currentTarget.value, types);
            }}
          />
        </label>
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
                  remember(cluster, next);
                }}
              />
              <span>
                {eventWord(t)} <b>{counts[t] ?? 0}</b>
              </span>
            </label>
          ))}
        </fieldset>
      </form>
      {events && chosen.length === 0 && <p>Nothing like that has happened since lbd started, as far as it remembers.</p>}
      <EventRows events={chosen.slice(0, shown)} withCluster today={false} />
      <p class="more">
        {chosen.length > shown && (
          <button type="button" onClick={() => setShown(shown + page)}>
            Show more
          </button>
        )}
        {events && events.length >= firstLoad && limit < most && (
          <button type="button" onClick={() => setLimit(most)}>
            Go further back
          </button>
        )}
      </p>
    </>
  );
}
