// The daemons that share a store: how far each is, its parts of limits, and where they disagree.

import { useState } from "preact/hooks";
import { get, says } from "../api.ts";
import { count, rate, span } from "../format.ts";
import type { FleetState, LimitState, ReplicaState } from "../model.ts";
import { Alert, Title } from "../parts/basics.tsx";
import { useRound } from "../question.ts";
import { clusterHref } from "../route.ts";

/** The polling interval, in milliseconds: there is no stream. */
const every = 3000;
/** Seconds without a response of etcd that are usual. */
const usual = 10;

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
    <div class={error === null ? "" : "old"}>
      <Title text="Fleet" />
      {error !== null && <Alert>{says(error)}</Alert>}
      {!fleet && error === null && <p>Loading…</p>}
      {fleet && !fleet.shared && <p>This lbd shares its store with no other: it was started without --store.</p>}
      {fleet?.shared && <Shared of={fleet} />}
    </div>
  );
}

function Shared({ of: f }: { of: FleetState }) {
  const live = f.replicas.filter((r) => r.state === "live").length;
  return (
    <>
      {!f.joined && (
        <p class="error">This lbd has no session in the store: it admits no requests of limits of the fleet, and the rest is as it was when it had one.</p>
      )}
      {f.error && <p class="error">The other daemons could not be read: {f.error}</p>}
      {f.disagreements.length > 0 && (
        <>
          <h2>Disagreements</h2>
          <ul>
            {f.disagreements.map((d) => (
              <li key={`${d.cluster} ${d.address}`}>
                <a href={clusterHref(d.cluster)}>{d.cluster}</a>: <span class="warn">{d.says}</span> <span class="of">{d.from.join(", ")}</span>
              </li>
            ))}
          </ul>
          {f.more_disagreements !== undefined && <p class="of">and {count(f.more_disagreements)} more</p>}
        </>
      )}
      <h2>
        {count(live)} of {count(f.replicas.length)} daemons live
      </h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Daemons">
        <table>
          <thead>
            <tr>
              <th scope="col">daemon</th>
              <th scope="col">state</th>
              <th scope="col">version</th>
              <th scope="col">zone</th>
              <th scope="col" class="number">index</th>
              <th scope="col">current</th>
              <th scope="col" class="number">picks/s</th>
              <th scope="col" class="number">shares</th>
            </tr>
          </thead>
          <tbody>
            {f.replicas.map((r) => (
              <Replica key={r.id} of={r} />
            ))}
          </tbody>
        </table>
      </div>
      {f.limits.length > 0 && <Limits of={f.limits} more={f.more_limits ?? 0} />}
    </>
  );
}

function Replica({ of: r }: { of: ReplicaState }) {
  const s = r.summary;
  return (
    <tr>
      <th scope="row">
        {r.name || r.id}
        {r.self && <span class="of"> this lbd</span>}
        {r.address && <span class="of"> {r.address}</span>}
      </th>
      <td class={r.state === "live" ? "" : "warn"}>{r.state}</td>
      <td title={r.version}>{r.version.slice(0, 20)}</td>
      <td>{r.zone ?? "–"}</td>
      <td class="number">
        {s ? count(s.index) : "–"}
        {s && s.behind > 0 && <span class="warn"> {count(s.behind)} behind</span>}
      </td>
      <td class={s && s.behind_seconds > usual ? "warn" : ""}>{s ? (s.behind_seconds > usual ? `${span(s.behind_seconds * 1000)} ago` : "now") : "–"}</td>
      <td class="number">{s ? rate(s.picks_per_second) : "–"}</td>
      <td class="number">{count(r.shares.length + (r.more_shares ?? 0))}</td>
    </tr>
  );
}

function Limits({ of, more }: { of: LimitState[]; more: number }) {
  return (
    <>
      <h2>Limits of the fleet</h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Limits of the fleet">
        <table>
          <thead>
            <tr>
              <th scope="col">cluster</th>
              <th scope="col" class="number">limit</th>
              <th scope="col" class="number">shares</th>
              <th scope="col" class="number">demand</th>
              <th scope="col" class="number">free</th>
              <th scope="col" class="number">kept</th>
              <th scope="col" class="number">daemons</th>
            </tr>
          </thead>
          <tbody>
            {of.map((l) => (
              <tr key={`${l.cluster} ${l.eds_service_name ?? ""}`}>
                <th scope="row">
                  <a href={clusterHref(l.cluster)}>{l.cluster}</a>
                </th>
                <td class="number">{count(l.limit)}</td>
                <td class={l.shares > l.limit ? "number warn" : "number"}>{count(l.shares)}</td>
                <td class={l.demand > l.limit ? "number warn" : "number"}>{count(l.demand)}</td>
                <td class="number">{count(l.free)}</td>
                <td class="number">{count(l.kept)}</td>
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
