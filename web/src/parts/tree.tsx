// Priorities, their localities and their endpoints, as a tree with columns.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { brief, count, localityName, percent, plural, rate } from "../format.ts";
import type { ClusterState } from "../model.ts";
import { localityKey, type Rates, total } from "../rates.ts";
import { endpointsShown, onStandby, openAtFirst, rows, type Row, search, strays } from "../tree.ts";
import { Bar, Countdown, State } from "./basics.tsx";

interface Props {
  state: ClusterState;
  /** Recent rates; null until known. */
  lately: Rates | null;
  /** The time, in milliseconds, after which rates are compared with shares. */
  window: number;
  now: number;
}

/** The search is shown from this number of endpoints on. */
const fewEndpoints = 6;

export function Tree({ state, lately, window, now }: Props) {
  const [text, setText] = useState("");
  const found = useMemo(() => search(state, text), [state, text]);
  const [toggled, setToggled] = useState<Record<string, boolean>>({});
  const [shut, setShut] = useState<Record<string, boolean>>({}); // in what was found
  const [wanted, setWanted] = useState<Record<string, number>>({});
  const [current, setCurrent] = useState<string | null>(null);
  const grid = useRef<HTMLDivElement>(null);
  const isOpen = (key: string) => (found ? !shut[key] : (toggled[key] ?? openAtFirst(state, key)));
  const all = rows(state, isOpen, (key) => wanted[key] ?? endpointsShown, found);
  const steady = useSteady(JSON.stringify(state.priorities.map((p) => p.localities.map((l) => [l.locality, l.share]))), now);
  const settled = lately !== null && lately.span >= window && steady >= window;
  const active = all.some((r) => r.key === current) ? current : (all[0]?.key ?? null);

  const focus = (key: string | undefined) => {
    if (key === undefined) return;
    setCurrent(key);
    grid.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus();
  };
  const set = (r: Row, open: boolean) => {
    if (found) setShut((s) => ({ ...s, [r.key]: !open }));
    else setToggled((t) => ({ ...t, [r.key]: open }));
  };
  const activate = (r: Row) => {
    if (r.kind === "more") setWanted((w) => ({ ...w, [r.parent!]: (w[r.parent!] ?? endpointsShown) + 10 * endpointsShown }));
    else if (r.open !== null) set(r, !r.open);
  };
  const keys = (e: KeyboardEvent) => {
    const at = all.findIndex((r) => r.key === active);
    const row = all[at];
    if (!row || e.ctrlKey || e.altKey || e.metaKey) return;
    switch (e.key) {
      case "ArrowDown": focus(all[at + 1]?.key); break;
      case "ArrowUp": focus(all[at - 1]?.key); break;
      case "Home": focus(all[0]?.key); break;
      case "End": focus(all.at(-1)?.key); break;
      case "ArrowRight":
        if (row.open === false) set(row, true);
        else if (row.open) focus(all[at + 1]?.key);
        break;
      case "ArrowLeft":
        if (row.open) set(row, false);
        else if (row.parent) focus(row.parent);
        break;
      case "Enter": case " ": activate(row); break;
      default: return;
    }
    e.preventDefault();
  };

  if (state.priorities.length === 0) return <p>It has no endpoints.</p>;
  return (
    <>
      {state.endpoints.total >= fewEndpoints && (
        <Find
          text={text} found={found?.size ?? null} of={state.endpoints.total}
          onText={(t) => {
            setText(t);
            setShut({});
          }}
          onEnter={() => focus((all.find((r) => r.kind === "endpoint") ?? all[0])?.key)}
        />
      )}
      {all.length > 0 && (
        <div class="tree" role="treegrid" aria-label="Priorities, localities and endpoints" ref={grid} onKeyDown={keys}>
          <div role="row" class="row head">
            <span role="columnheader">Where</span>
            <span role="columnheader">State</span>
            <span role="columnheader" class="number">Weight</span>
            <span role="columnheader" title="share of all picks now">Share</span>
            <span role="columnheader" class="number">Picks/s</span>
            <span role="columnheader">Why</span>
          </div>
          {all.map((r) => (
            <div
              role="row" key={r.key} data-key={r.key} tabIndex={r.key === active ? 0 : -1}
              class={`row level-${r.level} ${r.kind} ${r.kind === "priority" && r.priority.in_use ? "in-use" : ""}`}
              aria-level={r.level} aria-posinset={r.position} aria-setsize={r.siblings} aria-expanded={r.open ?? undefined}
              onFocus={() => setCurrent(r.key)} onClick={() => activate(r)}
            >
              <Cells r={r} lately={lately} settled={settled} standby={"priority" in r && onStandby(state, r.priority)} now={now} />
            </div>
          ))}
        </div>
      )}
    </>
  );
}

interface FindProps {
  text: string;
  /** The number of matches; null without a search. */
  found: number | null;
  of: number;
  onText: (text: string) => void;
  /** Moves the focus to the first match. */
  onEnter: () => void;
}

/** The search for endpoints: "/" focuses it, Enter and ArrowDown move to the first match, Escape clears it. */
function Find({ text, found, of, onText, onEnter }: FindProps) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (e.key !== "/" || e.ctrlKey || e.altKey || e.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test((e.target as Element).tagName)) return;
      e.preventDefault();
      input.current?.focus();
      input.current?.select();
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  return (
    <form
      class="find" role="search" aria-label="Endpoints"
      onSubmit={(e) => {
        e.preventDefault();
        onEnter();
      }}
    >
      <label>
        Find endpoints{" "}
        <input
          ref={input} type="search" value={text} autocomplete="off" placeholder="address, state, zone, error" aria-keyshortcuts="/"
          onInput={(e) => onText(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === "ArrowDown") onEnter();
            else if (e.key === "Escape") onText("");
            else return;
            e.preventDefault();
          }}
        />
      </label>{" "}
      <span role="status">{found !== null && `${count(found)} of ${count(of)} endpoints`}</span>
    </form>
  );
}

