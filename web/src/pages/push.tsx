// Pushing a file: its errors, its effect, and the push.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, hasPath, Refusal, says } from "../api.ts";
import { type Body, isBlank, isLarge } from "../body.ts";
import type { TextEditor } from "../codemirror.ts";
import { clusterOf, contentType, kindOf, readDocument } from "../document.ts";
import { draftOf, keepDraft, otherDrafts } from "../drafts.ts";
import { plural } from "../format.ts";
import type { BrokenRule, PushAnswer } from "../model.ts";
import { Alert, Title } from "../parts/basics.tsx";
import { Editor } from "../parts/editor.tsx";
import { Effect } from "../parts/effect.tsx";
import { Effects } from "../parts/effects.tsx";
import { Rules } from "../parts/rules.tsx";
import { AskForToken, useAccess } from "../parts/token.tsx";
import { useQuestion } from "../question.ts";
import { clusterHref, href } from "../route.ts";
import { type Asked, judge, pathOf, same, send, type Verdict, type Where } from "../verdict.ts";

const places: Record<Where, { label: string; hint: string }> = {
  endpoints: { label: "endpoints of a cluster", hint: "a ClusterLoadAssignment" },
  config: { label: "config of a cluster", hint: "a Cluster" },
  snapshot: { label: "bundle: add and replace", hint: "resources that are not in the bundle stay" },
  replace: { label: "bundle: replace all", hint: "resources that are not in the bundle are removed" },
};

/** The length of a text that lbd accepts as YAML, in bytes. */
const mostYaml = 8 << 20;

