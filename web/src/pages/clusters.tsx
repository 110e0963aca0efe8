// Every cluster on one page.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { allClusters, says } from "../api.ts";
import * as clock from "../clock.ts";
import { count, percent, plural, rate } from "../format.ts";
import type { ClusterSummary, ClusterUpdate } from "../model.ts";
import { filters, Overview, type Row, type Sorting } from "../overview.ts";
import { Ago, Alert, Bar, Live, State, Title, useNow } from "../parts/basics.tsx";
import { BigTable, type Column } from "../parts/table.tsx";
import { useQuestion } from "../question.ts";
import { clusterHref, leaveAt, leftAt, replaceQuery } from "../route.ts";
import { knownUntil, useStream } from "../stream.ts";

/** Rates fall without a message, too: they are looked at after so long, in milliseconds. */
const quiet = 1500;

export function Clusters({ query }: { query: URLSearchParams }) {
  const overview = useRef(new Overview()).current;
  const [version, setVersion] = useState(0);
  const [error, setError] = useState("");
  const [loaded, setLoaded] = useState(false);
  const [search, setSearch] = useState(query.get("q") ?? "");
  const [filter, setFilter] = useState(query.get("show") ?? "all");
  const [sorting, setSorting] = useState<Sorting>({ by: query.get("by") ?? "name", down: query.get("down") === "true" });
  const begin = useRef(leftAt()).current;
  const now = useNow();
  const question = useQuestion();
  const last = useRef(0);

  const show = () => {
    last.current = clock.now();
    overview.tick(last.current);
    setVersion((v) => v + 1);
  };
  const take = (changed: ClusterSummary[], removed?: string[]) => {
    overview.take(changed, removed);
    setLoaded(true);
    setError("");
    show();
  };
  useEffect(() => {
    if (live.state === "live" && overview.busy && now - last.current > quiet) show();
  }, [now]);

  const live = useStream(
    "v1/clusters/watch",
    ["resync", "update"],
    (m) => {
      const update = m.data as ClusterUpdate;
      if (m.type === "resync") overview.clear();
      take(update.clusters, update.removed);
    },
    () => {
      question.ask(
        allClusters,
        (all) => {
          overview.clear();
          take(all);
        },
        (e) => setError(says(e)),
      );
    },
    (l) => {
      if (l.state !== "live") return;
      question.drop();
      setError("");
      overview.opened();
    },
  );

  const at = knownUntil(live, now);
  const remember = (q: string, show: string, s: Sorting) =>
    replaceQuery(["clusters"], { q, show: show === "all" ? "" : show, by: s.by === "name" ? "" : s.by, down: s.down ? "true" : "" });

  const sums = useMemo(() => overview.sums(), [version]);
  const shown = useMemo(() => overview.shown(search, filter, sorting), [version, search, filter, sorting]);

  const columns: Column<Row>[] = [
    { id: "name", title: "Cluster", cell: (r) => <a href={clusterHref(r.c.name)} title={r.c.name} onClick={() => leaveAt(r.name)}>{r.c.name}</a> },
    {
      id: "state", title: "State",
      cell: (r) => (
        <>
          <State of={r.c.state} />
          {/* Where there is no room for their columns. */}
          {r.c.priority_in_use > 0 && <span class="tag tone-busy only-narrow">priority {r.c.priority_in_use}</span>}
          {r.c.stale && <span class="tag tone-busy only-narrow">stale</span>}
        </>
      ),
    },
    {
      id: "priority", title: "Priority", numeric: true, hint: "the priority in use: 0 is the first choice",
      cell: (r) => <span class={r.c.priority_in_use > 0 ? "warn" : ""}>{r.c.priority_in_use < 0 ? "none" : r.c.priority_in_use}</span>,
    },
    {
      id: "ready", title: "Ready", numeric: true, hint: "endpoints that are READY, of all of its priorities",
      cell: (r) => `${count(r.c.endpoints.ready)} / ${count(r.c.endpoints.total)}`,
    },
    { id: "picks", title: "Picks/s", numeric: true, cell: (r) => rate(r.picks) },
    {
      id: "drops", title: "Dropped", numeric: true, hint: "the part of its picks that drop categories take",
      cell: (r) => <span class={r.dropped > 0 ? "warn" : ""}>{percent(r.dropped)}</span>,
    },
    {
      id: "breaker", title: "Breaker", numeric: true, hint: "requests in flight of at most so many",
      cell: (r) => {
        const b = r.breaker;
        if (!b) return "–";
        return (
          <span class={`fill ${b.open ? "warn" : ""}`} title={b.of && `the fullest of its leaves: ${b.of}`}>
            {b.open ? "full " : ""}
            {count(b.in_flight)} / {count(b.max_requests)} <Bar part={r.fill} tone={b.open ? "bad" : ""} />
          </span>
        );
      },
    },
    {
      id: "source", title: "Source",
      cell: (r) => (
        <>
          {r.c.source}
          {r.c.stale && <span class="tag tone-busy">stale</span>}
        </>
      ),
    },
    { id: "age", title: "Age", numeric: true, hint: "since its endpoints were last updated", cell: (r) => <Ago at={r.c.updated_at} now={at} suffix="" /> },
  ];

  return (
    <div class={`overview ${live.state === "live" ? "" : "old"}`}>
      <div class="top">
        <Title text="Clusters" />
        <p class="sums">
          {loaded && (
            <>
              {plural(overview.size, "cluster")}, {rate(sums.picks)} picks/s, {percent(sums.dropped)} dropped
            </>
          )}
        </p>
        <Live of={live} now={now} />
      </div>
      {error && <Alert>{error}</Alert>}
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Search{" "}
          <input
            type="search" value={search} placeholder="part of a name" autocomplete="off"
            onInput={(e) => {
              setSearch(e.currentTarget.value);
              remember(e.currentTarget.value, filter, sorting);
            }}
          />
        </label>
        <fieldset>
          <legend class="unseen">Show</legend>
          {Object.entries(filters).map(([id, f]) => (
            <label key={id} class="choice">
              <input
                type="radio" name="show" checked={filter === id}
                onChange={() => {
                  setFilter(id);
                  remember(search, id, sorting);
                }}
              />
              <span>
                {f.label} <b>{count(sums.counts[id] ?? 0)}</b>
              </span>
            </label>
          ))}
        </fieldset>
        <span class="unseen" role="status">
          {loaded && (search || filter !== "all") ? `${plural(shown.length, "cluster")} shown` : ""}
        </span>
      </form>
      <BigTable
        label="Clusters" begin={begin} columns={columns} rows={shown} rowKey={(r) => r.name} sorting={sorting}
        onSort={(s) => {
          setSorting(s);
          remember(search, filter, s);
        }}
        empty={
          !loaded ? "Asking lbd…" : overview.size > 0 ? "No cluster is like that." : (
            <>
              There is no cluster yet. <a href="#/push">Push</a> the endpoints of one.
            </>
          )
        }
      />
    </div>
  );
}
