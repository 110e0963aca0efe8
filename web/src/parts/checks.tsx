// The report of lbd doctor on a cluster.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, Refusal, says, withQuery } from "../api.ts";
import { plural } from "../format.ts";
import type { Check, DoctorReport } from "../model.ts";
import { useQuestion } from "../question.ts";
import { Alert } from "./basics.tsx";
import { AskForToken } from "./token.tsx";

/** The sign and the word of each result. */
const results: Record<Check["status"], [sign: string, word: string]> = {
  problem: ["✗", "problem"],
  warning: ["!", "warning"],
  skipped: ["–", "skipped"],
  ok: ["✓", "ok"],
};

/** The checks of a cluster; at once if the address asks for them. */
export function Checks({ cluster, now }: { cluster: string; now: boolean }) {
  const place = useRef<HTMLElement>(null);
  const [report, setReport] = useState<DoctorReport | null>(null);
  const [failed, setFailed] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const question = useQuestion();
  const examine = () => {
    setBusy(true);
    question.ask(
      (signal) => get<DoctorReport>(withQuery("/v1/doctor", { cluster, dial: "true" }), signal),
      (r) => {
        setReport(r);
        setFailed(null);
        setBusy(false);
      },
      (why) => {
        setFailed(why);
        setBusy(false);
      },
    );
  };
  useEffect(() => {
    if (!now) return;
    examine();
    place.current?.scrollIntoView();
  }, [cluster, now]);
  const bad = report?.checks.filter((c) => c.status === "problem" || c.status === "warning") ?? [];
  const rest = report?.checks.filter((c) => c.status === "ok" || c.status === "skipped") ?? [];
  return (
    <section aria-labelledby="checks-title" class="checks" ref={place}>
      <h2 id="checks-title">
        Checks <span class="of">what lbd doctor finds, with a connection to each endpoint</span>
      </h2>
      <button type="button" aria-disabled={busy} onClick={() => !busy && examine()}>
        {busy ? "Examining…" : report ? "Examine again" : "Examine"}
      </button>
      {failed !== null && (
        <Alert>
          {says(failed)} <AskForToken problem={failed instanceof Refusal ? failed.problem : undefined} />
        </Alert>
      )}
      <div role="status">
        {report && (
          <p>
            {report.problems > 0 ? plural(report.problems, "problem") : "No problem"}, {plural(report.warnings, "warning")}: {report.summary}
          </p>
        )}
      </div>
      {bad.length > 0 && <List of={bad} />}
      {rest.length > 0 && (
        <details>
          <summary>{plural(rest.length, "check")} found nothing</summary>
          <List of={rest} />
        </details>
      )}
    </section>
  );
}

function List({ of }: { of: Check[] }) {
  return (
    <ul>
      {of.map((c, i) => {
        const [sign, word] = results[c.status];
        return (
          <li key={i} class={c.status}>
            <p>
              <span class="sign" aria-hidden="true">
                {sign}
              </span>{" "}
              <span class="unseen">{word}: </span>
              <strong>{c.check}</strong> {c.found}
            </p>
            {c.remedy && <p class="of">What to do: {c.remedy}</p>}
            {c.details && c.details.length > 0 && (
              <ul class="of">
                {c.details.map((d) => (
                  <li key={d}>{d}</li>
                ))}
              </ul>
            )}
          </li>
        );
      })}
    </ul>
  );
}
