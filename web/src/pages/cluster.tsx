// One cluster: where picks go and why, and which are lost.

import { Fragment } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { clusterPath, get, Refusal, says, withQuery } from "../api.ts";
import { limitOf } from "../breaker.ts";
import { EventLog, inTree } from "../eventlog.ts";
import { brief, count, percent, rate } from "../format.ts";
import { headline } from "../headline.ts";
import type { ChangeList, ClusterCounts, ClusterHistory, ClusterState, EventList, EventType, HistoryEntry, LbdEvent, SecurityState } from "../model.ts";
import { Ago, Alert, Live, State, Title, useNow } from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { EventRows, eventTypes, marksOf, marksOfChanges } from "../parts/events.tsx";
import { Checks } from "../parts/checks.tsx";
import { Overlays } from "../parts/overlays.tsx";
import { Shares } from "../parts/share.tsx";
import { Tree } from "../parts/tree.tsx";
import { useQuestion } from "../question.ts";
import { dropKey, History, perSecond } from "../rates.ts";
import { inOrder, resultLine } from "../results.ts";
import { href, parsePlace } from "../route.ts";
import { useStream } from "../stream.ts";

/** The time ranges of charts, with the step of the history. */
const windows = [
  { label: "10 min", ms: 10 * 60_000, step: "1s" },
  { label: "1 h", ms: 3_600_000, step: "10s" },
  { label: "6 h", ms: 6 * 3_600_000, step: "10s" },
];
/** The minimum time range of charts, and the window of rates, in milliseconds. */
const leastWindow = 60_000;
const rateWindow = 10_000;
const eventsEvery = 2000;

const categoryColors = ["unwell", "accent", "busy", "bad", "good", "muted"];
/** Events that are marked in charts of picks, beside changes of resources; most important first. */
const onPicks: EventType[] = ["priority_switched", "leaf_skipped", "leaf_restored", "ejected", "unejected", "state_changed"];

/** Requested types. Connection events are frequent, and the tree shows them; breaker events are requested separately. */
const asked: EventType[] = eventTypes.filter((t) => !["connection_changed", "circuit_breaker_opened", "circuit_breaker_closed"].includes(t));

