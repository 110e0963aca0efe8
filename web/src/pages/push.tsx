// Pushing a file: what is wrong with it, what it would change, and then doing it.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, clusterPath, get, hasPath, Refusal, says, withQuery } from "../api.ts";
import { compareAssignments, compareMessages, type Difference } from "../diff.ts";
import { assignmentOf, clusterOf, contentType, formatOf, kindOf, readDocument, resourcesOf, type Document, type Message } from "../document.ts";
import { draftOf, keepDraft, otherDrafts, type Where } from "../drafts.ts";
import { count, percent, plural } from "../format.ts";
import type { BrokenRule, ClusterState, LocalityState, Problem, PushAnswer } from "../model.ts";
import { Alert, Bar, Title } from "../parts/basics.tsx";
import { useQuestion } from "../question.ts";
import { localityKey } from "../rates.ts";
import { clusterHref, href } from "../route.ts";
import { basisOf, type Basis, dropped, firstUsed, predict } from "../shares.ts";

const places: Record<Where, { label: string; hint: string }> = {
  endpoints: { label: "endpoints of a cluster", hint: "a ClusterLoadAssignment" },
  config: { label: "config of a cluster", hint: "a Cluster" },
  snapshot: { label: "many: add and replace", hint: "a bundle: what it does not name stays" },
  replace: { label: "many: replace all", hint: "a bundle: what it does not name is removed" },
};

/** What is live now, and what it is known by. */
interface LiveDocument {
  value: Message | null;
  etag?: string;
}

/** What is asked about. */
interface Asked {
  body: string;
  where: Where;
  cluster: string;
  allowEmpty: boolean;
}

const same = (a: Asked, b: Asked) => a.body === b.body && a.where === b.where && a.cluster === b.cluster && a.allowEmpty === b.allowEmpty;

interface Verdict extends Asked {
  document: Document | null;
  live: LiveDocument;
  answer?: PushAnswer;
  problem?: Problem;
}

const example = `endpoints:
- locality: {region: us-east1, zone: a}
  load_balancing_weight: 3
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.0.0.7, port_value: 8080}}}
`;

const pathOf = (where: Where, cluster: string) =>
  where === "endpoints" ? clusterPath(cluster, "/endpoints") : where === "config" ? clusterPath(cluster, "/config") : "v1/snapshot";
const methodOf = (where: Where) => (where === "snapshot" ? "POST" : "PUT");

async function liveDocument(where: Where, cluster: string, signal: AbortSignal): Promise<LiveDocument> {
  try {
    const a = await call<Message>(pathOf(where, cluster), { headers: { Accept: "application/json" }, signal });
    return { value: a.body, etag: a.etag };
  } catch (e) {
    if (e instanceof Refusal && e.problem.status === 404) return { value: null };
    throw e;
  }
}

function send(v: Asked & { live: LiveDocument }, dryRun: boolean, maxRemoved?: number, signal?: AbortSignal) {
  const condition: Record<string, string> = v.live.etag ? { "If-Match": v.live.etag } : { "If-None-Match": "*" };
  const query = { dry_run: dryRun, allow_empty: v.allowEmpty, max_removed: v.where === "replace" && maxRemoved !== undefined ? String(maxRemoved) : undefined };
  return call<PushAnswer>(withQuery(pathOf(v.where, v.cluster), query), {
    method: methodOf(v.where), body: v.body, headers: { "Content-Type": contentType[formatOf(v.body)], ...condition }, signal,
  });
}

/** How often it is asked again where somebody else pushes between two questions. */
const mostRounds = 3;

async function judge(asked: Asked, signal: AbortSignal): Promise<Verdict> {
  for (let round = 1; ; round++) {
    const [document, live] = await Promise.all([readDocument(asked.body), liveDocument(asked.where, asked.cluster, signal)]);
    const v: Verdict = { ...asked, document, live };
    try {
      v.answer = (await send(v, true, undefined, signal)).body;
      return v;
    } catch (e) {
      if (!(e instanceof Refusal)) throw e;
      if (e.problem.code === "precondition_failed" && round < mostRounds) continue;
      // What is no answer of lbd's judges nothing.
      if (e.problem.status === 0 || e.problem.status >= 500) throw e;
      v.problem = e.problem;
      return v;
    }
  }
}

