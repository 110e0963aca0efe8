// The differences of a push, and the predicted shares.

import { useEffect, useState } from "preact/hooks";
import { clusterPath, get, hasPath, Refusal, withQuery } from "../api.ts";
import { compareAssignments, compareMessages, type Difference } from "../diff.ts";
import { assignmentOf, type Message, resourcesOf } from "../document.ts";
import { count, percent, plural } from "../format.ts";
import type { ClusterState, LocalityState, PushAnswer } from "../model.ts";
import { useQuestion } from "../question.ts";
import { localityKey } from "../rates.ts";
import { basisOf, type Basis, dropped, firstUsed, predict } from "../shares.ts";
import type { Verdict } from "../verdict.ts";
import { Bar } from "./basics.tsx";

export function Effects({ v, answer }: { v: Verdict; answer: PushAnswer }) {
  if (!v.document) {
    return (
      <>
        <p>This page cannot parse the text, so it shows no differences. {answer.changes.length > 0 && "lbd would change:"}</p>
        <ul class="differences">
          {answer.changes.slice(0, 200).map((c) => (
            <li key={c.resource}>
              <Sign change={c.change} /> <span class="what">{c.resource}</span> {c.change}
            </li>
          ))}
        </ul>
        {answer.changes.length > 200 && <p>and {count(answer.changes.length - 200)} more</p>}
      </>
    );
  }
  if (v.where === "endpoints" || v.where === "config") {
    const after = v.document.value;
    const isEndpoints = v.where === "endpoints";
    const of = isEndpoints ? compareAssignments(v.live.value && assignmentOf(v.live.value), assignmentOf(after)) : compareMessages(v.live.value, { ...after, name: v.cluster });
    return (
      <>
        <Differences of={of} isNew={v.live.value === null} changes={answer.changes.length > 0} />
        {isEndpoints && <Shares cluster={v.cluster} after={after} asked={v} />}
      </>
    );
  }
  const after = new Map(resourcesOf(v.document.value).map((r) => [r.key, r]));
  const before = new Map(v.live.value ? resourcesOf(v.live.value).map((r) => [r.key, r]) : []);
  const changed = new Set(answer.changes.map((c) => c.resource));
  return (
    <>
      <p>{answer.changes.length === 0 ? "Nothing would change." : `${plural(answer.changes.length, "resource")} would change:`}</p>
      {answer.changes.slice(0, 100).map((c) => {
        const now = after.get(c.resource);
        const was = before.get(c.resource);
        const endpoints = c.resource.startsWith("ClusterLoadAssignment/");
        const cluster = c.resource.replace("ClusterLoadAssignment/", "");
        return (
          <details key={c.resource} class="resource">
            <summary>
              <Sign change={c.change} /> {c.resource} {c.change}
            </summary>
            {now && (
              <Differences
                of={endpoints ? compareAssignments(was ? assignmentOf(was.value) : null, assignmentOf(now.value)) : compareMessages(was?.value ?? null, now.value)}
                isNew={!was} changes
              />
            )}
            {now && endpoints && <Shares cluster={cluster} after={now.value} asked={v} configToo={changed.has(`Cluster/${cluster}`)} />}
          </details>
        );
      })}
      {answer.changes.length > 100 && <p>and {count(answer.changes.length - 100)} more</p>}
    </>
  );
}

export function Sign({ change }: { change: string }) {
  const sign = change === "added" ? "+" : change === "removed" ? "−" : "~";
  return (
    <span class={`sign ${change}`} aria-hidden="true">
      {sign}
    </span>
  );
}

const toCurrent = "Difference to the current version";

