// The list of clusters.

import { Fragment } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { allClusters, says } from "../api.ts";
import { limitOf } from "../breaker.ts";
import * as clock from "../clock.ts";
import { brief, count, percent, plural, rate, span } from "../format.ts";
import type { ClusterSummary, ClusterUpdate } from "../model.ts";
import { filters, firstSorting, losses, Overview, refused, type Row, serving, type Sorting, success } from "../overview.ts";
import { Ago, Alert, Bar, Live, State, Title, useNow } from "../parts/basics.tsx";
import { OverlayTag } from "../parts/overlays.tsx";
import { BigTable, type Column } from "../parts/table.tsx";
import { useQuestion } from "../question.ts";
import type { PaceNow } from "../rates.ts";
import { resultWords } from "../results.ts";
import { clusterHref, href, leaveAt, leftAt, replaceQuery } from "../route.ts";
import { knownUntil, useStream } from "../stream.ts";

/** The interval, in milliseconds, at which rates are updated without messages. */
const quiet = 1500;

export function Clusters({ query }: { query: URLSearchParams }) {
  const overview = useRef(new Overview()).current;
  const [version, setVersion] = useState(0);
  const [error, setError] = useState("");
  const [loaded, setLoaded] = useState(false);
  const [search, setSearch] = useState(query.get("q") ?? "");
  const [filter, setFilter] = useState(query.get("show") ?? "all");
  const [sorting, setSorting] = useState<Sorting>(query.has("by") ? { by: query.get("by")!, down: query.get("down") === "true" } : firstSorting);
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
    replaceQuery(["clusters"], {
      q, show: show === "all" ? "" : show,
      by: s.by === firstSorting.by && !s.down ? "" : s.by, down: s.down ? "true" : "",
    });

  const sums = useMemo(() => overview.sums(), [version]);
  const shown = useMemo(() => overview.shown(search, filter, sorting), [version, search, filter, sorting]);

  const columns: Column<Row>[] = [
    { id: "name", title: "Cluster", cell: (r) => <a href={clusterHref(r.c.name)} title={r.c.name} onClick={() => leaveAt(r.name)}>{r.c.name}</a> },
    {
      id: "state", title: "State", hint: "worst first",
      cell: (r) => (
        <>
          <State of={r.c.state} />
          <OverlayTag of={r.c.overlay_count} />
          <Reasons of={r.c} at={at} />
          {/* For narrow screens without these columns. */}
          {r.c.priority_in_use > 0 && <span class="tag tone-busy only-narrow">failed over to {r.c.priority_in_use}</span>}
          {r.c.stale && <span class="tag tone-busy only-narrow">stale</span>}
        </>
      ),
    },
    {
      id: "priority", title: "Priority", numeric: true, hint: "the priority in use: 0 is the first choice",
      cell: (r) => (
        <>
          {r.c.priority_in_use > 0 && <span class="tag tone-busy">failed over</span>}{" "}
          <span class={r.c.priority_in_use > 0 ? "warn" : ""}>{r.c.priority_in_use < 0 ? "none" : r.c.priority_in_use}</span>
        </>
      ),
    },
    {
      id: "ready", title: "Ready", numeric: true, hint: "READY endpoints of all endpoints of the priority in use; then the number in other priorities",
      cell: (r) => <Ready r={r} />,
    },
    { id: "picks", title: "Picks/s", numeric: true, cell: (r) => rate(r.picks) },
    {
      id: "success", title: "Success", numeric: true, hint: "share of its picks that get an endpoint",
      cell: (r) => <Success of={r} />,
    },
    {
      id: "losses", title: "Refused and dropped", hint: "picks per second that get no endpoint, by reason, most frequent first",
      cell: (r) => <Losses of={r.results} most={1} />,
    },
    {
      id: "breaker", title: "Breaker", numeric: true, hint: "requests in flight and their limit",
      cell: (r) => {
        const b = r.breaker;
        if (!b) return "–";
        return (
          <span class={`fill ${b.open ? "warn" : ""}`} title={b.of && `the fullest of its leaves: ${b.of}`}>
            {b.open ? "full " : ""}
            {count(b.in_flight)} / {count(limitOf(b))} <Bar part={r.fill} tone={b.open ? "bad" : ""} />
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
          {loaded && plural(overview.size, "cluster")}
        </p>
        <Live of={live} now={now} />
      </div>
      {loaded && <Vitals sums={sums} />}
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
            <label key={id} class={`choice ${f.tone && sums.counts[id] ? `has tone-of-${f.tone}` : ""}`}>
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
        label="Clusters" begin={begin} columns={columns} rows={shown} rowKey={(r) => r.name} rowTone={toneOf} sorting={sorting}
        onSort={(s) => {
          setSorting(s);
          remember(search, filter, s);
        }}
        empty={
          !loaded ? (live.state === "refused" ? "" : "Loading…") : overview.size > 0 ? "No cluster matches." : (
            <>
              There is no cluster yet. <a href="#/push">Push</a> the endpoints of one.
            </>
          )
        }
      />
    </div>
  );
}

/** Why picks or requests fail, with a link to the checks, and what else is not as its source has it. */
function Reasons({ of, at }: { of: ClusterSummary; at: number }) {
  return (
    <>
      {of.trouble && (
        <p class="bad">
          {brief(of.trouble.cause)}
          {of.trouble.since && `, for ${span(at - Date.parse(of.trouble.since))}`} <a href={href(["clusters", of.name], { target: of.trouble.target, checks: "true" })}>Checks</a>
        </p>
      )}
      {of.notes?.map((n) => <p key={n} class="of">{n}</p>)}
    </>
  );
}

/** The color at the edge of a row with problems. */
const toneOf = (r: Row) => (r.trouble >= 70 ? "bad" : r.trouble >= 40 ? "busy" : "");

/** The totals of all clusters: picks, the part that succeeds, and reasons of the others. */
function Vitals({ sums }: { sums: PaceNow }) {
  return (
    <dl class="vitals" aria-label="All clusters">
      <div>
        <dt>Picks</dt>
        <dd>{rate(sums.picks)}/s</dd>
      </div>
      <div>
        <dt>Success</dt>
        <dd><Success of={sums} /></dd>
      </div>
      <div>
        <dt>Refused and dropped</dt>
        <dd><Losses of={sums.results} most={4} /></dd>
      </div>
    </dl>
  );
}

/** The part of picks that succeed. Configured drops have a weaker color. */
function Success({ of }: { of: PaceNow }) {
  const part = success(of);
  if (part === null) return <span class="of">no picks</span>;
  const tone = refused(of) >= 0.05 ? "bad" : part < 1 && losses(of.results).length > 0 ? "unwell" : "good";
  return <span class={`success ${tone}`}>{percent(part)}</span>;
}

/** Picks per second that get no endpoint, by reason. */
function Losses({ of, most }: { of: Record<string, number>; most: number }) {
  const all = losses(of);
  if (all.length === 0) return <span class="of">none</span>;
  const words = ([result, n]: [string, number]) => `${resultWords(result)} ${rate(n)}/s`;
  return (
    <span title={all.map(words).join(", ")}>
      {all.slice(0, most).map(([result, n], i) => (
        <Fragment key={result}>
          {i > 0 && ", "}
          <span class={result === "dropped" || result === "cancelled" ? "unwell" : "bad"}>{words([result, n])}</span>
        </Fragment>
      ))}
      {all.length > most && <span class="of">, {plural(all.length - most, "other reason")}</span>}
    </span>
  );
}

/** READY endpoints of the priority in use, and the number in other priorities. */
function Ready({ r }: { r: Row }) {
  const now = serving(r.c);
  const others = r.c.endpoints.total - now.total;
  return (
    <>
      <span class={now.total > 0 && now.ready === 0 ? "success bad" : now.ready < now.total ? "warn" : ""}>{count(now.ready)} / {count(now.total)}</span>
      {others > 0 && <span class="of" title="endpoints of the other priorities"> +{count(others)}</span>}
    </>
  );
}
