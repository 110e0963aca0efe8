// Changes of resources, what one of them changed, and its restore.

import { useEffect, useState } from "preact/hooks";
import { get, says, withQuery } from "../api.ts";
import { compareAssignments, compareMessages } from "../diff.ts";
import { assignmentOf, type Message } from "../document.ts";
import { count, dayAndClock, plural } from "../format.ts";
import { compareLines } from "../lines.ts";
import type { ChangeList, ChangesOf, HistoryDifference, HistoryEntry, VersionChange } from "../model.ts";
import { Alert, Title } from "../parts/basics.tsx";
import { Differences, Sign } from "../parts/effects.tsx";
import { Restore } from "../parts/restore.tsx";
import { useQuestion, useRound } from "../question.ts";
import { resourceName } from "../restore.ts";
import { clusterHref, href, replaceQuery } from "../route.ts";

/** The polling interval of the list, in milliseconds: no stream has the history. */
const every = 5000;
/** That of one change, which only a token can make visible. */
const rarely = 60_000;
/** Delay of a search after the last key, in milliseconds. */
const pause = 300;

/** The number of resources that a page lists. */
const most = 200;

export function History({ query }: { query: URLSearchParams }) {
  const [cluster, setCluster] = useState(query.get("cluster") ?? "");
  const [asked, setAsked] = useState({ cluster: cluster.trim(), before: query.get("before") ?? "" });
  const [list, setList] = useState<{ of: string; changes: ChangeList } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const key = JSON.stringify(asked);
  useRound(
    (signal) => get<ChangeList>(withQuery("v1/history", asked), signal), every, key,
    (changes) => {
      setList({ of: key, changes });
      setError(null);
    },
    setError,
  );
  useEffect(() => {
    const name = cluster.trim();
    if (name === asked.cluster) return;
    const timer = setTimeout(() => {
      setAsked({ cluster: name, before: "" });
      setError(null);
      replaceQuery(["history"], { cluster: name });
    }, pause);
    return () => clearTimeout(timer);
  }, [cluster]);
  const found = list?.of === key ? list.changes : null;
  return (
    <div class={error === null ? "" : "old"}>
      <div class="top">
        <Title text="History" />
        <p class="sums" role="status">{found && plural(found.changes.length, "change")}</p>
      </div>
      {error !== null && <Alert>{says(error)}</Alert>}
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Cluster{" "}
          <input type="search" value={cluster} placeholder="its exact name" autocomplete="off" onInput={(e) => setCluster(e.currentTarget.value)} />
        </label>
      </form>
      {!found && error === null && <p>Loading…</p>}
      {found && found.changes.length === 0 && <p>The history has no {asked.before ? "older " : ""}change{asked.cluster && ` of ${asked.cluster}`}.</p>}
      {found && found.changes.length > 0 && <Changes of={found.changes} />}
      <p class="more">
        {asked.before && <a href={href(["history"], { cluster: asked.cluster })}>Newest</a>}
        {found?.next !== undefined && <a href={href(["history"], { cluster: asked.cluster, before: String(found.next) })}>Older</a>}
      </p>
    </div>
  );
}

