// One pick, drawn step by step.

import { useEffect, useState } from "preact/hooks";
import { get, Refusal, says, withQuery } from "../api.ts";
import { limitOf } from "../breaker.ts";
import { brief, count, localityName, percent } from "../format.ts";
import type { ClusterList, Locality, PickAnswer, Problem, Step, TargetList } from "../model.ts";
import { State, Title } from "../parts/basics.tsx";
import { Chance, Draw, Ring, Rotation } from "../parts/pictures.tsx";
import { AskForToken, useAccess } from "../parts/token.tsx";
import { useQuestion } from "../question.ts";
import { clusterHref, replaceQuery } from "../route.ts";
import { needsToken } from "../session.ts";

interface Outcome {
  /** The request. */
  of: string;
  answer?: PickAnswer & { cluster?: string };
  problem?: Problem;
  steps: Step[];
}

export function Explain({ query }: { query: URLSearchParams }) {
  const [of, setOf] = useState<"cluster" | "target">(query.get("target") ? "target" : "cluster");
  const [name, setName] = useState(query.get("target") ?? query.get("cluster") ?? "");
  const [path, setPath] = useState(query.get("path") ?? "/");
  const [headers, setHeaders] = useState(query.get("headers") ?? "");
  const [hash, setHash] = useState(query.get("hash") ?? "");
  const [exclude, setExclude] = useState("");
  const [names, setNames] = useState<string[]>([]);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [busy, setBusy] = useState("");
  const access = useAccess();
  const offered = useQuestion();
  const picked = useQuestion();

  useEffect(() => {
    // Suggestions of names.
    offered.ask(
      (signal) => of === "cluster"
        ? get<ClusterList>("v1/clusters?limit=1000", signal).then((l) => l.clusters.map((c) => c.name))
        : get<TargetList>("v1/targets", signal).then((l) => l.targets.map((t) => t.name)),
      setNames,
      () => setNames([]),
    );
  }, [of, access.version]);

  const pick = () => {
    replaceQuery(["explain"], of === "cluster" ? { cluster: name, hash } : { target: name, path, headers, hash });
    const asked: Record<string, string | string[] | boolean | undefined> = {
      [of]: name, explain: true, hash, exclude: exclude.split(/[\s,]+/).filter(Boolean),
    };
    if (of === "target") {
      asked.path = path;
      for (const line of headers.split("\n")) {
        const at = line.search(/[:=]/);
        if (at <= 0) continue;
        const key = `header.${line.slice(0, at).trim()}`;
        asked[key] = [...((asked[key] as string[] | undefined) ?? []), line.slice(at + 1).trim()];
      }
    }
    const url = withQuery("pick", asked);
    if (busy === url) return; // it counts as a pick
    setBusy(url);
    if (outcome?.of !== url) setOutcome(null);
    const show = (o: Omit<Outcome, "of">) => {
      setOutcome({ of: url, ...o });
      setBusy("");
    };
    picked.ask(
      (signal) => get<PickAnswer>(url, signal),
      (answer) => show({ answer, steps: answer.explain ?? [] }),
      (why) => {
        const problem = why instanceof Refusal ? why.problem : unread(why);
        show({ problem, steps: problem.explain ?? [] });
      },
    );
  };
  useEffect(() => {
    if (name) pick();
  }, []);
  useEffect(() => {
    if (access.hasToken && outcome?.problem && needsToken(outcome.problem)) pick();
  }, [access.version]);

  return (
    <>
      <Title text="Explain a pick" />
      <form
        class="ask"
        onSubmit={(e) => {
          e.preventDefault();
          if (name) pick();
        }}
      >
        <fieldset class="switch">
          <legend class="unseen">Pick from</legend>
          {(["cluster", "target"] as const).map((each) => (
            <label key={each} class="choice">
              <input type="radio" name="of" checked={of === each} onChange={() => setOf(each)} />
              <span>{each}</span>
            </label>
          ))}
        </fieldset>
        <label>
          {of === "cluster" ? "Cluster" : "Target"}
          <input list="names" value={name} required autocomplete="off" onInput={(e) => setName(e.currentTarget.value)} />
        </label>
        <datalist id="names">
          {names.map((n) => (
            <option key={n} value={n} />
          ))}
        </datalist>
        {of === "target" && (
          <>
            <label>
              Path
              <input value={path} onInput={(e) => setPath(e.currentTarget.value)} />
            </label>
            <label>
              Headers, one a line
              <textarea rows={2} value={headers} placeholder="tenant: a" spellcheck={false} onInput={(e) => setHeaders(e.currentTarget.value)} />
            </label>
          </>
        )}
        <label>
          Hash key
          <input value={hash} placeholder="random" autocomplete="off" onInput={(e) => setHash(e.currentTarget.value)} />
        </label>
        <label>
          Exclude
          <input value={exclude} placeholder="addresses" autocomplete="off" onInput={(e) => setExclude(e.currentTarget.value)} />
        </label>
        <button id="pick" type="submit" class="primary" aria-disabled={busy !== ""}>
          Pick once
        </button>
      </form>
      <p role="status" class={busy && !outcome ? "" : "unseen"}>{busy ? "Waiting for the pick…" : outcome ? inShort(outcome) : ""}</p>
      {outcome && (
        <section aria-labelledby="outcome" class={`decision ${outcome.problem ? "refused" : "picked"}`}>
          <h2 id="outcome">
            {outcome.answer ? (
              <>Picked {outcome.answer.address}</>
            ) : (
              <>
                {heading(outcome.problem!)} <span class="code">{answered(outcome.problem!) && outcome.problem!.code}</span>
              </>
            )}
          </h2>
          {outcome.problem && <p>{outcome.problem.detail}</p>}
          <AskForToken problem={outcome.problem} />
          {outcome.steps.length > 0 ? (
            <ol class="flow">
              {outcome.steps.map((s, i) => (
                <StepCard key={i} step={s} />
              ))}
              <End outcome={outcome} />
            </ol>
          ) : (
            outcome.problem && <p>{answered(outcome.problem) ? "The request was refused before any decision was made." : "It is unknown whether lbd made a pick."}</p>
          )}
        </section>
      )}
    </>
  );
}

