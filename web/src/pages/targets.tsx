// The xds targets, their routes and clusters.

import { useState } from "preact/hooks";
import { get, Refusal, says, targetPath, withQuery } from "../api.ts";
import { percent, plural } from "../format.ts";
import type { RouteState, TargetList, TargetState, TargetSummary } from "../model.ts";
import { Ago, Alert, Live, State, Title, useNow } from "../parts/basics.tsx";
import { useRound } from "../question.ts";
import { clusterHref, href } from "../route.ts";
import { type Liveness, useStream } from "../stream.ts";

const hosts: Record<string, string> = { flag: "--target", api: "the API", push: "a pushed Listener", file: "a Listener in a file" };

/** The polling interval, in milliseconds: no event reports new routes. */
const every = 5000;

/** Polls periodically, and after events. */
function useFollowed<T>(ask: (signal: AbortSignal) => Promise<T>, key: string, answered: (answer: T) => void): { live: Liveness; error: unknown } {
  const [error, setError] = useState<unknown>(null);
  const soon = useRound(
    ask, every, key,
    (answer) => {
      answered(answer);
      setError(null);
    },
    setError,
  );
  return { live: useStream("v1/events/watch", ["event", "resync"], soon, soon), error };
}

async function allTargets(signal: AbortSignal): Promise<TargetSummary[]> {
  const all: TargetSummary[] = [];
  let after: string | undefined;
  do {
    const page = await get<TargetList>(withQuery("v1/targets", { after }), signal);
    all.push(...page.targets);
    after = page.next;
  } while (after);
  return all;
}

export function Targets() {
  const [targets, setTargets] = useState<TargetSummary[] | null>(null);
  const now = useNow();
  const { live, error } = useFollowed(allTargets, "", setTargets);
  return (
    <div class={error === null ? "" : "old"}>
      <div class="top">
        <Title text="Targets" />
        <Live of={live} now={now} />
      </div>
      {error !== null && <Alert>{says(error)}</Alert>}
      {targets && targets.length === 0 && (
        <p>No target is hosted. A flag, the API, or a Listener that is pushed or in a file hosts a target.</p>
      )}
      {targets && targets.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Targets">
          <table>
            <thead>
              <tr>
                <th scope="col">target</th>
                <th scope="col">state</th>
                <th scope="col" class="number">clusters</th>
                <th scope="col">hosted by</th>
                <th scope="col">error</th>
              </tr>
            </thead>
            <tbody>
              {targets.map((t) => (
                <tr key={t.name}>
                  <th scope="row"><a href={href(["targets", t.name])}>{t.name}</a></th>
                  <td><State of={t.state} /></td>
                  <td class="number">{t.clusters}</td>
                  <td>{t.hosted_by.map((h) => hosts[h] ?? h).join(", ")}</td>
                  <td>{t.error ?? (t.pending ? "its routes are not known yet: picks queue" : "")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

export function Target({ name }: { name: string }) {
  const [target, setTarget] = useState<TargetState | null>(null);
  const now = useNow();
  const { live, error } = useFollowed((signal) => get<TargetState>(targetPath(name), signal), name, setTarget);
  const refused = error instanceof Refusal && error.problem.status === 404;
  return (
    <div class={error === null ? "" : "old"}>
      <div class="top">
        <Title text={name} />
        {target && !refused && <State of={target.state} />}
        <Live of={live} now={now} />
        <nav class="actions" aria-label="This target">
          <a href={href(["explain"], { target: name })}>Explain a pick</a>
          <a href="#/targets">All targets</a>
        </nav>
      </div>
      {error !== null && <Alert>{says(error)}</Alert>}
      {target && !refused && (
        <>
          <div class={`headline ${target.error ? "bad" : target.state === "READY" ? "good" : "warning"}`}>
            <p class="first">
              {target.error
                ? `Every pick fails: ${target.error}.`
                : target.pending
                  ? "Its routes are not known yet: picks queue."
                  : `Its routes lead to ${plural(target.clusters, "cluster")}.`}
            </p>
            <p>Hosted by {target.hosted_by.map((h) => hosts[h] ?? h).join(" and ")}.</p>
          </div>
          <dl class="facts">
            {([["Listener", target.listener], ["Routes", target.route_configuration]] as const).map(
              ([label, o]) =>
                o && (
                  <div key={label}>
                    <dt>{label}</dt>
                    <dd>
                      {o.resource} from {o.source}
                      {o.version && `, version ${o.version}`}, updated <Ago at={o.updated_at} now={now} />
                    </dd>
                  </div>
                ),
            )}
            {target.virtual_host && (
              <div>
                <dt>Virtual host</dt>
                <dd>
                  {target.virtual_host.name}, for {target.virtual_host.domains.join(", ")}
                </dd>
              </div>
            )}
          </dl>
          {target.virtual_host && <Routes routes={target.virtual_host.routes} target={name} />}
          <h2>Clusters</h2>
          <div class="scroll" tabIndex={0} role="group" aria-label="Clusters of the target">
            <table>
              <thead>
                <tr>
                  <th scope="col">cluster</th>
                  <th scope="col">state</th>
                  <th scope="col" class="number">priority</th>
                  <th scope="col" class="number">ready</th>
                  <th scope="col">source</th>
                </tr>
              </thead>
              <tbody>
                {target.cluster_states.map((c) => (
                  <tr key={c.name}>
                    <th scope="row"><a href={clusterHref(c.name, name)}>{c.name}</a></th>
                    <td><State of={c.state} /></td>
                    <td class="number">{c.priority_in_use < 0 ? "none" : c.priority_in_use}</td>
                    <td class="number">
                      {c.endpoints.ready} / {c.endpoints.total}
                    </td>
                    <td>
                      {c.source}
                      {c.stale && <span class="tag tone-busy">stale</span>}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </div>
  );
}

function Routes({ routes, target }: { routes: RouteState[]; target: string }) {
  return (
    <>
      <h2>Routes, in the order in which they are tried</h2>
      <ol class="routes">
        {routes.slice(0, 500).map((r, i) => (
          <li key={i}>
            {r.name && <b>{r.name} </b>}
            <code>{r.match}</code>
            {" → "}
            {r.unsupported ? (
              <span class="error">picks fail: {r.unsupported}</span>
            ) : (
              r.clusters.map((c, j) => (
                <span key={c.name}>
                  {j > 0 && ", "}
                  <a href={clusterHref(c.name, target)}>{c.name}</a>
                  {r.clusters.length > 1 && ` ${percent(c.share)}`}
                </span>
              ))
            )}
            {r.hash && r.hash.length > 0 && <span class="of"> hashed by {r.hash.join(", then ")}</span>}
          </li>
        ))}
      </ol>
      {routes.length > 500 && <p>and {routes.length - 500} more</p>}
    </>
  );
}