export function Cluster({ name, target }: { name: string; target?: string }) {
  const [state, setState] = useState<ClusterState | null>(null);
  const [gone, setGone] = useState("");
  const [error, setError] = useState("");
  const [counts, setCounts] = useState<ClusterCounts | null>(null);
  const [version, setVersion] = useState(0);
  const [changes, setChanges] = useState<HistoryEntry[]>([]);
  const log = useRef(new EventLog(2000)).current;
  const history = useRef(new History(windows.at(-1)!.ms + 60_000)).current;
  const priority = useRef<number | undefined>(undefined);
  const [chosen, setChosen] = useState(0);
  const now = useNow();
  const question = useQuestion();
  const past = useQuestion();
  const unfilled = useRef(true);
  const newest = useRef({ timer: 0, at: 0, open: false });

  const takeEvents = (query: Record<string, string | string[] | undefined>) =>
    get<EventList>(withQuery("v1/events", { cluster: name, ...query })).then(
      (l) => {
        log.add(l.events);
        setVersion((v) => v + 1);
      },
      () => undefined, // the stream reports the error
    );
  const takeChanges = () =>
    get<ChangeList>(withQuery("v1/history", { cluster: name, limit: "100" })).then(
      (l) => setChanges(l.changes),
      () => undefined, // as above
    );
  const askEvents = () => {
    const n = newest.current;
    if (n.timer) return;
    n.timer = window.setTimeout(
      () => {
        n.timer = 0;
        n.at = Date.now();
        void takeChanges();
        void takeEvents({ type: asked, limit: "300" });
        void takeEvents({ type: "circuit_breaker_opened", limit: "100" });
        // Events of other trees may be frequent.
        if (target) void takeEvents({ type: asked, target, limit: "300" });
      },
      Math.max(0, n.at + eventsEvery - Date.now()),
    );
  };
  useEffect(() => () => clearTimeout(newest.current.timer), []);
  const events = useMemo(() => log.events.filter((e) => inTree(e, target ?? "")), [version]);

  /** Requests the history of the time without a stream. */
  const recall = () =>
    past.ask(
      (signal) =>
        Promise.all(
          [...new Set([windows[0]!, windows[chosen]!])].map(({ ms, step }) =>
            get<ClusterHistory>(withQuery(clusterPath(name, "/history"), { target, step, since: `${ms / 1000}s` }), signal),
          ),
        ),
      (kept) => {
        for (const h of kept) history.fill(h); // the finer steps first
        setVersion((v) => v + 1);
      },
      () => undefined, // the gap stays
    );
  useEffect(() => {
    if (chosen > 0 && live.state === "live") recall();
  }, [chosen]);

  const isThere = () => {
    setGone("");
    setError("");
  };
  const takeState = (c: ClusterState) => {
    setState(c);
    priority.current = c.priority_in_use;
    isThere();
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
          history.add(c, priority.current);
          setCounts(c);
          if (unfilled.current) {
            unfilled.current = false;
            recall();
          }
          isThere(); // an unchanged state is not sent again
          const open = [c.breaker, ...(c.leaves ?? []).map((l) => l.breaker)].some((b) => b?.open);
          if (open !== newest.current.open) {
            newest.current.open = open;
            askEvents();
          }
          return;
        }
        default:
          setGone("The cluster was removed while this page was open.");
          askEvents();
      }
    },
    () => {
      question.ask(
        (signal) => get<ClusterState>(withQuery(clusterPath(name), { target }), signal),
        takeState,
        (e) => {
          const isGone = e instanceof Refusal && e.problem.status === 404;
          if (isGone) setGone((known) => known || e.message);
          setError(isGone ? "" : says(e));
        },
      );
    },
    (l) => {
      if (l.state === "live") {
        question.drop();
        askEvents();
        unfilled.current = true; // until the first counts
      } else {
        history.lost(l.since);
      }
    },
  );
  const until = live.state === "live" ? null : live.since;

  const title = target ? `${name} in ${target}` : name;
  return (
    <div class={`cluster ${until === null ? "" : "old"}`}>
      <div class="top">
        <Title text={title} />
        {state && !gone && (until === null ? <State of={state.state} /> : <span class="state idle">was {state.state}</span>)}
        <Live of={gone && !error && until !== null ? { state: "waiting", since: until } : live} now={now} />
        <nav class="actions" aria-label="This cluster">
          <a href={href(["explain"], target ? { target } : { cluster: name })}>Explain a pick</a>
          <a href={href(["push"], { cluster: name })}>Push</a>
          <a href={href(["events"], { cluster: name, target })}>Events</a>
        </nav>
      </div>
      {(error || gone) && <Alert>{error || gone}</Alert>}
      {!state && !gone && !error && live.state !== "refused" && <p role="status">Loading…</p>}
      {state && !gone && <Details state={state} counts={counts} history={history} events={events} changes={changes} now={now} until={until} chosen={chosen} onChoose={setChosen} />}
      {state && gone && <Happened events={events} />}
    </div>
  );
}