export function Push({ query }: { query: URLSearchParams }) {
  const place = query.get("cluster") ?? "";
  const kept = useRef(draftOf(place)).current;
  const [body, setBody] = useState<Body>(kept?.body ?? "");
  const [where, setWhere] = useState<Where>(kept?.where ?? "endpoints");
  const [chosen, setChosen] = useState(kept?.chosen ?? false);
  const [cluster, setCluster] = useState(kept?.cluster ?? place);
  const [allowEmpty, setAllowEmpty] = useState(false);
  const [maxShift, setMaxShift] = useState("");
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [done, setDone] = useState<PushAnswer | null>(null);
  const [error, setError] = useState("");
  const [unjudged, setUnjudged] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [wanted, setWanted] = useState<Body | null>(null);
  const [round, setRound] = useState(0);
  const [over, setOver] = useState(false);
  const editor = useRef<TextEditor>(null);
  const result = useRef<HTMLHeadingElement>(null);
  const judged = useQuestion();
  const loaded = useQuestion();
  const access = useAccess();

  const asked: Asked = { body, where, cluster, allowEmpty, maxShift };
  const latest = useRef(asked);
  latest.current = asked;

  /** Takes a version that the editor made, or a file, which the editor gets. */
  const take = async (text: Body, isFile = false) => {
    loaded.drop(); // an older response must not replace newer text
    latest.current = { ...latest.current, body: text };
    setBody(text);
    if (isFile) {
      setWanted(text);
      editor.current?.replace(text);
    }
    setDone(null);
    setError("");
    setAllowEmpty(false);
    if (isBlank(text) || (isLarge(text) && !isFile)) return; // parsing a large text takes longer than typing a character
    const document = await readDocument(text.toString());
    if (!document || latest.current.body !== text) return;
    const kind = kindOf(document.value);
    if (kind && !chosen) setWhere(kind);
    const name = kind && clusterOf(document.value, kind);
    if (name) setCluster(name);
  };
  const takeFile = async (file: File | undefined) => {
    if (file) await take(await file.text(), true);
  };
  const load = () => {
    if (!isBlank(body) && !done && !confirm("Replace your text with the pushed resource?")) return;
    loaded.ask(
      async (signal) => {
        const read = (type: string) => call(pathOf(where, cluster), { headers: { Accept: type }, signal }, (r) => r.text());
        const yaml = await read(contentType.yaml);
        return yaml.body.length > mostYaml ? read(contentType.json) : yaml;
      },
      (a) => void take(a.body, true),
      (e) => setError(e instanceof Refusal && e.problem.status === 404 ? `Nothing was pushed for ${cluster}.` : says(e)),
    );
  };

  useEffect(() => keepDraft(place, !isBlank(body) && !done ? { body, where, chosen, cluster } : null), [body, where, chosen, cluster, done]);

  // The dry run starts shortly after the last change; that of a large text, which it sends as a whole, when it is wanted.
  const single = where === "endpoints" || where === "config";
  const nameless = single && !hasPath(cluster);
  const held = isLarge(body) && wanted !== body;
  const ready = !isBlank(body) && !held && (!single || cluster !== "") && !nameless;
  useEffect(() => {
    if (held) return; // the errors of the last version stay
    if (!ready || done) {
      setVerdict(null);
      return;
    }
    const timer = setTimeout(() => {
      judged.ask(
        (signal) => judge(asked, signal),
        (v) => {
          setVerdict(v);
          setUnjudged(null);
        },
        (e) => {
          setVerdict(null);
          setUnjudged(e);
        },
      );
    }, 300);
    return () => {
      clearTimeout(timer);
      judged.drop();
    };
  }, [body, where, cluster, allowEmpty, maxShift, ready, round, done, access.version]);

  const fresh = verdict && same(verdict, asked);
  const askAgain = () => setRound((n) => n + 1);
  const apply = async () => {
    if (busy || !verdict?.answer || verdict.problem || verdict.answer.changes.length === 0) return;
    setBusy(true);
    try {
      const removed = verdict.answer.changes.filter((c) => c.change === "removed").length;
      const answer = (await send(verdict, false, removed)).body;
      if (same(verdict, latest.current)) {
        setDone(answer);
        setError("");
        result.current?.focus();
      } else {
        setError(`The text was pushed without your latest changes: ${plural(answer.changes.length, "resource")} changed.`);
        askAgain();
      }
    } catch (e) {
      if (e instanceof Refusal && e.problem.code === "precondition_failed") {
        setError("The resource was changed in the meantime; nothing was pushed. Below is the difference to the current version.");
      } else {
        setError(says(e));
      }
      askAgain(); // compare with the current version
    } finally {
      setBusy(false);
    }
  };
  const goTo = (rule: BrokenRule) => {
    editor.current?.select(rule);
  };

  const problem = fresh ? verdict.problem : undefined;
  const errors = problem?.errors ?? [];
  const warnings = (fresh && verdict.answer?.warnings) || [];
  const notes = (fresh && verdict.answer?.notes) || [];
  return (
    <>
      <Title text="Push" />
      {otherDrafts(place).length > 0 && (
        <p>
          Drafts:{" "}
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
          <label>
            Reject if more moves than
            <span class="unit">
              <input
                id="max-shift" inputMode="decimal" pattern="[0-9]*[.]?[0-9]+" value={maxShift} placeholder="100" class="short" autocomplete="off"
                onInput={(e) => setMaxShift(e.currentTarget.validity.valid ? e.currentTarget.value : "")}
              />{" "}
              % of the picks
            </span>
          </label>
          {single && cluster && !nameless && (
            <button type="button" onClick={load}>
              Load what was pushed
            </button>
          )}
        </div>
        <div class="sides">
          <Editor body={() => latest.current.body} verdict={verdict} onInput={(text) => void take(text)} editor={editor} />
          <section class="verdict" aria-labelledby="verdict-title">
            <h2 id="verdict-title" ref={result} tabIndex={-1}>
              {done ? "Pushed" : "Effect"}
            </h2>
            {error && <Alert>{error}</Alert>}
            <div role="status">
              {done ? (
                <p>
                  {done.changes.length > 0 ? `Applied: ${plural(done.changes.length, "resource")} changed.` : "Applied; nothing changed."}{" "}
                  {single && <a href={clusterHref(cluster)}>See {cluster}</a>}
                </p>
              ) : nameless ? (
                <p>A cluster named {cluster} has no URL: push it in a bundle.</p>
              ) : held ? (
                <p>The text has {plural(body.length, "character")}. A check sends all of them, so this page does not check it while you type.</p>
              ) : !ready ? (
                <p>Paste, type or drop a resource: JSON or YAML.</p>
              ) : !fresh && unjudged !== null ? (
                <p class="refusal">The effect is unknown: {says(unjudged)}</p>
              ) : !fresh ? (
                <p>Loading…</p>
              ) : problem ? (
                <p class="refusal">
                  {errors.length > 0 ? `It would be rejected: ${plural(errors.length, "error")}.` : `It would be rejected: ${problem.detail}`}
                </p>
              ) : (
                <p>It can be applied.</p>
              )}
            </div>
            {held && !done && !nameless && (
              <button type="button" onClick={() => setWanted(body)}>
                Check
              </button>
            )}
            {ready && !done && !fresh && unjudged !== null && (
              <div class="more">
                <button type="button" onClick={askAgain}>
                  Ask again
                </button>
                <AskForToken problem={unjudged instanceof Refusal ? unjudged.problem : undefined} />
              </div>
            )}
            {errors.length > 0 && <Rules rules={errors} onGo={goTo} label="Errors" />}
            {problem?.code === "blocked" && errors.length === 0 && !verdict?.answer && (
              <label class="choice plain">
                <input type="checkbox" checked={allowEmpty} onChange={(e) => setAllowEmpty(e.currentTarget.checked)} /> allow no usable endpoint
              </label>
            )}
            {warnings.length > 0 && <Rules rules={warnings} onGo={goTo} label="Warnings" />}
            {notes.length > 0 && <Rules rules={notes} onGo={goTo} label="Notes" />}
            {fresh && verdict.answer && !done && (
              <>
                <Effects v={verdict} answer={verdict.answer} />
                {verdict.answer.effect && <Effect of={verdict.answer.effect} />}
                <button type="button" class="primary" aria-disabled={busy || !!problem || verdict.answer.changes.length === 0} onClick={() => void apply()}>
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
