// Where pushed resources are, and how far this lbd is behind.

import { useState } from "preact/hooks";
import { get, says } from "../api.ts";
import { count, span } from "../format.ts";
import type { StoreState } from "../model.ts";
import { Ago, Alert, Title, useNow } from "../parts/basics.tsx";
import { useRound } from "../question.ts";

/** The polling interval, in milliseconds: there is no stream. */
const every = 3000;
/** Seconds without a response of etcd that are usual. */
const usual = 10;

const kinds: Record<StoreState["kind"], string> = { memory: "memory, which is lost at the end of lbd", file: "a file of this lbd", etcd: "etcd" };

export function Store() {
  const [store, setStore] = useState<StoreState | null>(null);
  const [error, setError] = useState<unknown>(null);
  useRound(
    (signal) => get<StoreState>("v1/store", signal), every, "",
    (s) => {
      setStore(s);
      setError(null);
    },
    setError,
  );
  return (
    <div class={error === null ? "" : "old"}>
      <Title text="Store" />
      {error !== null && <Alert>{says(error)}</Alert>}
      {!store && error === null && <p>Loading…</p>}
      {store && <State of={store} />}
    </div>
  );
}

function State({ of: s }: { of: StoreState }) {
  const now = useNow();
  const behind = s.behind_seconds;
  const late = behind === undefined || behind > usual;
  const last = Math.max(s.index, s.last);
  return (
    <>
      <dl class="vitals">
        <div>
          <dt>Pushed resources are in</dt>
          <dd>
            {kinds[s.kind]}
            {s.fleet && <span class="of"> fleet {s.fleet.slice(0, 8)}</span>}
          </dd>
        </div>
        <div>
          <dt>Picks use index</dt>
          <dd>
            {count(s.served)}
            {last > s.served && <span class="warn"> {count(last - s.served)} behind</span>}
          </dd>
        </div>
        {s.kind === "etcd" && (
          <div>
            <dt>Known to be current</dt>
            <dd class={late ? "warn" : ""}>
              {behind !== undefined ? (late ? `${span(behind * 1000)} ago` : "now") : s.loaded ? "not since the start: from the local copy" : "nothing was read yet"}
            </dd>
          </div>
        )}
        <div>
          <dt>Pushes</dt>
          <dd class={s.error ? "bad" : ""}>
            {s.error ? "refused" : "accepted"}
            {s.error && s.failing_since && (
              <span class="of">
                {" "}for <Ago at={s.failing_since} now={now} suffix="" />
              </span>
            )}
          </dd>
        </div>
      </dl>
      {s.error && <p class="error">{s.error}</p>}
      {s.unknown_kinds && <p>Records of a newer lbd, of kinds that this one does not know: {Object.keys(s.unknown_kinds).join(", ")}. They have no effect here.</p>}
      {s.unreadable > 0 && <p class="error">{count(s.unreadable)} records in etcd cannot be read; what they were before stays in use.</p>}
    </>
  );
}