export function Differences({ of, isNew, changes, title = toCurrent }: { of: Difference[]; isNew: boolean; changes: boolean; title?: string }) {
  return (
    <section aria-label={title}>
      <h3>{isNew ? "New resource" : title}</h3>
      {of.length === 0 && <p>{changes ? "lbd would change it, but this page cannot show the difference." : "None."}</p>}
      <ul class="differences">
        {of.slice(0, 200).map((d, i) => (
          <li key={i}>
            <Sign change={d.change} /> <span class="what">{d.what}</span> {d.change}
            {d.from !== undefined && d.to !== undefined ? `: ${d.from} → ${d.to}` : (d.to ?? d.from) ? `: ${d.to ?? d.from}` : ""}
          </li>
        ))}
      </ul>
      {of.length > 200 && <p>and {count(of.length - 200)} more</p>}
    </section>
  );
}

/** A sentence about the shares of a policy. */
function basisWords(basis: Basis, policy: string): string {
  switch (basis) {
    case "weights":
      return "";
    case "hashes":
      return "ring_hash sends each hash key to one endpoint: these are shares of the keys, and of picks if all keys are equally frequent.";
    case "endpoints":
      return `Its policy, ${policy}, gives each endpoint the same share and ignores locality weights.`;
    case "load":
      return `Its policy, ${policy}, chooses by requests in flight and ignores locality weights: these are the shares while all endpoints are equally busy.`;
    case "unknown":
      return policy ? `The shares of its policy, ${policy}, cannot be predicted.` : "It has no usable policy: shares cannot be predicted.";
  }
}

function Shares({ cluster, after, asked, configToo = false }: { cluster: string; after: Message; asked: Verdict; configToo?: boolean }) {
  /** The current state; "new" if the cluster does not exist. */
  const [state, setState] = useState<ClusterState | "new" | null>(null);
  const question = useQuestion();
  useEffect(() => {
    if (!hasPath(cluster)) return;
    question.ask(
      (signal) => get<ClusterState>(withQuery(clusterPath(cluster), { endpoints: "false" }), signal),
      setState,
      (e) => setState(e instanceof Refusal && e.problem.status === 404 ? "new" : null),
    );
  }, [cluster, asked]);
  const live = state && state !== "new" ? new Map(state.priorities.flatMap((p) => p.localities.map((l) => [localityKey(p.priority, l.locality), l]))) : null;
  const policy = state && state !== "new" ? (state.policy ?? "") : null;
  const basis = state === null ? "unknown" : policy === null ? "weights" : basisOf(policy);
  const assignment = assignmentOf(after);
  const localities = predict(assignment, basis);
  const used = firstUsed(localities);
  const lost = dropped(assignment.drops);
  const nowOf = (l: LocalityState | undefined) => (!l ? "new" : l.share === undefined ? "–" : percent(l.share));
  return (
    <section aria-label="Predicted shares">
      <h3>Predicted shares</h3>
      <p>
        {used < 0 ? "No priority has a usable endpoint: picks would fail." : `While every usable endpoint is READY, picks go to priority ${used}.`}
        {lost > 0 && ` ${percent(lost)} of all picks are dropped before.`}
        {policy !== null && basis !== "weights" && ` ${basisWords(basis, policy)}`}
        {configToo && " The same push changes the config: another policy changes the shares."}
      </p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Predicted shares by locality">
        <table>
          <thead>
            <tr>
              <th scope="col">priority</th>
              <th scope="col">locality</th>
              <th scope="col" class="number">usable</th>
              <th scope="col" class="number">weight</th>
              <th scope="col">share in its priority</th>
              <th scope="col" class="number">now</th>
            </tr>
          </thead>
          <tbody>
            {localities.slice(0, 200).map((l, i) => (
              <tr key={i} class={l.priority === used ? "in-use" : ""}>
                <td>{l.priority}</td>
                <th scope="row">{l.name}</th>
                <td class="number">
                  {count(l.usable)} / {count(l.endpoints)}
                </td>
                <td class="number">{l.weight}</td>
                <td>
                  {l.share === null ? "–" : (
                    <>
                      <Bar part={l.share} /> {percent(l.share)}
                    </>
                  )}
                </td>
                <td class="number">{live ? nowOf(live.get(`${l.priority} ${l.name}`)) : state === "new" ? "new" : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
