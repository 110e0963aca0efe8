// Restoring what was pushed at an index, after a preview.

import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal, says } from "../api.ts";
import { count, plural } from "../format.ts";
import type { PushAnswer } from "../model.ts";
import { useQuestion } from "../question.ts";
import { messageError, type Part, partsOf, partWords, type Preview, previewRestore, sendRestore } from "../restore.ts";
import { href } from "../route.ts";
import { Alert } from "./basics.tsx";
import { Rules } from "./rules.tsx";
import { Effect } from "./effect.tsx";
import { Sign } from "./effects.tsx";
import { AskForToken } from "./token.tsx";

/** The number of changed resources that a preview lists. */
const most = 200;

/** Restores resources of a change. Another chosen resource becomes what is restored. */
export function Restore({ index, resources, resource }: { index: number; resources: string[]; resource: string }) {
  const parts = partsOf(resources);
  const [chosen, setChosen] = useState("");
  const [undo, setUndo] = useState(index > 0);
  const [allowEmpty, setAllowEmpty] = useState(false);
  const [message, setMessage] = useState("");
  const [preview, setPreview] = useState<Preview | null>(null);
  const [asking, setAsking] = useState(false);
  const [failed, setFailed] = useState<unknown>(null);
  const [done, setDone] = useState<PushAnswer | null>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const title = useRef<HTMLHeadingElement>(null);
  const question = useQuestion();

  const part: Part = parts.find((p) => partWords(p) === chosen) ?? parts[0] ?? {};
  const target = undo ? index - 1 : index;
  const reset = () => {
    question.drop();
    setPreview(null);
    setAsking(false);
    setFailed(null);
    setDone(null);
    setError("");
  };
  useEffect(() => {
    if (!resource || !parts.some((p) => p.resource === resource)) return;
    setChosen(resource);
    setAllowEmpty(false);
    reset();
  }, [resource]);

  const ask = (empty: boolean) => {
    setPreview(null);
    setFailed(null);
    setAsking(true);
    question.ask(
      (signal) => previewRestore({ index: target, part, allowEmpty: empty }, signal),
      (p) => {
        setPreview(p);
        setAsking(false);
      },
      (e) => {
        setFailed(e);
        setAsking(false);
      },
    );
  };
  const wrong = messageError(message);
  const changes = preview?.answer?.changes ?? [];
  const apply = async () => {
    if (busy || !preview?.answer || changes.length === 0 || wrong) return;
    setBusy(true);
    try {
      setDone((await sendRestore(preview, false, message.trim())).body);
      setPreview(null);
      setError("");
      setMessage("");
      title.current?.focus();
    } catch (e) {
      if (e instanceof Refusal && e.problem.code === "precondition_failed") {
        setError("A resource was changed in the meantime; nothing was restored. Below is the preview for the current version.");
      } else {
        setError(says(e));
      }
      ask(allowEmpty);
    } finally {
      setBusy(false);
    }
  };
  const problem = preview?.problem;
  const errors = problem?.errors ?? [];
  return (
    <section class="verdict" aria-labelledby="restore-title">
      <h2 id="restore-title" ref={title} tabIndex={-1}>
        {done ? "Restored" : "Restore"}
      </h2>
      <div class="ask">
        <label>
          What to restore
          <select
            value={partWords(part)} disabled={busy}
            onChange={(e) => {
              setChosen(e.currentTarget.value);
              setAllowEmpty(false);
              reset();
            }}
          >
            {parts.map((p) => (
              <option key={partWords(p)} value={partWords(p)}>
                {partWords(p)}
              </option>
            ))}
          </select>
        </label>
        <label>
          As it was
          <select
            value={undo ? "before" : "after"} disabled={busy}
            onChange={(e) => {
              setUndo(e.currentTarget.value === "before");
              setAllowEmpty(false);
              reset();
            }}
          >
            {index > 0 && <option value="before">before this change, at index {index - 1} (undo)</option>}
            <option value="after">after this change, at index {index}</option>
          </select>
        </label>
        <button
          type="button" aria-disabled={asking || busy}
          onClick={() => {
            if (asking || busy) return;
            reset();
            ask(allowEmpty);
          }}
        >
          Preview
        </button>
      </div>
      {error && <Alert>{error}</Alert>}
      <div role="status">
        {done ? (
          <p>
            {plural(done.changes.length, "resource")} restored. <a href={href(["history", String(done.index)])}>See change {done.index}</a>
          </p>
        ) : asking ? (
          <p>Loading…</p>
        ) : failed !== null ? (
          <p class="refusal">The effect is unknown: {says(failed)}</p>
        ) : problem ? (
          <p class="refusal">{errors.length > 0 ? `It would be rejected: ${plural(errors.length, "error")}.` : `It would be rejected: ${problem.detail}`}</p>
        ) : !preview ? (
          <p>The preview shows what a restore would change. Later changes of the same resources are undone, too.</p>
        ) : changes.length === 0 ? (
          <p>Nothing would change.</p>
        ) : (
          <p>{plural(changes.length, "resource")} would change:</p>
        )}
      </div>
      <AskForToken problem={failed instanceof Refusal ? failed.problem : undefined} />
      {errors.length > 0 && <Rules rules={errors} onGo={() => undefined} label="Errors" />}
      {problem?.code === "blocked" && errors.length === 0 && (
        <label class="choice plain">
          <input
            type="checkbox" checked={allowEmpty}
            onChange={(e) => {
              setAllowEmpty(e.currentTarget.checked);
              ask(e.currentTarget.checked);
            }}
          />{" "}
          allow no usable endpoint
        </label>
      )}
      {preview?.answer && (
        <>
          <ul class="differences" aria-label="Preview">
            {changes.slice(0, most).map((c) => (
              <li key={c.resource}>
                <Sign change={c.change} /> <span class="what">{c.resource}</span> {c.change}
                {c.difference && `: ${c.difference}`}
              </li>
            ))}
          </ul>
          {changes.length > most && <p>and {count(changes.length - most)} more</p>}
          {preview.answer.effect && <Effect of={preview.answer.effect} />}
          {preview.answer.warnings.length > 0 && <Rules rules={preview.answer.warnings} onGo={() => undefined} label="Warnings" />}
          {preview.answer.notes.length > 0 && <Rules rules={preview.answer.notes} onGo={() => undefined} label="Notes" />}
        </>
      )}
      {changes.length > 0 && (
        <>
          <div class="ask">
            <label>
              Message (optional)
              <input
                value={message} autocomplete="off" aria-invalid={wrong !== ""} aria-describedby="message-error"
                onInput={(e) => setMessage(e.currentTarget.value)}
              />
            </label>
          </div>
          <p id="message-error" class="error" role="status">{wrong}</p>
          <button type="button" class="primary" aria-disabled={busy || wrong !== ""} onClick={() => void apply()}>
            Restore
          </button>
        </>
      )}
    </section>
  );
}