const unread = (why: unknown): Problem =>
  ({ type: "about:blank", title: "Not read", status: 0, code: "internal", grpc_code: "UNKNOWN", detail: says(why) });

const inShort = ({ answer, problem }: Outcome): string =>
  answer ? `Picked ${answer.address}, priority ${answer.priority}, ${localityName(answer.locality)}.` : `${heading(problem!)}. ${problem!.detail}`;

const answered = (p: Problem) => p.status > 0;
const heading = (p: Problem) => (answered(p) ? `Refused: ${p.title}` : p.title);

const titles: Record<Step["step"], string> = {
  route: "Route", cluster: "Cluster", overlays: "Overlays", leaf: "Leaf", priority: "Priority", drop: "Drop", circuit_breaker: "Circuit breaker",
  locality: "Locality", endpoint: "Endpoint", opaque: "Policy", queued: "Queued", failure: "Failure",
};

function stops(s: Step): boolean {
  return s.step === "failure" || s.drop?.dropped === true || s.circuit_breaker?.refused === true || s.cluster?.found === false
    || (s.step === "endpoint" && !s.endpoint?.address) || (s.step === "route" && !s.route?.cluster);
}

function StepCard({ step }: { step: Step }) {
  return (
    <li class={`step ${step.step} ${stops(step) ? "stop" : step.step === "queued" ? "wait" : "pass"}`}>
      <h3>{titles[step.step] ?? step.step}</h3>
      <div class="picture">
        <Picture step={step} />
      </div>
      {!drawn.has(step.step) && <p class="says">{brief(step.says)}</p>}
    </li>
  );
}

/** The steps whose picture needs no text. */
const drawn = new Set<Step["step"]>(["cluster", "leaf", "priority", "drop", "circuit_breaker"]);