function Changes({ of }: { of: HistoryEntry[] }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Changes">
      <table class="history">
        <thead>
          <tr>
            <th scope="col" class="number">index</th>
            <th scope="col">time</th>
            <th scope="col">source</th>
            <th scope="col">who</th>
            <th scope="col">message</th>
            <th scope="col">change</th>
          </tr>
        </thead>
        <tbody>
          {of.map((c, i) => (
            <tr key={`${c.index} ${c.time} ${i}`}>
              <th scope="row" class="number"><a href={href(["history", String(c.index)])}>{c.index}</a></th>
              <td class="age"><time dateTime={c.time}>{dayAndClock(Date.parse(c.time))}</time></td>
              <td>{sourceOf(c)}</td>
              <td>{whoOf(c)}</td>
              <td>{c.message}</td>
              <td><Words of={c} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const sourceOf = (c: HistoryEntry) => (c.source === "file" ? `file ${c.file ?? ""}`.trim() : c.source === "server" ? "management server" : "push");
const whoOf = (c: HistoryEntry) => [c.caller, c.address].filter(Boolean).join(", ");

function Words({ of: c }: { of: HistoryEntry }) {
  return (
    <>
      {c.problem ? <span class="error">Its record cannot be read: {c.problem}</span> : c.says}
      {c.restored !== undefined && <span class="tag tone-accent">restores index {c.restored}</span>}
      {c.source === "push" && !c.kept && !c.problem && <span class="tag">what it replaced is not kept</span>}
    </>
  );
}

export function Change({ index, query }: { index: string; query: URLSearchParams }) {
  const path = `v1/history/${encodeURIComponent(index)}`;
  const [of, setOf] = useState<ChangesOf | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [diff, setDiff] = useState<HistoryDifference | null>(null);
  const [unknown, setUnknown] = useState<unknown>(null);
  const [resource, setResource] = useState(query.get("resource") ?? "");
  const question = useQuestion();
  useRound(
    (signal) => get<ChangesOf>(path, signal), rarely, index,
    (c) => {
      setOf(c);
      setError(null);
    },
    setError,
  );
  // What comes from files and servers has no commit that could be compared.
  const pushed = of?.changes.some((c) => c.source === "push") ?? false;
  useEffect(() => {
    if (!pushed) return;
    question.ask((signal) => get<HistoryDifference>(`${path}/diff`, signal), setDiff, setUnknown);
  }, [pushed, index]);
  const choose = (r: string) => {
    setResource(r);
    replaceQuery(["history", index], { resource: r });
  };
  const resources = diff?.changes.map((c) => c.resource) ?? of?.changes.flatMap((c) => c.changes.map((each) => each.resource)) ?? [];
  return (
    <div class={error === null ? "" : "old"}>
      <div class="top">
        <Title text={`Change ${index}`} />
        <p class="sums"><a href="#/history">All changes</a></p>
      </div>
      {error !== null && <Alert>{says(error)}</Alert>}
      {!of && error === null && <p>Loading…</p>}
      {of && <Changes of={of.changes} />}
      {of && !pushed && <p>lbd keeps no contents of changes from files and management servers: they cannot be compared or restored.</p>}
      {pushed && of && (
        <div class="sides">
          <section aria-labelledby="differences-title">
            <h2 id="differences-title">Differences</h2>
            {unknown !== null && <p class="refusal">The differences are unknown: {says(unknown)}</p>}
            {!diff && unknown === null && <p>Loading…</p>}
            {diff && <Resources of={diff} chosen={resource} onChoose={choose} />}
            {resource && <Document key={resource} path={path} resource={resource} />}
          </section>
          <Restore index={of.index} resources={resources} resource={resource} />
        </div>
      )}
    </div>
  );
}

function Resources({ of, chosen, onChoose }: { of: HistoryDifference; chosen: string; onChoose: (resource: string) => void }) {
  const shown = of.changes.slice(0, most);
  return (
    <>
      <ul class="differences" aria-label="Changed resources">
        {shown.map((c) => (
          <li key={c.resource}>
            <Sign change={c.change} />{" "}
            <button type="button" class="link" aria-expanded={c.resource === chosen} onClick={() => onChoose(c.resource === chosen ? "" : c.resource)}>
              {c.resource}
            </button>{" "}
            {c.unknown ? <span class="error">{c.unknown}</span> : `${c.change}${c.difference ? `: ${c.difference}` : ""}`}
          </li>
        ))}
      </ul>
      {of.count === 0 && <p>None.</p>}
      {of.count > shown.length && <p>and {count(of.count - shown.length)} more</p>}
    </>
  );
}

/** What a change did to one resource: by field, and both contents by line. */
function Document({ path, resource }: { path: string; resource: string }) {
  const [change, setChange] = useState<VersionChange | "same" | null>(null);
  const [error, setError] = useState<unknown>(null);
  const question = useQuestion();
  useEffect(() => {
    question.ask(
      (signal) => get<HistoryDifference>(withQuery(`${path}/diff`, { resource }), signal),
      (d) => setChange(d.changes[0] ?? "same"),
      setError,
    );
  }, [path, resource]);
  const { type, name } = resourceName(resource);
  return (
    <section aria-label={resource}>
      <h3>{resource}</h3>
      {(type === "Cluster" || type === "ClusterLoadAssignment") && <p><a href={clusterHref(name)}>See {name}</a></p>}
      {error !== null && <p class="refusal">{says(error)}</p>}
      {change === null && error === null && <p>Loading…</p>}
      {change === "same" && <p>This change did not change it.</p>}
      {change !== null && change !== "same" && (change.unknown ? <p class="refusal">{change.unknown}</p> : <Contents of={change} type={type} />)}
    </section>
  );
}

function Contents({ of, type }: { of: VersionChange; type: string }) {
  const before = (of.before as Message | undefined) ?? null;
  const after = (of.after as Message | undefined) ?? null;
  const fields = !after
    ? []
    : type === "ClusterLoadAssignment" ? compareAssignments(before && assignmentOf(before), assignmentOf(after)) : compareMessages(before, after);
  const text = (m: Message | null) => (m ? JSON.stringify(m, null, 2) : "");
  const lines = compareLines(text(before), text(after));
  return (
    <>
      {after ? <Differences of={fields} isNew={!before} changes title="Difference to the version before" /> : <h3>Removed resource</h3>}
      <h3>Contents</h3>
      <div class="lines scroll" tabIndex={0} role="group" aria-label={`Contents of ${of.resource}, before and after`}>
        {lines.slice(0, 5000).map((l, i) =>
          l.change === "gap" ? (
            <span key={i} class="gap">… {plural(Number(l.text), "equal line")}</span>
          ) : l.change === "same" ? (
            <span key={i}>{`  ${l.text}`}</span>
          ) : l.change === "added" ? (
            <ins key={i} class="added">{`+ ${l.text}`}</ins>
          ) : (
            <del key={i} class="removed">{`− ${l.text}`}</del>
          ),
        )}
      </div>
      {lines.length > 5000 && <p>and {count(lines.length - 5000)} more lines</p>}
    </>
  );
}
