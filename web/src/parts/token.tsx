// The prompt for a token, and what the frame of the dashboard shows about access.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call, Refusal, says } from "../api.ts";
import type { Problem } from "../model.ts";
import { useQuestion } from "../question.ts";
import { bearer, needsToken, session, type Access } from "../session.ts";

export function useAccess(): Access {
  const [access, setAccess] = useState(session.access);
  useEffect(() => {
    setAccess(session.access);
    return session.onAccess(() => setAccess(session.access));
  }, []);
  return access;
}

/** Characters that a token in a header can have. */
const valid = /^[\x21-\x7e]+$/;

/** Why the text cannot be a token, or "". */
function errorOf(token: string): string {
  if (token === "") return "Enter a token.";
  return valid.test(token) ? "" : "A token has only printable ASCII characters, without spaces.";
}

/** Sends one request with a token. It rejects if the token is not valid or lacks a role. */
async function check(token: string, role: string | undefined, signal: AbortSignal): Promise<void> {
  try {
    await call("v1/daemon", { headers: bearer(token), signal });
  } catch (e) {
    // A token without the role read may have the one that is missing.
    if (!(e instanceof Refusal && e.problem.code === "permission_denied" && (role === undefined || e.problem.role !== role))) throw e;
  }
}

export function Prompt() {
  const access = useAccess();
  return access.open ? <Dialog access={access} /> : null;
}

function Dialog({ access: { rejected, asked, refused } }: { access: Access }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const question = useQuestion();
  useLayoutEffect(() => {
    const d = dialog.current;
    d?.showModal();
    field.current?.focus();
    return () => d?.close(); // returns the focus
  }, []);

  const why = asked ?? refused;
  const reject = (text: string) => {
    setBusy(false);
    setError(text);
    field.current?.select();
    field.current?.focus();
  };
  const submit = () => {
    if (busy) return;
    const token = field.current?.value.trim() ?? "";
    const invalid = errorOf(token);
    if (invalid) {
      reject(invalid);
      return;
    }
    setBusy(true);
    setError("");
    question.ask(
      (signal) => check(token, why?.role, signal),
      () => session.use(token),
      (e) => reject(says(e)),
    );
  };
  return (
    <dialog
      ref={dialog} class="prompt" aria-labelledby="prompt-title" aria-describedby="prompt-why"
      onCancel={(e) => {
        e.preventDefault();
        session.dismiss();
      }}
      onClose={() => dialog.current && session.dismiss()} // not for the event of a dialog that was removed
    >
      <h2 id="prompt-title">{rejected ? "The token is no longer accepted" : "A token is required"}</h2>
      <div id="prompt-why">
        {rejected && <p>lbd rejected the token: {rejected.detail}.</p>}
        {why && <Reason of={why} />}
      </div>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          submit();
        }}
      >
        <label>
          Token
          <input
            ref={field} type="password" autocomplete="off" autocapitalize="off" spellcheck={false} aria-required="true"
            aria-invalid={error !== ""} aria-describedby="prompt-error prompt-hint"
          />
        </label>
        <div id="prompt-error" class="alert" role="alert">{error}</div>
        <p id="prompt-hint" class="of">The token stays in the memory of this page, until you reload or close it.</p>
        <div class="buttons">
          <button type="button" onClick={() => session.dismiss()}>
            Cancel
          </button>
          <button type="submit" class="primary" aria-disabled={busy}>
            {busy ? "Checking…" : "Use token"}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Why lbd refused a request, and the role that is missing. */
function Reason({ of }: { of: Problem }) {
  return (
    <p>
      {of.role && (
        <>
          Missing role: <b>{of.role}</b>.{" "}
        </>
      )}
      lbd answered: {of.detail}.
    </p>
  );
}

/** What lbd refuses to the page. It stays behind the prompt, which returns the focus to its button. */
export function Notice() {
  const { refused } = useAccess();
  if (!refused) return null;
  return (
    <section class="banner" aria-label="Access">
      <ul>
        <li>
          <span class="kind">
            <span aria-hidden="true">▲</span> Access refused
          </span>
          <Reason of={refused} />
          <button type="button" onClick={() => session.ask(null)}>
            Enter a token
          </button>
        </li>
      </ul>
    </section>
  );
}

/** Says that the page uses a token, and forgets it. */
export function TokenInUse() {
  const { hasToken } = useAccess();
  if (!hasToken) return null;
  const forget = () => {
    session.use("");
    location.reload(); // removes what was read with it
  };
  return (
    <p class="which">
      <span class="of">token in use</span>{" "}
      <button type="button" class="link" onClick={forget}>
        Forget
      </button>
    </p>
  );
}

/** A button that opens the prompt, if another token could be accepted. */
export function AskForToken({ problem }: { problem: Problem | undefined }) {
  const { hasToken } = useAccess();
  if (!problem || !needsToken(problem)) return null;
  return (
    <button type="button" onClick={() => session.ask(problem)}>
      {hasToken ? "Enter another token" : "Enter a token"}
    </button>
  );
}