export function Push({ query }: { query: URLSearchParams }) {
  const place = query.get("cluster") ?? "";
  const kept = useRef(draftOf(place)).current;
  const [body, setBody] = useState(kept?.body ?? "");
  const [where, setWhere] = useState<Where>(kept?.where ?? "endpoints");
  const [chosen, setChosen] = useState(kept?.chosen ?? false);
  const [cluster, setCluster] = useState(kept?.cluster ?? place);
  const [allowEmpty, setAllowEmpty] = useState(false);
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [done, setDone] = useState<PushAnswer | null>(null);
  const [error, setError] = useState("");
  const [unjudged, setUnjudged] = useState("");
  const [busy, setBusy] = useState(false);
  const [round, setRound] = useState(0);
  const [over, setOver] = useState(false);
  const editor = useRef<HTMLTextAreaElement>(null);
  const result = useRef<HTMLHeadingElement>(null);
  const judged = useQuestion();
  const loaded = useQuestion();

  const asked: Asked = { body, where, cluster, allowEmpty };
  const latest = useRef(asked);
  latest.current = asked;

  const take = async (text: string) => {
    setBody(text);
    setDone(null);
    setError("");
    setAllowEmpty(false);
    const document = text.trim() ? await readDocument(text) : null;
    if (!document || latest.current.body !== text) return;
    const kind = kindOf(document.value);
    if (kind && !chosen) setWhere(kind);
    const name = kind && clusterOf(document.value, kind);
    if (name) setCluster(name);
  };
  const takeFile = async (file: File | undefined) => {
    if (file) await take(await file.text());
  };
  const load = () => {
    if (body.trim() && !done && !confirm("Put what was pushed in the place of what you typed?")) return;
    loaded.ask(
      (signal) => call(pathOf(where, cluster), { headers: { Accept: "application/yaml" }, signal }, (r) => r.text()),
      (a) => void take(a.body),
      (e) => setError(e instanceof Refusal && e.problem.status === 404 ? `Nothing was pushed for ${cluster}.` : says(e)),
    );
  };

  useEffect(() => keepDraft(place, body.trim() && !done ? { body, where, chosen, cluster } : null), [body, where, chosen, cluster, done]);

  // What would happen is asked a moment after the last change.
  const single = where === "endpoints" || where === "config";
  const nameless = single && !hasPath(cluster);
  const ready = body.trim() !== "" && (!single || cluster !== "") && !nameless;
  useEffect(() => {
    if (!ready || done) {
      setVerdict(null);
      return;
    }
    const timer = setTimeout(() => {
      judged.ask(
        (signal) => judge(asked, signal),
        (v) => {
          setVerdict(v);
          setUnjudged("");
        },
        (e) => {
          setVerdict(null);
          setUnjudged(says(e));
        },
      );
    }, 300);
    return () => {
      clearTimeout(timer);
      judged.drop();
    };
  }, [body, where, cluster, allowEmpty, ready, round, done]);

  const fresh = verdict && same(verdict, asked);
  const askAgain = () => setRound((n) => n + 1);
  const apply = async () => {
    if (busy || !verdict?.answer || verdict.answer.changes.length === 0) return;
    setBusy(true);
    try {
      const removed = verdict.answer.changes.filter((c) => c.change === "removed").length;
      const answer = (await send(verdict, false, removed)).body;
      if (same(verdict, latest.current)) {
        setDone(answer);
        setError("");
        result.current?.focus();
      } else {
        setError(`The text was pushed as it was before you changed it: ${plural(answer.changes.length, "resource")} changed.`);
        askAgain();
      }
    } catch (e) {
      if (e instanceof Refusal && e.problem.code === "precondition_failed") {
        setError("Somebody else changed it in the meantime; nothing was overwritten. Below is the difference to what is live now.");
      } else {
        setError(says(e));
      }
      askAgain(); // see what is live now
    } finally {
      setBusy(false);
    }
  };
  const goTo = (rule: BrokenRule) => {
    const area = editor.current;
    if (!area || !rule.line) return;
    const lines = body.split("\n");
    const start = lines.slice(0, rule.line - 1).reduce((a, l) => a + l.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + (lines[rule.line - 1]?.length ?? 0));
    area.scrollTop = Math.max(0, (rule.line - 4) * lineHeight);
  };

  const problem = fresh ? verdict.problem : undefined;
  const errors = problem?.errors ?? [];
  const warnings = (fresh && verdict.answer?.warnings) || [];
  return (
    <>
      <Title text="Push" />
      {otherDrafts(place).length > 0 && (
        <p>
          Typed and not pushed yet:{" "}
          {otherDrafts(place).map((p, i) => (
            <span key={p}>
              {i > 0 && ", "}
              <a href={href(["push"], { cluster: p })}>{p ? `for ${p}` : "without a cluster's link"}</a>
            </span>
          ))}
        </p>
      )}
      <div
        class={`push ${over ? "over" : ""}`}
        onDragOver={(e) => {
          e.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(e) => {
          e.preventDefault();
          setOver(false);
          void takeFile(e.dataTransfer?.files[0]);
        }}
      >
        <div class="ask">
          <label>
            What it is
            <select
              value={where}
              onChange={(e) => {
                setChosen(true);
                setWhere(e.currentTarget.value as Where);
                setDone(null);
              }}
            >
              {Object.entries(places).map(([id, p]) => (
                <option key={id} value={id} title={p.hint}>
                  {p.label}
                </option>
              ))}
            </select>
          </label>
          {single && (
            <label>
              Cluster
              <input
                value={cluster} required autocomplete="off"
                onInput={(e) => {
                  setCluster(e.currentTarget.value);
                  setDone(null);
                }}
              />
            </label>
          )}
          <label class="file">
            File
            <input type="file" accept=".json,.yaml,.yml" onChange={(e) => void takeFile(e.currentTarget.files?.[0])} />
          </label>
          {single && cluster && !nameless && (
            <button type="button" onClick={load}>
              Load what was pushed
            </button>
          )}
        </div>
        <div class="sides">
          <Editor body={body} rules={errors} warnings={warnings} onInput={(text) => void take(text)} area={editor} />
          <section class="verdict" aria-labelledby="verdict-title">
            <h2 id="verdict-title" ref={result} tabIndex={-1}>
              {done ? "Pushed" : "What it would do"}
            </h2>
            {error && <Alert>{error}</Alert>}
            <div role="status">
              {done ? (
                <p>
                  {done.changes.length > 0 ? `It holds: ${plural(done.changes.length, "resource")} changed.` : "It holds; nothing was different."}{" "}
                  {single && <a href={clusterHref(cluster)}>See {cluster}</a>}
                </p>
              ) : nameless ? (
                <p>A cluster that is called {cluster} has no path of its own: push it in a bundle.</p>
              ) : !ready ? (
                <p>Paste, type or drop a resource: JSON or YAML.</p>
              ) : !fresh && unjudged ? (
                <p class="refusal">What it would do is not known: {unjudged}</p>
              ) : !fresh ? (
                <p>Asking lbd…</p>
              ) : problem ? (
                <p class="refusal">
                  {errors.length > 0 ? `It would be refused: ${plural(errors.length, "broken rule")}.` : `It would be refused: ${problem.detail}`}
                </p>
              ) : (
                <p>It can be applied.</p>
              )}
            </div>
            {ready && !done && !fresh && unjudged && (
              <button type="button" onClick={askAgain}>
                Ask again
              </button>
            )}
            {errors.length > 0 && <Rules rules={errors} onGo={goTo} label="Broken rules" />}
            {problem?.code === "blocked" && (
              <label class="choice plain">
                <input type="checkbox" checked={allowEmpty} onChange={(e) => setAllowEmpty(e.currentTarget.checked)} /> leave it without a usable endpoint all the same
              </label>
            )}
            {warnings.length > 0 && <Rules rules={warnings} onGo={goTo} label="Warnings" />}
            {fresh && verdict.answer && !done && (
              <>
                <Effects v={verdict} answer={verdict.answer} />
                <button type="button" class="primary" aria-disabled={busy || verdict.answer.changes.length === 0} onClick={() => void apply()}>
                  {verdict.answer.changes.length === 0 ? "Nothing to apply" : "Apply"}
                </button>
              </>
            )}
          </section>
        </div>
      </div>
    </>
  );
}

const lineHeight = 18;

function Editor({ body, rules, warnings, onInput, area }: {
  body: string;
  rules: BrokenRule[];
  warnings: BrokenRule[];
  onInput: (text: string) => void;
  area: { current: HTMLTextAreaElement | null };
}) {
  const gutter = useRef<HTMLDivElement>(null);
  const lines = Math.max(body.split("\n").length, 12);
  const bad = new Map<number, string>();
  for (const r of warnings) if (r.line) bad.set(r.line, "warned");
  for (const r of rules) if (r.line) bad.set(r.line, "broken");
  const marks = [...bad.entries()].sort((a, b) => a[0] - b[0]);
  // Of a very long body only the lines with marks have numbers.
  const numbered = lines <= 5000 ? Array.from({ length: lines }, (_, i) => i + 1) : marks.map(([l]) => l);
  return (
    <div class="editor">
      <label for="body" class="unseen">
        The resource, JSON or YAML
      </label>
      <div class="gutter" ref={gutter} aria-hidden="true">
        <div style={{ height: `${lines * lineHeight + 8}px` }}>
          {numbered.map((n) => (
            <span key={n} class={bad.get(n) ?? ""} style={{ top: `${(n - 1) * lineHeight + 4}px` }}>
              {bad.get(n) === "broken" ? "✕ " : bad.get(n) === "warned" ? "! " : ""}
              {n}
            </span>
          ))}
        </div>
      </div>
      <textarea
        id="body" ref={area} value={body} placeholder={example} spellcheck={false} autocomplete="off" autocapitalize="off" wrap="off"
        aria-invalid={rules.length > 0} onInput={(e) => onInput(e.currentTarget.value)}
        onScroll={(e) => {
          if (gutter.current) gutter.current.scrollTop = e.currentTarget.scrollTop;
        }}
      />
    </div>
  );
}

function Rules({ rules, onGo, label }: { rules: BrokenRule[]; onGo: (r: BrokenRule) => void; label: string }) {
  return (
    <ul class="rules" aria-label={label}>
      {rules.map((r, i) => (
        <li key={i}>
          {r.line ? (
            <button type="button" class="link" onClick={() => onGo(r)}>
              line {r.line}
              {r.column ? `, column ${r.column}` : ""}
            </button>
          ) : (
            <span>{r.resource}</span>
          )}
          : {r.field && <code>{r.field}</code>} {r.reason}
        </li>
      ))}
    </ul>
  );
}

/** What would change, and where picks would go. */
function Effects({ v, answer }: { v: Verdict; answer: PushAnswer }) {
  if (!v.document) {
    return (
      <>
        <p>This page cannot read the text as lbd reads it: it shows no difference. {answer.changes.length > 0 && "lbd would change:"}</p>
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

function Sign({ change }: { change: string }) {
  const sign = change === "added" ? "+" : change === "removed" ? "−" : "~";
  return (
    <span class={`sign ${change}`} aria-hidden="true">
      {sign}
    </span>
  );
}

function Differences({ of, isNew, changes }: { of: Difference[]; isNew: boolean; changes: boolean }) {
  return (
    <section aria-label="The difference to what is live">
      <h3>{isNew ? "New: nothing was pushed yet" : "The difference to what is live"}</h3>
      {of.length === 0 && <p>{changes ? "lbd would change it, in nothing that this page can show." : "None."}</p>}
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

/** What a policy's choice makes of the shares, in a sentence. */
function basisWords(basis: Basis, policy: string): string {
  switch (basis) {
    case "weights":
      return "";
    case "hashes":
      return "ring_hash sends each hash key to one endpoint: these are shares of the keys, and of picks as far as all keys are asked for alike.";
    case "endpoints":
      return `Its policy, ${policy}, gives each endpoint as much, and heeds no locality's weight.`;
    case "load":
      return `Its policy, ${policy}, goes by what is in flight, and heeds no locality's weight: these are the shares while all endpoints are as busy.`;
    case "unknown":
      return policy ? `How its policy, ${policy}, shares picks out cannot be told before.` : "It has no policy that can be used: no share can be told.";
  }
}

function Shares({ cluster, after, asked, configToo = false }: { cluster: string; after: Message; asked: Verdict; configToo?: boolean }) {
  /** As it is now; "new" where it is not there yet. */
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
        {configToo && " The same push changes its config: where that changes the policy, shares are others."}
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
