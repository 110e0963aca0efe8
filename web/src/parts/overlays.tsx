// The overlays of a cluster: what operators have changed on top of its sources, and the undo of it.

import { useState } from "preact/hooks";
import { call, clusterPath, get, Refusal, says } from "../api.ts";
import { count, plural } from "../format.ts";
import type { Overlay, OverlayList } from "../model.ts";
import { useRound } from "../question.ts";
import { Ago, Alert, Countdown } from "./basics.tsx";
import { AskForToken } from "./token.tsx";

/** How often the progress of a drain is read, in milliseconds. */
const every = 2000;

const isDrain = (o: Overlay) => o.kind === "drain" || o.kind === "disable";
const keyOf = (o: Overlay) => `${o.cluster}/${o.id}`;

export function Overlays({ of, now }: { of: Overlay[]; now: number }) {
  const [inFlight, setInFlight] = useState<Record<string, number>>({});
  const drained = [...new Set(of.filter(isDrain).map((o) => o.cluster))].sort();
  useRound(
    async (signal) => {
      const lists = await Promise.all(drained.map((c) => get<OverlayList>(clusterPath(c, "/overlays"), signal)));
      return lists.flatMap((l) => l.overlays);
    },
    every,
    JSON.stringify(drained),
    (all) => setInFlight(Object.fromEntries(all.map((o) => [keyOf(o), o.in_flight ?? 0]))),
    () => undefined, // the stream of the page reports the error
  );
  return (
    <section aria-labelledby="overlays-title" class="overlays">
      <h2 id="overlays-title">
        Overlays <span class="of">what operators have changed on top of the sources</span>
      </h2>
      <ul>
        {of.map((o) => (
          <Row key={keyOf(o)} overlay={o} now={now} left={inFlight[keyOf(o)]} />
        ))}
      </ul>
    </section>
  );
}

function Row({ overlay: o, now, left }: {
  overlay: Overlay;
  now: number;
  /** The requests in flight of the endpoints of a drain; undefined before they are known. */
  left: number | undefined;
}) {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<unknown>(null);
  const remove = async () => {
    setBusy(true);
    try {
      await call(clusterPath(o.cluster, `/overlays/${encodeURIComponent(o.id)}`), { method: "DELETE" });
      setFailed(null);
    } catch (e) {
      setFailed(e);
    }
    setBusy(false);
    setAsking(false);
  };
  return (
    <li>
      <p>
        <span class="tag tone-busy">{o.id}</span> <strong>{o.says}</strong>
        {o.superseded_by && <span class="warn"> has no effect: {o.superseded_by} is newer</span>}
        {o.endpoints === 0 && <span class="of"> no endpoint matches now</span>}
        {isDrain(o) && left !== undefined && (o.endpoints ?? 0) > 0 && (
          <span class={left > 0 ? "warn" : ""}> {left > 0 ? `${count(left)} in flight left` : "nothing in flight"}</span>
        )}
      </p>
      <p class="of">
        {o.reason && <>{o.reason}; </>}
        {o.author ? `by ${o.author}, ` : ""}
        <Ago at={o.created} now={now} />, {o.expires ? <Countdown to={o.expires} now={now} what="ends" /> : "until it is removed"}{" "}
        {asking ? (
          <>
            <button type="button" disabled={busy} onClick={() => void remove()}>
              Remove it: picks change at once
            </button>{" "}
            <button type="button" onClick={() => setAsking(false)}>Keep it</button>
          </>
        ) : (
          <button type="button" onClick={() => setAsking(true)}>Undo</button>
        )}
      </p>
      {failed !== null && (
        <Alert>
          {says(failed)} <AskForToken problem={failed instanceof Refusal ? failed.problem : undefined} />
        </Alert>
      )}
    </li>
  );
}

/** Says that a cluster has overlays. */
export function OverlayTag({ of }: { of: number | undefined }) {
  return of ? <span class="tag tone-busy">{plural(of, "overlay")}</span> : null;
}