function Details({ state, counts, history, events, changes, now, until, chosen, onChoose }: {
  state: ClusterState;
  counts: ClusterCounts | null;
  history: History;
  events: LbdEvent[];
  changes: HistoryEntry[];
  now: number;
  /** Until when all is known; null where that is now. */
  until: number | null;
  /** How much of the past the charts show, as an index of windows. */
  chosen: number;
  onChoose: (window: number) => void;
}) {
  const at = until ?? now;
  const lately = history.over(rateWindow, at);
  const h = headline(state, { lately, now, until });
  return (
    <>
      <div class={`headline ${h.tone}`} id="headline">
        <p class="first">{h.where}</p>
        <p>{h.why}</p>
        {h.unwell && <p>{h.unwell}</p>}
        {h.kept && <p>{h.kept}</p>}
        {h.lost.map((l) => (
          <p key={l.slice(0, 12)}>{l}</p>
        ))}
        {state.covers?.map((c) => (
          <p key={c.resource}>
            <span class="tag tone-busy">covered</span> {c.resource} of {sourceWords[c.source] ?? c.source} is not in use: a {c.by}
            {c.author && ` by ${c.author}`} covers it since <Ago at={c.since} now={now} suffix="" />; {c.differs ? `from it to what is in use: ${c.differs}` : "the two do not differ"}
          </p>
        ))}
        {state.stale && <p>This may be outdated: the source of the cluster is unreachable.</p>}
      </div>
      {state.overlays && state.overlays.length > 0 && <Overlays of={state.overlays} now={now} />}
      <div class="halves">
        <section aria-labelledby="tree-title" class="where-part">
          <h2 id="tree-title">Where picks go</h2>
          <Tree state={state} lately={lately} window={rateWindow} now={at} />
          <Facts state={state} now={at} counts={counts} lately={lately?.drops} />
        </section>
        <section aria-labelledby="chart-title" class="charts">
          <div class="chart-head">
            <h2 id="chart-title">History</h2>
            <fieldset>
              <legend class="unseen">Time that the charts show</legend>
              {windows.map((w, i) => (
                <label key={w.label} class="choice">
                  <input type="radio" name="window" checked={chosen === i} onChange={() => onChoose(i)} />
                  <span>{w.label}</span>
                </label>
              ))}
            </fieldset>
          </div>
          <Charts history={history} state={state} events={events} changes={changes} now={now} until={at} most={windows[chosen]!.ms} />
        </section>
      </div>
      <Checks cluster={state.name} now={parsePlace(location.hash).query.has("checks")} />
      <Happened events={events} />
    </>
  );
}

function Happened({ events }: { events: LbdEvent[] }) {
  return (
    <section aria-labelledby="event-title">
      <h2 id="event-title">Events</h2>
      <Lately events={events} />
    </section>
  );
}

const sourceWords: Record<string, string> = { file: "a resource file", ads: "the management server", cache: "the management server of an earlier run" };

/** Whether others than the tree that is shown may pick from what is limited and dropped. */
const isShared = (c: ClusterState) => c.target !== undefined || (c.targets ?? []).length > 0 || (c.leaves ?? []).length > 0;

/** Each drop category with its leaf, "" if the cluster is not an AGGREGATE. */
const categoriesOf = (c: ClusterState) =>
  c.leaves?.length ? c.leaves.flatMap((l) => l.drops.map((d) => ({ ...d, leaf: l.name }))) : c.drops.map((d) => ({ ...d, leaf: "" }));