function Picture({ step }: { step: Step }) {
  if (step.route) {
    const r = step.route;
    return (
      <>
        <ul class="tried">
          {(r.earlier ?? 0) > 0 && <li class="passed">{count(r.earlier!)} routes before these</li>}
          {r.tried.map((t, i) => (
            <li key={i} class={t.mismatch ? "passed" : "taken"}>
              {t.mismatch ? "✕" : "✓"} <code>{t.name ? `${t.name}: ${t.match}` : t.match}</code>
              {t.mismatch && ` ${t.mismatch}`}
            </li>
          ))}
        </ul>
        {r.clusters && (
          <Draw parts={r.clusters.map((c) => ({ label: c.name, share: c.share, chosen: c.name === r.cluster }))} drawn={r.cluster ?? ""} />
        )}
      </>
    );
  }
  if (step.cluster) return step.cluster.found ? <a href={clusterHref(step.cluster.name)}>{step.cluster.name}</a> : <b>{step.cluster.name} is not known</b>;
  if (step.leaf) {
    const l = step.leaf;
    return (
      <ul class="priorities">
        {l.passed_over.map((o) => (
          <li key={o.cluster} class="passed">
            <a href={clusterHref(o.cluster)}>{o.cluster}</a> <State of={o.state} /> skipped: {brief(o.why)}
          </li>
        ))}
        <li class="taken">
          <a href={clusterHref(l.cluster)}>{l.cluster}</a> <State of={l.state} /> in use: its drops and circuit breaker apply
        </li>
      </ul>
    );
  }
  if (step.priority) {
    const p = step.priority;
    return (
      <ul class="priorities">
        {p.passed_over.map((o) => (
          <li key={o.priority} class="passed">
            <b>{o.priority}</b>
            {o.cluster && ` of ${o.cluster}`} <State of={o.state} /> skipped: {brief(o.why)}
          </li>
        ))}
        <li class="taken">
          <b>{p.priority}</b>
          {p.cluster && (
            <>
              {" "}of <a href={clusterHref(p.cluster)}>{p.cluster}</a>
            </>
          )}{" "}
          <State of={p.state} /> in use
        </li>
      </ul>
    );
  }
  if (step.drop) {
    const d = step.drop;
    return <Chance chance={d.per_million / 1e6} draw={d.draw / 1e6} label={`${d.category}: drops ${percent(d.per_million / 1e6)}`} dropped={d.dropped} />;
  }
  if (step.circuit_breaker) {
    const b = step.circuit_breaker;
    return (
      <div class="gauge">
        <svg class="line" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
          <rect class="rest" width="100" height="10" />
          <rect class={b.refused ? "bad" : "part"} width={limitOf(b) > 0 ? Math.min(100, (100 * b.in_flight) / limitOf(b)) : 100} height="10" />
        </svg>
        <span>
          {count(b.in_flight)} in flight of at most {count(limitOf(b))}{b.share !== undefined && ` of the fleet's ${count(b.max_requests)}`}: {b.refused ? "full, refused" : "passes"}
        </span>
      </div>
    );
  }
  if (step.locality) {
    const l = step.locality;
    const same = (a: Locality, b: Locality) => a.region === b.region && a.zone === b.zone && a.sub_zone === b.sub_zone;
    return (
      <>
        <Draw
          parts={l.candidates.map((c) => ({
            label: `${localityName(c.locality)}, weight ${c.weight}`, share: c.share, chosen: same(c.locality, l.chosen),
          }))}
          unlisted={l.more} drawn={localityName(l.chosen)}
        />
      </>
    );
  }
  if (step.endpoint) {
    const e = step.endpoint;
    return (
      <>
        {e.ring ? (
          <Ring entry={e.ring.entry} walked={e.ring.walked} size={e.ring.size} />
        ) : e.compared ? (
          <ul class="compared">
            {e.compared.map((c, i) => (
              <li key={i} class={c.address === e.address ? "taken" : "passed"}>
                <code>{c.address}</code> {count(c.in_flight)} in flight
              </li>
            ))}
          </ul>
        ) : (
          e.address && e.rotation > 0 && <Rotation of={e.rotation} index={e.index} />
        )}
        {e.address ? <code class="address">{e.address}</code> : <b>no endpoint is left</b>}
      </>
    );
  }
  return step.error ? <code>{step.error}</code> : null;
}

function End({ outcome }: { outcome: Outcome }) {
  const a = outcome.answer;
  return (
    <li class={`step end ${a ? "pass" : "stop"}`}>
      <h3>{a ? "Picked" : "Refused"}</h3>
      <div class="picture">
        {a ? (
          <>
            <code class="address">{a.address}</code>
            {a.hostname && <span> {a.hostname}</span>}
          </>
        ) : (
          <code>{outcome.problem!.code}</code>
        )}
      </div>
      <p class="says">
        {a
          ? `${a.cluster ?? ""} priority ${a.priority}, ${localityName(a.locality)}`
          : `HTTP ${outcome.problem!.status}, gRPC ${outcome.problem!.grpc_code}${outcome.problem!.retry_after_ms ? `, try again in ${outcome.problem!.retry_after_ms} ms` : ""}`}
      </p>
    </li>
  );
}

