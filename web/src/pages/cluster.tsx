// One cluster: why picks go where they go, and what is lost on the way.

import { Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { clusterPath, get, Refusal, says, withQuery } from "../api.ts";
import { count, percent, rate } from "../format.ts";
import { headline } from "../headline.ts";
import type { ClusterCounts, ClusterState, EventList, EventType, LbdEvent, SecurityState } from "../model.ts";
import { Ago, Alert, Live, State, Title, useNow } from "../parts/basics.tsx";
import { Chart, type Line } from "../parts/chart.tsx";
import { EventRows, marksOf } from "../parts/events.tsx";
import { Tree } from "../parts/tree.tsx";
import { History, perSecond } from "../rates.ts";
import { href } from "../route.ts";
import { useStream } from "../stream.ts";

/** How much of the past the charts show, and over what rates are taken, in milliseconds. */
const chartWindow = 10 * 60_000;
const leastWindow = 60_000;
const rateWindow = 10_000;
const eventsEvery = 2000;

const resultLines: Record<string, Line> = {
  ok: { label: "ok", color: "good" },
  dropped: { label: "dropped", color: "unwell", dash: [6, 3] },
  circuit_broken: { label: "circuit broken", color: "busy", dash: [2, 3] },
  no_ready_endpoint: { label: "no ready endpoint", color: "bad", dash: [8, 3, 2, 3] },
  pick_timeout: { label: "pick timeout", color: "bad", dash: [2, 2] },
  all_excluded: { label: "all excluded", color: "accent", dash: [4, 4] },
  cancelled: { label: "cancelled", color: "muted", dash: [1, 3] },
  shutting_down: { label: "shutting down", color: "muted", dash: [4, 2] },
};
const categoryColors = ["unwell", "accent", "busy", "bad", "good", "muted"];
/** What is marked above picks, what matters most first. */
const onPicks: EventType[] = ["priority_switched", "pushed", "file_accepted", "ejected", "unejected", "state_changed"];

/** Keeps what is known of a cluster's events, the newest first. */
function merge(known: LbdEvent[], more: LbdEvent[]): LbdEvent[] {
  const byId = new Map(known.map((e) => [e.id, e]));
  for (const e of more) byId.set(e.id, e);
  return [...byId.values()].sort((a, b) => b.id - a.id).slice(0, 2000);
}

export function Cluster({ name, target }: { name: string; target?: string }) {
  const [state, setState] = useState<ClusterState | null>(null);
  const [gone, setGone] = useState("");
  const [error, setError] = useState("");
  const [counts, setCounts] = useState<ClusterCounts | null>(null);
  const [events, setEvents] = useState<LbdEvent[]>([]);
  const history = useRef(new History(chartWindow + 60_000));
  const now = useNow();

  const newest = useRef({ timer: 0, at: 0, open: false });
  const askEvents = () => {
    const n = newest.current;
    if (n.timer) return;
    n.timer = window.setTimeout(
      () => {
        n.timer = 0;
        n.at = Date.now();
        get<EventList>(withQuery("v1/events", { cluster: name, target, limit: "300" })).then(
          (l) => setEvents((known) => merge(known, l.events)),
          () => undefined, // the stream says that lbd is away
        );
      },
      Math.max(0, n.at + eventsEvery - Date.now()),
    );
  };
  useEffect(() => {
    // What the sentence at the top needs may be older than what follows.
    for (const type of ["priority_switched", "state_changed", "pushed"]) {
      get<EventList>(withQuery("v1/events", { cluster: name, target, type, limit: "20" })).then(
        (l) => setEvents((known) => merge(known, l.events)),
        () => undefined,
      );
    }
    return () => clearTimeout(newest.current.timer);
  }, []);

  const takeState = (c: ClusterState) => {
    setState(c);
    setGone("");
    setError("");
    askEvents();
  };
  const live = useStream(
    withQuery(clusterPath(name, "/watch"), { target }),
    ["state", "counts", "gone"],
    (m) => {
      switch (m.type) {
        case "state":
          takeState(m.data as ClusterState);
          return;
        case "counts": {
          const c = m.data as ClusterCounts;
          history.current.add(c);
          setCounts(c);
          if (c.breaker && c.breaker.open !== newest.current.open) {
            newest.current.open = c.breaker.open;
            askEvents();
          }
          return;
        }
        default:
          setGone("The cluster is no more: it was removed while you looked.");
          askEvents();
          return "end";
      }
    },
    () => {
      get<ClusterState>(withQuery(clusterPath(name), { target })).then(takeState, (e: unknown) => {
        if (e instanceof Refusal && e.problem.status === 404) setGone(e.problem.detail);
        else setError(says(e));
      });
    },
  );

  const title = target ? `${name} in ${target}` : name;
  return (
    <div class="cluster">
      <div class="top">
        <Title text={title} />
        {state && <State of={state.state} />}
        <Live of={live} now={now} />
        <nav class="actions" aria-label="This cluster">
          <a href={href(["explain"], target ? { target } : { cluster: name })}>Explain a pick</a>
          <a href={href(["push"], { cluster: name })}>Push</a>
          <a href={href(["events"], { cluster: name, target })}>Events</a>
        </nav>
      </div>
      {(gone || error) && <Alert>{gone || error}</Alert>}
      {!state && !gone && !error && <p role="status">Asking lbd…</p>}
      {state && <Details state={state} counts={counts} history={history.current} events={events} now={now} />}
    </div>
  );
}

function Details({ state, counts, history, events, now }: {
  state: ClusterState;
  counts: ClusterCounts | null;
  history: History;
  events: LbdEvent[];
  now: number;
}) {
  const lately = history.samples.length > 0 ? history.over(rateWindow, now) : null;
  const h = headline(state, lately, events, now);
  const breaker = counts?.breaker ?? state.circuit_breaker;
  return (
    <>
      <div class={`headline ${h.tone}`} id="headline">
        <p class="first">{h.where}</p>
        <p>{h.why}</p>
        {h.lost.map((l) => (
          <p key={l.slice(0, 12)}>{l}</p>
        ))}
        {state.stale && <p>What is known of it may be old: its source is away.</p>}
      </div>
      <div class="halves">
        <section aria-labelledby="tree-title" class="where-part">
          <h2 id="tree-title">Where picks go</h2>
          <Tree state={state} picks={lately && lately.localities} now={now} />
          <Facts state={state} now={now} breaker={breaker} drops={counts?.drops} lately={lately?.drops} />
        </section>
        <section aria-labelledby="chart-title" class="charts">
          <h2 id="chart-title">The last minutes</h2>
          <Charts history={history} state={state} events={events} now={now} />
        </section>
      </div>
      <section aria-labelledby="event-title">
        <h2 id="event-title">What happened</h2>
        <Lately events={events} />
      </section>
    </>
  );
}

function Charts({ history, state, events, now }: { history: History; state: ClusterState; events: LbdEvent[]; now: number }) {
  const seen = new Set<string>(["ok", "dropped"]);
  const categories = new Set(state.drops.map((d) => d.category));
  for (const l of state.leaves ?? []) for (const d of l.drops) categories.add(d.category);
  for (const s of history.samples) {
    for (const [k, v] of Object.entries(s.picks)) if (v > 0) seen.add(k);
    for (const k of Object.keys(s.drops)) categories.add(k);
  }
  const results = Object.keys(resultLines).filter((r) => seen.has(r));
  const byCategory = [...categories].sort();
  const limited = history.samples.some((s) => s.maxRequests > 0) || state.circuit_breaker !== undefined;
  const picks = history.columns(results, (s, k) => perSecond(s, "picks", k), now);
  const drops = history.columns(byCategory, (s, k) => perSecond(s, "drops", k), now);
  const flight = history.columns(["in", "max"], (s, k) => (k === "in" ? s.inFlight : s.maxRequests), now);
  const marks = marksOf(events, onPicks);
  // lbd keeps no history: the charts begin when the page is opened.
  const same = { now, window: Math.min(chartWindow, Math.max(leastWindow, now - (history.since || now))) };
  return (
    <>
      <Chart {...same} title="Picks by result" unit="a second" lines={results.map((r) => resultLines[r]!)} x={picks.x} columns={picks.lines} marks={marks} format={rate} />
      {byCategory.length > 0 && (
        <Chart
          {...same} title="Drops by category" unit="a second"
          lines={byCategory.map((label, i) => ({ label, color: categoryColors[i % categoryColors.length]!, dash: i ? [4 + 2 * i, 3] : undefined, fill: i === 0 }))}
          x={drops.x} columns={drops.lines} marks={marks} format={rate}
        />
      )}
      {limited && (
        <Chart
          {...same} whole title="In flight against the limit" unit="requests"
          lines={[{ label: "in flight", color: "accent", fill: true }, { label: "limit", color: "bad", dash: [6, 4] }]}
          x={flight.x} columns={flight.lines} marks={marksOf(events, ["circuit_breaker_opened"])} format={(v) => count(v)}
        />
      )}
    </>
  );
}

function Facts({ state, now, breaker, drops, lately }: {
  state: ClusterState;
  now: number;
  breaker: { in_flight: number; max_requests: number; open: boolean } | undefined;
  drops?: Record<string, number>;
  lately?: Record<string, number>;
}) {
  const leaves = state.leaves ?? [];
  const categories = leaves.length > 0 ? leaves.flatMap((l) => l.drops.map((d) => ({ ...d, of: l.name }))) : state.drops.map((d) => ({ ...d, of: "" }));
  return (
    <dl class="facts">
      <div>
        <dt>Drops</dt>
        <dd>
          {categories.length === 0 && "no category"}
          {categories.map((d) => (
            <div key={d.of + d.category}>
              {d.category} {percent(d.per_million / 1e6)}
              {d.of && ` of ${d.of}`}, {count(drops?.[d.category] ?? d.dropped)} so far
              {lately && `, ${rate(lately[d.category] ?? 0)}/s`}
            </div>
          ))}
        </dd>
      </div>
      <div>
        <dt>Circuit breaker</dt>
        <dd>
          {breaker ? (
            <span class={breaker.open ? "warn" : ""}>
              {count(breaker.in_flight)} in flight of at most {count(breaker.max_requests)}
              {breaker.open && ": full, picks are refused"}
            </span>
          ) : leaves.length > 0 ? (
            leaves.map((l) => (
              <div key={l.name}>
                {l.name}: {count(l.circuit_breaker.in_flight)} of {count(l.circuit_breaker.max_requests)}
                {l.circuit_breaker.open && ", full"}
              </div>
            ))
          ) : (
            "none"
          )}
          {state.circuit_breaker && ` (limit from ${state.circuit_breaker.limit_from})`}
        </dd>
      </div>
      <div>
        <dt>Policy</dt>
        <dd>{state.policy ? breakable(state.policy) : "none: it cannot be used"}</dd>
      </div>
      <div>
        <dt>Source</dt>
        <dd>
          endpoints from {state.source}
          {state.dns_hostname && ` (${state.dns_hostname})`}, config from {state.config_source}
          {state.version && `, version ${state.version}`}, updated <Ago at={state.updated_at} now={now} />
          {state.stale && <span class="tag tone-busy">stale</span>}
        </dd>
      </div>
      <div>
        <dt>Connections</dt>
        <dd>
          {leaves.length > 0 ? (
            leaves.map((l) => <div key={l.name}>{l.name}: {l.security ? secured(l.security) : "by its own connect mode"}</div>)
          ) : (
            <>
              {state.connect_mode ? `${state.connect_mode}; a lost one is noticed within ${state.notice_time}` : "none"}
              {state.security ? <div>{secured(state.security)}</div> : state.connect_mode === "tls" && <div>{securedByMode}</div>}
            </>
          )}
        </dd>
      </div>
      {state.targets && state.targets.length > 0 && (
        <div>
          <dt>Targets</dt>
          <dd>
            {state.targets.map((t) => (
              <a key={t} href={href(["targets", t])}>{t} </a>
            ))}
          </dd>
        </div>
      )}
    </dl>
  );
}

/** Names of policies in one another, that lines may break between them. */
const breakable = (policy: string) => policy.split("/").map((p, i) => (i === 0 ? p : <Fragment key={i}>/<wbr />{p}</Fragment>));

/** How connections are secured, in words. */
function secured(s: SecurityState): string {
  const sent = [s.auto_host_sni && "the endpoint's hostname", s.sni].filter(Boolean).join(", else ");
  const borne = s.auto_sni_san_validation && sent ? "that name" : s.san && s.san.length > 0 ? s.san.join(" or ") : "any name";
  const out = [`trusts a certificate of ${s.root ? `the roots of ${s.root}` : "the system's roots"} that bears ${borne}`];
  if (sent) out.unshift(`asks for ${sent}`);
  if (s.identity) out.push(`shows the certificate of ${s.identity}`);
  return `TLS: ${out.join(", ")}`;
}

/** Of the connect mode tls alone. */
const securedByMode = "TLS: trusts a certificate of the system's roots that bears the endpoint's hostname, or the host of its address";

/** The last events without the many of connections; the breaker's are counted together. */
function Lately({ events }: { events: LbdEvent[] }) {
  const shown: LbdEvent[] = [];
  let opened = 0;
  for (const e of events) {
    if (e.type === "connection_changed" || e.type === "circuit_breaker_closed") continue;
    const last = shown.at(-1);
    if (e.type === "circuit_breaker_opened" && last?.type === "circuit_breaker_opened") {
      opened++;
      shown[shown.length - 1] = { ...last, says: `the circuit breaker was full ${opened + 1} times: picks were refused` };
      continue;
    }
    opened = 0;
    if (shown.push(e) >= 12) break;
  }
  return shown.length > 0 ? <EventRows events={shown} withCluster={false} today={false} /> : <p>Nothing yet.</p>;
}