function Charts({ history, state, events, changes, now, until, most }: {
  history: History;
  state: ClusterState;
  events: LbdEvent[];
  changes: HistoryEntry[];
  now: number;
  until: number;
  /** How much of the past is shown at most, in milliseconds. */
  most: number;
}) {
  const seen = new Set<string>(["ok", "dropped"]);
  const categories = new Set(categoriesOf(state).map((d) => dropKey(d.leaf, d.category)));
  for (const s of history.samples) {
    for (const [k, v] of Object.entries(s.picks)) if (v > 0) seen.add(k);
    for (const k of Object.keys(s.drops)) categories.add(k);
  }
  const results = inOrder(seen);
  const byCategory = [...categories].sort();
  const leaf = state.priorities.find((p) => p.in_use)?.cluster ?? state.leaves?.[0]?.name ?? "";
  const limited = history.samples.some((s) => s.breakers[leaf]) || state.circuit_breaker !== undefined;
  const picks = history.columns(results, (s, k) => perSecond(s, "picks", k), until);
  const drops = history.columns(byCategory, (s, k) => perSecond(s, "drops", k), until);
  const flight = history.columns(["inFlight", "maxRequests"], (s, k) => s.breakers[leaf]?.[k as "inFlight" | "maxRequests"] ?? null, until);
  const marks = [...marksOf(events, onPicks), ...marksOfChanges(changes)].sort((a, b) => b.t - a.t);
  const ofFleet = (state.circuit_breaker ?? state.leaves?.find((l) => l.name === leaf)?.circuit_breaker)?.fleet !== undefined;
  const whole = isShared(state) ? ", of the whole process" : "";
  const failsOver = state.priorities.length > 1;
  const priorities = history.columns(["priority"], (s) => (s.priority === undefined || s.priority < 0 ? null : s.priority), until);
  // What is not known, for lbd or the cluster was not there yet, takes no room.
  const same = { now, window: Math.min(most, Math.max(leastWindow, now - (history.since || now))) };
  return (
    <>
      <Chart {...same} title="Picks by result" unit="a second" lines={results.map(resultLine)} x={picks.x} columns={picks.lines} marks={marks} format={rate} />
      {failsOver && (
        <Chart
          {...same} whole title="Priority in use" unit="0 is the first choice; a gap is none"
          lines={[{ label: "priority", color: "accent" }]} x={priorities.x} columns={priorities.lines} marks={marks} format={(v) => count(v)}
        />
      )}
      {byCategory.length > 0 && (
        <Chart
          {...same} title="Drops by category" unit={`a second${whole}`}
          lines={byCategory.map((label, i) => ({ label, color: categoryColors[i % categoryColors.length]!, dash: i ? [4 + 2 * i, 3] : undefined, fill: i === 0 }))}
          x={drops.x} columns={drops.lines} marks={marks} format={rate}
        />
      )}
      {limited && (
        <Chart
          {...same} whole title={`In flight against the limit${leaf && ` of ${leaf}`}`} unit={`requests${whole}`}
          lines={[{ label: "in flight", color: "accent", fill: true }, { label: ofFleet ? "limit of the fleet" : "limit", color: "bad", dash: [6, 4] }]}
          x={flight.x} columns={flight.lines} marks={marksOf(events, ["circuit_breaker_opened"])} format={(v) => count(v)}
        />
      )}
    </>
  );
}

