// The replicas that share a store: how far each is, its shares of limits, and where they disagree.

import { useState } from "preact/hooks";
import { get, says } from "../api.ts";
import { count, duration, plural, rate, span } from "../format.ts";
import type { Disagreement, FleetState, LimitState, ReplicaState, ShareState } from "../model.ts";
import { Alert, Title } from "../parts/basics.tsx";
import { useRound } from "../question.ts";
import { clusterHref } from "../route.ts";

/** The polling interval, in milliseconds: there is no stream. */
const every = 3000;
/** Seconds without a response of etcd that are usual. */
const usual = 10;
/** The maximum number of shares of a replica that are listed without a click. */
const maxOpen = 3;

export function Fleet() {
  const [fleet, setFleet] = useState<FleetState | null>(null);
  const [error, setError] = useState<unknown>(null);
  useRound(
    (signal) => get<FleetState>("v1/fleet", signal), every, "",
    (f) => {
      setFleet(f);
      setError(null);
    },
    setError,
  );
  return (
    <div class={error === null && fleet?.joined !== false ? "" : "old"}>
      <Title text="Fleet" />
      {error !== null && <Alert>{says(error)}</Alert>}
      {!fleet && error === null && <p>Loading…</p>}
      {fleet && !fleet.shared && (
        <p>
          This lbd is not in a fleet: it was started without --store, which <code>docs/fleet.md</code> describes.
        </p>
      )}
      {fleet?.shared && <Shared of={fleet} />}
    </div>
  );
}

function Shared({ of: f }: { of: FleetState }) {
  const live = f.replicas.filter((r) => r.state === "live");
  const gone = f.replicas.filter((r) => r.state !== "live");
  return (
    <>
      {!f.joined && (
        <p class="error">
          This lbd has no session in the store: it admits no requests of limits of the fleet, and the rest is as it was when it had one.
        </p>
      )}
      {f.error && (
        <p class="error">
          The summaries of the other replicas cannot be read{f.summary_age && `, and are ${span(duration(f.summary_age))} old`}: {f.error}
        </p>
      )}
      {f.disagreements.length > 0 && <Disagreements of={f.disagreements} more={f.more_disagreements ?? 0} />}
      <h2>
        {plural(live.length, "replica")}
        {gone.length > 0 && `, and ${count(gone.length)} gone`}
      </h2>
      {gone.length > 0 && <p>A replica that is gone has ended or lost the store. Its shares are kept until its leases have ended.</p>}
      <div class="scroll" tabIndex={0} role="group" aria-label="Replicas">
        <table class="replicas">
          <thead>
            <tr>
              <th scope="col">replica</th>
              <th scope="col">state</th>
              <th scope="col">address</th>
              <th scope="col">zone</th>
              <th scope="col">version</th>
              <th scope="col" class="number">index</th>
              <th scope="col">current</th>
              <th scope="col" class="number">picks/s</th>
              <th scope="col" class="number" title="endpoints that it cannot reach">unreachable</th>
              <th scope="col">shares of limits</th>
            </tr>
          </thead>
          <tbody>
            {[...live, ...gone].map((r) => (
              <Replica key={r.id} of={r} />
            ))}
          </tbody>
        </table>
      </div>
      {f.limits.length > 0 && <Limits of={f.limits} more={f.more_limits ?? 0} />}
    </>
  );
}

function Disagreements({ of, more }: { of: Disagreement[]; more: number }) {
  return (
    <>
      <h2>Endpoints that only some replicas can reach</h2>
      <ul class="disagreements">
        {of.map((d) => (
          <li key={`${d.cluster} ${d.address}`}>
            <a href={clusterHref(d.cluster)}>{d.cluster}</a>: <span class="warn">{d.says}</span>{" "}
            <span class="of">
              ({d.from.join(", ")}
              {d.unreachable > d.from.length && ` and ${count(d.unreachable - d.from.length)} more`})
            </span>
          </li>
        ))}
      </ul>
      {more > 0 && <p class="of">and {count(more)} more</p>}
    </>
  );
}

function Replica({ of: r }: { of: ReplicaState }) {
  const s = r.summary;
  const late = s !== undefined && s.behind_seconds > usual;
  const isLive = r.state === "live";
  return (
    <tr>
      <th scope="row" title={r.id}>
        {r.name || r.id.slice(0, 8)}
        {r.self && <span class="tag tone-accent">this one</span>}
      </th>
      <td>
        <span class={`state ${isLive ? "good" : "unwell"}`}>
          <span aria-hidden="true">{isLive ? "●" : "▲"}</span> {r.state}
        </span>
      </td>
      <td>{r.address ? <code>{r.address}</code> : "–"}</td>
      <td>{r.zone || "–"}</td>
      <td title={r.version}>{r.version.slice(0, 20) || "–"}</td>
      <td class="number">
        {s ? count(s.index) : "–"}
        {s && s.behind > 0 && <div class="warn">{count(s.behind)} behind</div>}
      </td>
      <td class={late ? "warn" : ""}>{s ? (late ? `${span(s.behind_seconds * 1000)} ago` : "now") : "–"}</td>
      <td class="number">{s ? rate(s.picks_per_second) : "–"}</td>
      <td class={s?.unreachable ? "number warn" : "number"}>{s?.unreachable === undefined ? "–" : count(s.unreachable)}</td>
      <td>
        <Shares of={r.shares} more={r.more_shares ?? 0} />
      </td>
    </tr>
  );
}

function Shares({ of, more }: { of: ShareState[]; more: number }) {
  if (of.length === 0) return <>–</>;
  const list = (
    <ul>
      {of.map((s) => (
        <li key={`${s.cluster} ${s.eds_service_name ?? ""}`}>
          <a href={clusterHref(s.cluster)}>{s.cluster}</a> {count(s.share)} of {count(s.limit)}
          {s.returns_within ? (
            <span class="of">, free within {span(duration(s.returns_within))}</span>
          ) : (
            <span class={s.demand > s.share ? "warn" : "of"}>, demand {count(s.demand)}</span>
          )}
        </li>
      ))}
      {more > 0 && <li class="of">and {count(more)} more</li>}
    </ul>
  );
  if (of.length <= maxOpen) return list;
  return (
    <details>
      <summary>{plural(of.length + more, "share")}</summary>
      {list}
    </details>
  );
}

function Limits({ of, more }: { of: LimitState[]; more: number }) {
  return (
    <>
      <h2>Limits of the fleet</h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Limits of the fleet">
        <table class="limits">
          <thead>
            <tr>
              <th scope="col">cluster</th>
              <th scope="col" class="number">limit</th>
              <th scope="col" class="number">demand</th>
              <th scope="col" class="number">shares</th>
              <th scope="col" class="number" title="of replicas that are gone">of them kept</th>
              <th scope="col" class="number">free</th>
              <th scope="col" class="number">replicas</th>
            </tr>
          </thead>
          <tbody>
            {of.map((l) => (
              <tr key={`${l.cluster} ${l.eds_service_name ?? ""}`}>
                <th scope="row">
                  <a href={clusterHref(l.cluster)}>{l.cluster}</a>
                </th>
                <td class="number">{count(l.limit)}</td>
                <td class={l.demand > l.limit ? "number warn" : "number"}>{count(l.demand)}</td>
                <td class={l.shares > l.limit ? "number warn" : "number"}>{count(l.shares)}</td>
                <td class="number">{count(l.kept)}</td>
                <td class="number">{count(l.free)}</td>
                <td class="number">{count(l.replicas)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more > 0 && <p class="of">and {count(more)} more</p>}
    </>
  );
}
