// The differences of a push.

import { compareAssignments, compareMessages, type Difference } from "../diff.ts";
import { assignmentOf, resourcesOf } from "../document.ts";
import { count, plural } from "../format.ts";
import type { PushAnswer } from "../model.ts";
import type { Verdict } from "../verdict.ts";

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
      </>
    );
  }
  const after = new Map(resourcesOf(v.document.value).map((r) => [r.key, r]));
  const before = new Map(v.live.value ? resourcesOf(v.live.value).map((r) => [r.key, r]) : []);
  return (
    <>
      <p>{answer.changes.length === 0 ? "Nothing would change." : `${plural(answer.changes.length, "resource")} would change:`}</p>
      {answer.changes.slice(0, 100).map((c) => {
        const now = after.get(c.resource);
        const was = before.get(c.resource);
        const endpoints = c.resource.startsWith("ClusterLoadAssignment/");
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