function Facts({ state, now, counts, lately }: {
  state: ClusterState;
  now: number;
  counts: ClusterCounts | null;
  /** Drops a second. */
  lately?: Record<string, number>;
}) {
  const leaves = state.leaves ?? [];
  const counted = new Map((counts?.leaves ?? []).map((l) => [l.name, l]));
  const categories = categoriesOf(state);
  const breaker = counts?.breaker ?? state.circuit_breaker;
  const whole = isShared(state) && <div class="of">counted for the whole process</div>;
  return (
    <dl class="facts">
      <div>
        <dt>Drops</dt>
        <dd>
          {categories.length === 0 && "no category"}
          {categories.map((d) => (
            <div key={dropKey(d.leaf, d.category)}>
              {d.category} {percent(d.per_million / 1e6)}
              {d.leaf && ` of ${d.leaf}`}, {count((d.leaf ? counted.get(d.leaf) : counts)?.drops[d.category] ?? d.dropped)} so far
              {lately && `, ${rate(lately[dropKey(d.leaf, d.category)] ?? 0)}/s`}
            </div>
          ))}
          {categories.length > 0 && whole}
        </dd>
      </div>
      <div>
        <dt>Circuit breaker</dt>
        <dd>
          {breaker ? (
            <span class={breaker.open ? "warn" : ""}>
              {count(breaker.in_flight)} in flight of at most {count(limitOf(breaker))}
              {breaker.open && ": full, picks are refused"}
            </span>
          ) : leaves.length > 0 ? (
            leaves.map((l) => {
              const b = counted.get(l.name)?.breaker ?? l.circuit_breaker;
              if (!b) return null; // the Cluster does not exist or is in error
              return (
                <div key={l.name} class={b.open ? "warn" : ""}>
                  {l.name}: {count(b.in_flight)} of {count(limitOf(b))}
                  {b.open && ", full"}
                </div>
              );
            })
          ) : (
            "none"
          )}
          {state.circuit_breaker && ` (limit from ${state.circuit_breaker.limit_from})`}
          {(breaker || leaves.length > 0) && whole}
        </dd>
      </div>
      <Shares state={state} counts={counts} />
      {counts && counts.leases > 0 && <Leases counts={counts} />}
      <div>
        <dt>Policy</dt>
        <dd>
          {leaves.length > 0
            ? leaves.map((l) => (
              <div key={l.name} class={l.skipped ? "warn" : ""}>
                {l.name}: {l.skipped ? <>skipped: {brief(l.skipped)}</> : breakable(l.policy ?? "")}
              </div>
            ))
            : state.policy ? breakable(state.policy) : "none: it cannot be used"}
        </dd>
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
          {leaves.length > 0 ? leaves.filter((l) => l.connect_mode).map((l) => <div key={l.name}>{l.name}: <Connected of={l} /></div>) : <Connected of={state} />}
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

/** The leases of a cluster, and the owners that hold the most, with their part of the circuit breakers. */
function Leases({ counts }: { counts: ClusterCounts }) {
  const breakers = counts.breaker ? [counts.breaker] : (counts.leaves ?? []).map((l) => l.breaker);
  const limit = breakers.reduce((sum, b) => sum + b.max_requests, 0);
  return (
    <div>
      <dt>Leases</dt>
      <dd>
        {count(counts.leases)} held
        {counts.holders && counts.holders.length > 0 && (
          <table class="holders">
            <caption>Largest holders</caption>
            <thead>
              <tr>
                <th scope="col">identity</th>
                <th scope="col">owner</th>
                <th scope="col" class="number">leases</th>
                <th scope="col" class="number">of the breaker</th>
              </tr>
            </thead>
            <tbody>
              {counts.holders.map((h) => (
                <tr key={`${h.identity ?? ""}/${h.owner ?? ""}`}>
                  <td>{h.identity ?? "none"}</td>
                  <td>{h.owner ?? "none"}</td>
                  <td class="number">{count(h.leases)}</td>
                  <td class="number">{limit > 0 ? percent(h.leases / limit) : ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </dd>
    </div>
  );
}

/** Names of policies in one another, that lines may break between them. */
const breakable = (policy: string) => policy.split("/").map((p, i) => (i === 0 ? p : <Fragment key={i}>/<wbr />{p}</Fragment>));

/** How endpoints are connected to. */
function Connected({ of }: { of: Pick<ClusterState, "connect_mode" | "notice_time" | "security"> }) {
  return (
    <>
      {of.connect_mode ? `${of.connect_mode}; a lost connection is detected within ${of.notice_time}` : "none"}
      {of.security ? <div>{secured(of.security)}</div> : of.connect_mode === "tls" && <div>{securedByMode}</div>}
    </>
  );
}

/** How connections are secured, in words. */
function secured(s: SecurityState): string {
  const sent = [s.auto_host_sni && "the endpoint's hostname", s.sni].filter(Boolean).join(", else ");
  const required = s.auto_sni_san_validation && sent ? "the SNI name" : (s.san ?? []).join(" or ");
  const out = [`trusts ${s.root ? `the roots of ${s.root}` : "the system's roots"}`, required ? `requires ${required}` : "accepts any name"];
  if (sent) out.unshift(`SNI ${sent}`);
  if (s.identity) out.push(`sends the certificate of ${s.identity}`);
  return `TLS: ${out.join(", ")}`;
}

/** Of the connect mode tls alone. */
const securedByMode = "TLS: trusts the system's roots, requires the endpoint's hostname, or the host of its address";

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
