// The history of resources: who changed what, what differs, and restoring after a preview.

import { useEffect, useState } from "preact/hooks";
import { call, clusterPath, get, Refusal, says, withQuery } from "../api.ts";
import { compareMessages } from "../diff.ts";
import { type Message } from "../document.ts";
import { count, dayAndClock, plural } from "../format.ts";
import type { ChangeEntry, ChangeList, ChangesOf, IndexDifference, PushAnswer } from "../model.ts";
import { Ago, Alert, Title, useNow } from "../parts/basics.tsx";
import { AskForToken, useAccess } from "../parts/token.tsx";
import { useQuestion } from "../question.ts";
import { clusterHref, href, replaceQuery } from "../route.ts";

const sources: Record<ChangeEntry["source"], string> = { push: "push", file: "resource file", server: "management server" };

export function History({ index, query }: { index?: string; query: URLSearchParams }) {
  return index === undefined ? <List query={query} /> : <One index={index} />;
}

/** Who made a change. */
const who = (c: ChangeEntry) => (c.source === "push" ? (c.caller ?? c.address ?? "") : (c.file ?? sources[c.source]));

function List({ query }: { query: URLSearchParams }) {
  const [cluster, setCluster] = useState(query.get("cluster") ?? "");
  const [list, setList] = useState<ChangeList | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [round, setRound] = useState(0);
  const question = useQuestion();
  const access = useAccess();
  const now = useNow();
  const load = (before?: number) =>
    question.ask(
      (signal) => get<ChangeList>(withQuery("v1/history", { cluster, before: before?.toString() }), signal),
      (page) => {
        setList((old) => (before !== undefined && old ? { ...page, changes: [...old.changes, ...page.changes] } : page));
        setError(null);
      },
      setError,
    );
  useEffect(() => {
    const timer = setTimeout(() => load(), 200);
    replaceQuery(["history"], { cluster: cluster || undefined });
    return () => clearTimeout(timer);
  }, [cluster, round, access.version]);
  return (
    <>
      <Title text="History" />
      <div class="ask">
        <label>
          Cluster
          <input value={cluster} autocomplete="off" placeholder="all" onInput={(e) => setCluster(e.currentTarget.value)} />
        </label>
        <button type="button" onClick={() => setRound((n) => n + 1)}>
          Reload
        </button>
      </div>
      {error !== null && <Alert>{says(error)}</Alert>}
      {error instanceof Refusal && <AskForToken problem={error.problem} />}
      {!list && error === null && <p>Loading…</p>}
      {list?.changes.length === 0 && <p>No change is known since index {count(list.oldest)}.</p>}
      {list && list.changes.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Changes">
          <table class="changes">
            <thead>
              <tr>
                <th scope="col" class="number">index</th>
                <th scope="col">when</th>
                <th scope="col">source</th>
                <th scope="col">by</th>
                <th scope="col">change</th>
              </tr>
            </thead>
            <tbody>
              {list.changes.map((c, i) => (
                <tr key={i}>
                  <th scope="row" class="number">
                    {c.source === "push" ? <a href={href(["history", String(c.index)])}>{count(c.index)}</a> : count(c.index)}
                  </th>
                  <td class="age"><Ago at={c.time} now={now} /></td>
                  <td>{sources[c.source]}</td>
                  <td>{who(c)}</td>
                  <td>
                    {c.message && <b>{c.message} </b>}
                    {c.restored !== undefined && <span class="of">restored {count(c.restored)}: </span>}
                    {c.problem ? <span class="bad">{c.problem}</span> : c.says}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {list?.next !== undefined && (
        <button type="button" onClick={() => load(list.next)}>
          Older changes
        </button>
      )}
    </>
  );
}

/** The index in an address; NaN if it is none. */
const numberOf = (index: string) => (/^\d{1,15}$/.test(index) ? Number(index) : NaN);

function One({ index }: { index: string }) {
  const at = numberOf(index);
  const [changes, setChanges] = useState<ChangesOf | null>(null);
  const [difference, setDifference] = useState<IndexDifference | null>(null);
  const [error, setError] = useState<unknown>(null);
  const question = useQuestion();
  const access = useAccess();
  useEffect(() => {
    question.ask(
      (signal) => Promise.all([get<ChangesOf>(`v1/history/${index}`, signal), get<IndexDifference>(`v1/history/${index}/diff`, signal)]),
      ([c, d]) => {
        setChanges(c);
        setDifference(d);
        setError(null);
      },
      setError,
    );
  }, [index, access.version]);
  if (Number.isNaN(at)) return <Title text={`${index} is no index`} />;
  return (
    <>
      <Title text={`Change ${count(at)}`} />
      <p>
        <a href="#/history">All changes</a>
      </p>
      {error !== null && <Alert>{says(error)}</Alert>}
      {error instanceof Refusal && <AskForToken problem={error.problem} />}
      {!changes && error === null && <p>Loading…</p>}
      {changes?.changes.map((c, i) => <About key={i} c={c} />)}
      {difference && (
        <>
          <h2>What it changed</h2>
          <ul class="resources">
            {difference.changes.map((c) => (
              <li key={c.resource}>
                <Resource at={at} of={c} />
              </li>
            ))}
          </ul>
          {difference.count > difference.changes.length && <p class="of">and {count(difference.count - difference.changes.length)} more</p>}
          <Restore at={at} resources={difference.changes.map((c) => c.resource)} />
        </>
      )}
    </>
  );
}

function About({ c }: { c: ChangeEntry }) {
  return (
    <p>
      {c.message && <b>{c.message} </b>}
      <span class="of">
        {sources[c.source]} by {who(c)} at {dayAndClock(Date.parse(c.time))}
        {c.restored !== undefined && <>, which restored index {count(c.restored)}</>}
        {!c.kept && ", without what it replaced: that was too large"}
      </span>
    </p>
  );
}

function Resource({ at, of }: { at: number; of: IndexDifference["changes"][number] }) {
  const [whole, setWhole] = useState<IndexDifference["changes"][number] | null>(null);
  const [error, setError] = useState("");
  const question = useQuestion();
  const show = (open: boolean) => {
    if (!open || whole) return;
    question.ask(
      (signal) => get<IndexDifference>(withQuery(`v1/history/${at}/diff`, { resource: of.resource }), signal),
      (d) => setWhole(d.changes[0] ?? null),
      (e) => setError(says(e)),
    );
  };
  const [kind = "", ...name] = of.resource.split("/");
  const differences = whole ? compareMessages((whole.before as Message | undefined) ?? null, (whole.after as Message | undefined) ?? {}) : [];
  return (
    <>
      {kind === "Cluster" || kind === "ClusterLoadAssignment" ? <a href={clusterHref(name.join("/"))}>{of.resource}</a> : of.resource}:{" "}
      {of.unknown ? <span class="warn">{of.unknown}</span> : (of.difference ?? of.change)}
      <details onToggle={(e) => show(e.currentTarget.open)}>
        <summary>Contents</summary>
        {error && <Alert>{error}</Alert>}
        {whole && (
          <>
            <ul class="differences">
              {differences.map((d, i) => (
                <li key={i} class={d.change}>
                  {d.what} {d.from !== undefined && <del>{d.from}</del>} {d.to !== undefined && <ins>{d.to}</ins>}
                </li>
              ))}
            </ul>
            <div class="sides">
              <Text title="Before" of={whole.before} />
              <Text title="After" of={whole.after} />
            </div>
          </>
        )}
      </details>
    </>
  );
}

function Text({ title, of }: { title: string; of: unknown }) {
  return (
    <section>
      <h3>{title}</h3>
      {of === undefined ? <p>It did not exist.</p> : <pre tabIndex={0} role="group" aria-label={title}>{JSON.stringify(of, null, 2)}</pre>}
    </section>
  );
}

/** The parts that can be restored on condition that nothing has changed since the preview, each with the path of its ETag. */
function partsOf(resources: string[]): { label: string; query: Record<string, string | boolean>; etag: string }[] {
  const parts = [];
  for (const resource of resources.slice(0, 20)) {
    const [kind = "", ...rest] = resource.split("/");
    const path = kind === "ClusterLoadAssignment" ? "/endpoints" : kind === "Cluster" ? "/config" : "";
    if (path) parts.push({ label: resource, query: { resource }, etag: clusterPath(rest.join("/"), path) });
  }
  return [...parts, { label: "everything", query: { all: true }, etag: "v1/snapshot" }];
}

function Restore({ at, resources }: { at: number; resources: string[] }) {
  const parts = partsOf(resources);
  const [part, setPart] = useState(0);
  const [to, setTo] = useState(at - 1);
  const [message, setMessage] = useState("");
  const [preview, setPreview] = useState<{ answer: PushAnswer; condition: Record<string, string> } | null>(null);
  const [done, setDone] = useState<PushAnswer | null>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const chosen = parts[part] ?? parts[0]!;
  const ascii = /^[\x20-\x7e]*$/.test(message);
  const send = (dryRun: boolean, condition: Record<string, string>) => {
    const headers: Record<string, string> = message && !dryRun ? { ...condition, "Lbd-Message": message } : condition;
    return call<PushAnswer>(withQuery(`v1/history/${to}/restore`, { ...chosen.query, dry_run: dryRun }), { method: "POST", headers });
  };
  const forget = () => {
    setPreview(null);
    setDone(null);
    setError("");
  };
  const attempt = async (how: () => Promise<void>) => {
    if (busy) return;
    setBusy(true);
    setError("");
    try {
      await how();
    } catch (e) {
      setPreview(null);
      setError(e instanceof Refusal && e.problem.code === "precondition_failed" ? "It was changed in the meantime; nothing was restored. Preview it again." : says(e));
    } finally {
      setBusy(false);
    }
  };
  const look = () =>
    attempt(async () => {
      const condition = await present(chosen.etag);
      setPreview({ answer: (await send(true, condition)).body, condition });
    });
  const restore = () =>
    attempt(async () => {
      if (!preview) return;
      setDone((await send(false, preview.condition)).body);
      setPreview(null);
    });
  return (
    <section class="restore" aria-labelledby="restore-title">
      <h2 id="restore-title">Restore</h2>
      <div class="ask">
        <label>
          As of
          <select
            value={to}
            onChange={(e) => {
              setTo(Number(e.currentTarget.value));
              forget();
            }}
          >
            <option value={at - 1}>before this change</option>
            <option value={at}>after this change</option>
          </select>
        </label>
        <label>
          What
          <select
            value={part}
            onChange={(e) => {
              setPart(Number(e.currentTarget.value));
              forget();
            }}
          >
            {parts.map((p, i) => (
              <option key={p.label} value={i}>
                {p.label}
              </option>
            ))}
          </select>
        </label>
        <label>
          Message
          <input value={message} maxLength={500} autocomplete="off" onInput={(e) => setMessage(e.currentTarget.value)} />
        </label>
        <button type="button" aria-disabled={busy} onClick={() => void look()}>
          Preview
        </button>
      </div>
      {!ascii && <p class="warn">Browsers send only ASCII characters in a message.</p>}
      {error && <Alert>{error}</Alert>}
      <div role="status">
        {done && <p>Restored: {plural(done.changes.length, "resource")} changed, index {count(done.index)}.</p>}
        {preview && preview.answer.changes.length === 0 && <p>Nothing would change.</p>}
        {preview && preview.answer.changes.length > 0 && (
          <>
            <p>{plural(preview.answer.changes.length, "resource")} would change, later changes included:</p>
            <ul>
              {preview.answer.changes.slice(0, 20).map((c) => (
                <li key={c.resource}>
                  {c.resource}: {c.difference ?? c.change}
                </li>
              ))}
            </ul>
            <button type="button" class="primary" aria-disabled={busy || !ascii} onClick={() => ascii && void restore()}>
              Restore
            </button>
          </>
        )}
      </div>
    </section>
  );
}

/** The condition that what a path has is unchanged. */
async function present(path: string): Promise<Record<string, string>> {
  try {
    const { etag } = await call(path, { method: "HEAD" }, () => Promise.resolve(null));
    return etag ? { "If-Match": etag } : {};
  } catch (e) {
    if (e instanceof Refusal && e.problem.status === 404) return { "If-None-Match": "*" };
    throw e;
  }
}
