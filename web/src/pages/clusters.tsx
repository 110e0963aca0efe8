// Every cluster on one page.

import { useMemo, useRef, useState } from "preact/hooks";
import { allClusters, says } from "../api.ts";
import { count, percent, plural, rate } from "../format.ts";
import type { ClusterSummary, ClusterUpdate } from "../model.ts";
import { Ago, Alert, Bar, Live, State, Title, useNow } from "../parts/basics.tsx";
import { BigTable, type Column, type Sorting } from "../parts/table.tsx";
import { Pace } from "../rates.ts";
import { clusterHref, replaceQuery } from "../route.ts";
import { useStream } from "../stream.ts";

type Paces = Map<string, Pace>;

interface Row {
  c: ClusterSummary;
  picks: number;
  dropped: number;
  fill: number;
  age: number;
}

const filters: Record<string, { label: string; takes: (r: Row) => boolean }> = {
  all: { label: "all", takes: () => true },
  failing: { label: "failing", takes: (r) => r.c.state === "TRANSIENT_FAILURE" },
  waiting: { label: "not READY yet", takes: (r) => r.c.state === "CONNECTING" || r.c.state === "IDLE" },
  failedOver: { label: "failed over", takes: (r) => r.c.priority_in_use > 0 },
  dropping: { label: "dropping", takes: (r) => r.dropped > 0 },
  full: { label: "breaker full", takes: (r) => r.c.circuit_breaker?.open === true },
  stale: { label: "stale", takes: (r) => r.c.stale },
};

const severity: Record<string, number> = { TRANSIENT_FAILURE: 0, CONNECTING: 1, IDLE: 2, READY: 3 };

const keys: Record<string, (r: Row) => number | string> = {
  name: (r) => r.c.name,
  state: (r) => severity[r.c.state] ?? 4,
  priority: (r) => r.c.priority_in_use,
  ready: (r) => (r.c.endpoints.total ? r.c.endpoints.ready / r.c.endpoints.total : -1),
  picks: (r) => r.picks,
  drops: (r) => r.dropped,
  breaker: (r) => r.fill,
  source: (r) => r.c.source,
  age: (r) => r.age,
};

function compare(s: Sorting): (a: Row, b: Row) => number {
  const key = keys[s.by] ?? keys.name!;
  const sign = s.down ? -1 : 1;
  return (a, b) => {
    const x = key(a);
    const y = key(b);
    return x < y ? -sign : x > y ? sign : a.c.name < b.c.name ? -1 : a.c.name > b.c.name ? 1 : 0;
  };
}

export function Clusters({ query }: { query: URLSearchParams }) {
  const clusters = useRef(new Map<string, ClusterSummary>());
  const paces = useRef<Paces>(new Map());
  const [version, setVersion] = useState(0);
  const [error, setError] = useState("");
  const [loaded, setLoaded] = useState(false);
  const [search, setSearch] = useState(query.get("q") ?? "");
  const [filter, setFilter] = useState(query.get("show") ?? "all");
  const [sorting, setSorting] = useState<Sorting>({ by: query.get("by") ?? "name", down: query.get("down") === "true" });
  const now = useNow();

  const take = (changed: ClusterSummary[], removed: string[] = []) => {
    for (const c of changed) {
      clusters.current.set(c.name, c);
      if (!c.counts) continue;
      let pace = paces.current.get(c.name);
      if (!pace) paces.current.set(c.name, (pace = new Pace()));
      pace.add(c.counts);
    }
    for (const name of removed) {
      clusters.current.delete(name);
      paces.current.delete(name);
    }
    setLoaded(true);
    setError("");
    setVersion((v) => v + 1);
  };

  const live = useStream(
    "v1/clusters/watch",
    ["resync", "update"],
    (m) => {
      const update = m.data as ClusterUpdate;
      if (m.type === "resync") clusters.current = new Map();
      take(update.clusters, update.removed);
    },
    () => {
      allClusters().then(
        (all) => {
          clusters.current = new Map();
          take(all);
        },
        (e: unknown) => setError(says(e)),
      );
    },
  );

  const remember = (q: string, show: string, s: Sorting) =>
    replaceQuery(["clusters"], { q, show: show === "all" ? "" : show, by: s.by === "name" ? "" : s.by, down: s.down ? "true" : "" });

  const rows = useMemo(() => {
    const out: Row[] = [];
    for (const c of clusters.current.values()) {
      const pace = paces.current.get(c.name)?.at(now) ?? { picks: 0, dropped: 0 };
      const b = c.circuit_breaker;
      out.push({
        c, picks: pace.picks, dropped: pace.dropped,
        fill: b && b.max_requests > 0 ? b.in_flight / b.max_requests : b?.open ? 1 : 0,
        age: now - Date.parse(c.updated_at),
      });
    }
    return out;
  }, [version, now]);
  const shown = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const takes = (filters[filter] ?? filters.all!).takes;
    return rows.filter((r) => takes(r) && words.every((w) => r.c.name.toLowerCase().includes(w))).sort(compare(sorting));
  }, [rows, search, filter, sorting]);
  const sum = rows.reduce((a, r) => a + r.picks, 0);
  const lost = rows.reduce((a, r) => a + r.picks * r.dropped, 0);

  const columns: Column<Row>[] = [
    { id: "name", title: "Cluster", cell: (r) => <a href={clusterHref(r.c.name)}>{r.c.name}</a> },
    { id: "state", title: "State", cell: (r) => <State of={r.c.state} /> },
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
        const b = r.c.circuit_breaker;
        if (!b) return "–";
        return (
          <span class={`fill ${b.open ? "warn" : ""}`}>
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
    { id: "age", title: "Age", numeric: true, hint: "since its endpoints were last updated", cell: (r) => <Ago at={r.c.updated_at} now={now} suffix="" /> },
  ];

  return (
    <div class="overview">
      <div class="top">
        <Title text="Clusters" />
        <p class="sums">
          {loaded && (
            <>
              {plural(rows.length, "cluster")}, {rate(sum)} picks/s, {percent(sum > 0 ? lost / sum : 0)} dropped
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
                {f.label} <b>{count(rows.filter(f.takes).length)}</b>
              </span>
            </label>
          ))}
        </fieldset>
        <span class="unseen" role="status">
          {loaded && (search || filter !== "all") ? `${plural(shown.length, "cluster")} shown` : ""}
        </span>
      </form>
      <BigTable
        label="Clusters" columns={columns} rows={shown} rowKey={(r) => r.c.name} sorting={sorting}
        onSort={(s) => {
          setSorting(s);
          remember(search, filter, s);
        }}
        empty={
          !loaded ? "Asking lbd…" : rows.length > 0 ? "No cluster is like that." : (
            <>
              There is no cluster yet. <a href="#/push">Push</a> the endpoints of one.
            </>
          )
        }
      />
    </div>
  );
}