/** The time since the last change of a value, in milliseconds. */
function useSteady(what: string, now: number): number {
  const since = useRef({ what, now });
  if (since.current.what !== what) since.current = { what, now };
  return now - since.current.now;
}

/** settled is true if shares did not change during the time of lately. */
function Cells({ r, lately, settled, standby, now }: { r: Row; lately: Rates | null; settled: boolean; standby: boolean; now: number }) {
  const picks = lately?.localities ?? null;
  const arrow = <span class="arrow" aria-hidden="true">{r.open === null ? "" : r.open ? "▾" : "▸"}</span>;
  switch (r.kind) {
    case "priority": {
      const p = r.priority;
      const share = p.localities.reduce<number | undefined>((a, l) => (a === undefined || l.share === undefined ? undefined : a + l.share), 0);
      const perSecond = picks && p.localities.reduce((a, l) => a + (picks[localityKey(p.priority, l.locality)] ?? 0), 0);
      return (
        <>
          <span role="gridcell" class="where">
            {arrow}priority {p.priority}
            {p.cluster && <span class="of"> of {p.cluster}</span>}
            {p.in_use && <span class="tag tone-accent">in use</span>}
            {standby && <span class="tag">standby</span>}
          </span>
          <span role="gridcell"><State of={p.state} /></span>
          <span role="gridcell" class="number" />
          <span role="gridcell" class="share"><Share now={share} /></span>
          <span role="gridcell" class="number">{perSecond === null ? "" : rate(perSecond)}</span>
          <span role="gridcell" class="why">
            {brief(p.why)}
            {p.error && !p.why.includes(p.error) && <span class="error"> {brief(p.error)}</span>}
            {r.position < r.siblings && <Countdown to={p.failover_at} now={now} what=" next priority starts" />}
            <Countdown to={p.forget_at} now={now} what=" closes its connections" />
          </span>
        </>
      );
    }
    case "locality": {
      const l = r.locality;
      const perSecond = picks && (picks[localityKey(r.priority.priority, l.locality)] ?? 0);
      const allPicks = picks ? total(picks) : 0;
      const real = perSecond !== null && allPicks > 0 ? perSecond / allPicks : undefined;
      const n = (allPicks * (lately?.span ?? 0)) / 1000;
      const off = real !== undefined && l.share !== undefined && settled && strays(real * n, n, l.share);
      const ready = (l.endpoints ?? []).filter((e) => e.state === "READY").length;
      return (
        <>
          <span role="gridcell" class="where">{arrow}{localityName(l.locality)}</span>
          <span role="gridcell"><State of={l.state} /></span>
          <span role="gridcell" class="number">{l.weight}</span>
          <span role="gridcell" class="share"><Share now={l.share} expected={r.priority.in_use ? r.expected : undefined} /></span>
          <span role="gridcell" class="number">{perSecond === null ? "" : rate(perSecond)}</span>
          <span role="gridcell" class="why">
            {l.endpoints && (standby ? `${plural(l.endpoints.length, "endpoint")} on standby` : `${count(ready)} of ${count(l.endpoints.length)} READY`)}
            {r.priority.in_use && l.share !== undefined && Math.abs(l.share - r.expected) > 0.005 && `; ${percent(r.expected)} by weight`}
            {real !== undefined && (r.priority.in_use || real > 0) && <span class={off ? "warn" : ""}>; {percent(real)} of the picks lately</span>}
          </span>
        </>
      );
    }
    case "endpoint": {
      const e = r.endpoint;
      return (
        <>
          <span role="gridcell" class="where">
            <span class="address">{e.address}</span>
            {e.hostname && <span class="of"> {e.hostname}</span>}
          </span>
          <span role="gridcell"><State of={e.state} /></span>
          <span role="gridcell" class="number">{e.weight}</span>
          <span role="gridcell" class="share"><Share now={e.share} /></span>
          <span role="gridcell" class="number" />
          <span role="gridcell" class="why">
            {e.overlay && <span class="tag tone-busy">overlay {e.overlay}</span>}
            {e.health !== "UNKNOWN" && e.health !== e.state && !e.overlay && `EDS health ${e.health} `}
            {e.last_error && <span class="error" title={e.last_error}>{brief(e.last_error).replace(`connect to ${e.address}: `, "")}</span>}
            {e.last_error && e.ejected_until && "; "}
            <Countdown to={e.ejected_until} now={now} what="ejected; back" over="ejected; back at the end of the interval" />
            {e.additional_addresses && e.additional_addresses.length > 0 && ` also ${e.additional_addresses.join(", ")}`}
          </span>
        </>
      );
    }
    case "more":
      return (
        <span role="gridcell" class="where" aria-colspan={6}>
          <span class="link">{count(r.hidden)} more endpoints: show them</span>
        </span>
      );
  }
}

/** The share of all picks, which some policies do not have. */
function Share({ now, expected }: { now: number | undefined; expected?: number }) {
  if (now === undefined) return <>–</>;
  return (
    <>
      <Bar part={now} expected={expected} /> {percent(now)}
    </>
  );
}
