// What a change does to picks, as lbd predicts it.

import { flowsOf, mostFlows, ribbon } from "../effect.ts";
import { count, percent, plural } from "../format.ts";
import type { ClusterEffect, Effect as Predicted } from "../model.ts";
import { clusterHref } from "../route.ts";

/** The number of clusters that are shown. */
const mostClusters = 20;

/** The number of endpoints of a cluster that are listed. */
const mostEndpoints = 30;

export function Effect({ of }: { of: Predicted }) {
  if (of.clusters.length + of.unpredicted.length + of.targets.length === 0) return null;
  const more = of.more_clusters + Math.max(0, of.clusters.length - mostClusters);
  return (
    <section class="effect" aria-label="Effect on picks">
      <h3>Effect on picks</h3>
      {of.clusters.slice(0, mostClusters).map((c, i) =>
        of.clusters.length === 1 ? <Cluster key={c.cluster} of={c} /> : (
          <details key={c.cluster} open={i === 0}>
            <summary>
              {c.cluster}
              {c.shift !== undefined && `: ${percent(c.shift)} of its picks move`}
            </summary>
            <Cluster of={c} />
          </details>
        ),
      )}
      {more > 0 && <p>and {plural(more, "cluster")} more</p>}
      {of.targets.length > 0 && (
        <p>
          Targets: {of.targets.join(", ")}
          {of.more_targets > 0 && ` and ${count(of.more_targets)} more`}
        </p>
      )}
      <Sentences of={of.unpredicted} label="Not predicted" />
    </section>
  );
}

function Sentences({ of, label }: { of: string[]; label: string }) {
  if (of.length === 0) return null;
  return (
    <ul class="rules" aria-label={label}>
      {of.map((s) => (
        <li key={s}>{s}</li>
      ))}
    </ul>
  );
}

/** A value before and after a change, once if it stays. */
const turns = (before: string, after: string) => (before === after ? before : `${before} → ${after}`);

/** The sentences about a cluster. */
function facts(c: ClusterEffect): string[] {
  const all: string[] = [];
  if (c.shift !== undefined) all.push(c.shift === 0 ? "No pick gets another endpoint." : `${percent(c.shift)} of the picks get another endpoint, or are dropped, or no longer dropped.`);
  if (c.moved_hash_keys !== undefined) all.push(`${percent(c.moved_hash_keys)} of the request hashes get another endpoint.`);
  const priority = (n: number) => (n < 0 ? "none" : String(n));
  if (c.before.priority_in_use !== c.after.priority_in_use) all.push(`Priority in use: ${turns(priority(c.before.priority_in_use), priority(c.after.priority_in_use))}.`);
  if (c.before.dropped > 0 || c.after.dropped > 0) all.push(`Dropped: ${turns(percent(c.before.dropped), percent(c.after.dropped))}.`);
  if (c.after.error) all.push(`No pick would get an endpoint: ${c.after.error}.`);
  if (c.connections_opened + c.connections_closed > 0) all.push(`Connections: ${count(c.connections_opened)} opened, ${count(c.connections_closed)} closed.`);
  if (c.assumed_reachable > 0) all.push(`${plural(c.assumed_reachable, "endpoint")} to which lbd is not connected ${c.assumed_reachable === 1 ? "is" : "are"} assumed to be reachable.`);
  return all;
}

function Cluster({ of: c }: { of: ClusterEffect }) {
  const rated = c.endpoints.some((e) => e.requests_per_second_before !== undefined || e.requests_per_second_after !== undefined);
  const rate = (n: number | undefined) => (n === undefined ? "–" : n >= 100 ? count(Math.round(n)) : String(Math.round(n * 10) / 10));
  const share = (n: number | undefined) => (n === undefined ? "–" : percent(n));
  const more = c.more_endpoints + Math.max(0, c.endpoints.length - mostEndpoints);
  return (
    <>
      <p>
        <a href={clusterHref(c.cluster)}>{c.cluster}</a>: {facts(c).join(" ")}
        {c.picks_per_second !== undefined && ` It had ${rate(c.picks_per_second)} picks/s in the last ${c.rate_over}.`}
      </p>
      <Sentences of={c.limits} label="Limits" />
      <Picture of={c} />
      {c.endpoints.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label={`Picks of ${c.cluster} by endpoint`}>
          <table>
            <thead>
              <tr>
                <th scope="col">endpoint</th>
                <th scope="col" class="number">share</th>
                {rated && <th scope="col" class="number">requests/s</th>}
              </tr>
            </thead>
            <tbody>
              {c.endpoints.slice(0, mostEndpoints).map((e, i) => (
                <tr key={`${e.priority} ${e.address}`}>
                  <th scope="row">
                    {i < mostFlows && <span class={`swatch flow-${i}`} aria-hidden="true" />}
                    {e.address} {e.change && <span class="of">{e.change}</span>}
                  </th>
                  <td class="number">{turns(share(e.share_before), share(e.share_after))}</td>
                  {rated && <td class="number">{turns(rate(e.requests_per_second_before), rate(e.requests_per_second_after))}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more > 0 && <p>and {plural(more, "endpoint")} more</p>}
      <Sentences of={c.unpredicted} label="Not predicted" />
    </>
  );
}

const [width, height] = [300, 120];

/** Picks before the change on the left, and after it on the right. The table has the same in text. */
function Picture({ of: c }: { of: ClusterEffect }) {
  const flows = flowsOf(c);
  if (flows.length === 0) return null;
  return (
    <figure class="flows" aria-hidden="true">
      <figcaption>
        <span>before</span>
        <span>after</span>
      </figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none">
        {flows.map((f, i) => (
          <path key={f.label} class={f.kind === "endpoint" ? `flow-${i}` : f.kind} d={ribbon(f, width, height)} />
        ))}
      </svg>
    </figure>
  );
}
