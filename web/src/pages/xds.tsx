// The management servers and their resources.

import { useState } from "preact/hooks";
import { get, says } from "../api.ts";
import { count, plural } from "../format.ts";
import type { XdsResource, XdsServer, XdsState } from "../model.ts";
import { Ago, Alert, Title, useNow } from "../parts/basics.tsx";
import { useRound } from "../question.ts";

/** The polling interval, in milliseconds: there is no stream. */
const every = 5000;

const tones: Record<string, string> = {
  acked: "good", requested: "busy", nacked: "bad", nacked_but_cached: "bad", does_not_exist: "unwell",
  does_not_exist_but_cached: "bad", received_error: "bad", received_error_but_cached: "bad", timeout: "bad",
};

export function Xds() {
  const [status, setStatus] = useState<XdsState | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [show, setShow] = useState("all");
  const now = useNow();
  useRound(
    (signal) => get<XdsState>("v1/xds?limit=10000", signal), every, "",
    (s) => {
      setStatus(s);
      setError(null);
    },
    setError,
  );

  const resources = status?.resources ?? [];
  const states = [...new Set(resources.map((r) => r.state))].sort();
  const shown = resources.filter((r) => show === "all" || r.state === show);
  return (
    <div class={error === null ? "" : "old"}>
      <Title text="xDS" />
      {error !== null && <Alert>{says(error)}</Alert>}
      {status && !status.configured && <p>This lbd uses no management server: resources come from pushes and files.</p>}
      {status && status.configured && (
        <>
          <p>
            Node ID: {status.node_id ? <code>{status.node_id}</code> : "none"}.
            {status.bootstrap && <> Bootstrap: {status.bootstrap}.</>}
            {status.on_demand.known > 0 && ` ${plural(status.on_demand.known, "cluster")} of at most ${count(status.on_demand.max)} are in use on demand, because picks named them.`}
            {status.on_demand.unknown > 0 && ` ${plural(status.on_demand.unknown, "name")} of at most ${count(status.on_demand.max_unknown)} that picks named are not confirmed by any server.`}
          </p>
          <h2>Management servers</h2>
          <div class="scroll" tabIndex={0} role="group" aria-label="Management servers">
            <table>
              <thead>
                <tr>
                  <th scope="col">server</th>
                  <th scope="col">authority</th>
                  <th scope="col">connection</th>
                  <th scope="col">since</th>
                  <th scope="col" class="number">targets</th>
                  <th scope="col">last error</th>
                </tr>
              </thead>
              <tbody>
                {status.servers.map((s, i) => (
                  <ServerRow key={i} s={s} now={now} />
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      {status && status.load_reports.length > 0 && (
        <>
          <h2>Load reports</h2>
          <div class="scroll" tabIndex={0} role="group" aria-label="Load reports">
            <table>
              <thead>
                <tr>
                  <th scope="col">server</th>
                  <th scope="col">connection</th>
                  <th scope="col" class="number">clusters</th>
                  <th scope="col">every</th>
                  <th scope="col">last report</th>
                  <th scope="col">last error</th>
                </tr>
              </thead>
              <tbody>
                {status.load_reports.map((l) => (
                  <tr key={l.server}>
                    <th scope="row">{l.server}</th>
                    <td><Connected is={l.connected} /></td>
                    <td class="number">{count(l.clusters)}</td>
                    <td>{l.interval ?? "–"}</td>
                    <td class="age"><Ago at={l.last_report_at} now={now} /></td>
                    <td>
                      {l.last_error} {l.last_error_at && <>(<Ago at={l.last_error_at} now={now} />)</>}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      {status && status.targets.length > 0 && <Targets status={status} />}
      {resources.length > 0 && (
        <>
          <h2>Resources</h2>
          <label class="inline">
            Show{" "}
            <select value={show} onChange={(e) => setShow(e.currentTarget.value)}>
              <option value="all">all {count(resources.length)}</option>
              {states.map((s) => (
                <option key={s} value={s}>
                  {s.replaceAll("_", " ")} {count(resources.filter((r) => r.state === s).length)}
                </option>
              ))}
            </select>
          </label>
          <div class="scroll" tabIndex={0} role="group" aria-label="Resources">
            <table>
              <thead>
                <tr>
                  <th scope="col">type</th>
                  <th scope="col">name</th>
                  <th scope="col">target</th>
                  <th scope="col">state</th>
                  <th scope="col">version</th>
                  <th scope="col">age</th>
                  <th scope="col">error</th>
                </tr>
              </thead>
              <tbody>
                {shown.slice(0, 500).map((r) => (
                  <ResourceRow key={`${r.type} ${r.authority ?? ""} ${r.name} ${r.target}`} r={r} now={now} />
                ))}
              </tbody>
            </table>
          </div>
          {shown.length > 500 && <p>and {count(shown.length - 500)} more</p>}
          {status && status.total > resources.length && <p>Only the first {count(resources.length)} of {count(status.total)} are listed.</p>}
        </>
      )}
    </div>
  );
}

/** The maximum number of listed targets; those on a fallback server are first. */
const maxTargets = 100;

function Targets({ status }: { status: XdsState }) {
  return (
    <>
      <h2>Targets</h2>
      <p>
        {plural(status.targets_total, "target")}, {status.fallbacks === 0 ? "none" : count(status.fallbacks)} on a fallback server.
      </p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Targets">
        <table>
          <thead>
            <tr>
              <th scope="col">target</th>
              <th scope="col">authority</th>
              <th scope="col">server</th>
              <th scope="col">connection</th>
              <th scope="col" class="number">resources</th>
              <th scope="col" class="number">pending</th>
            </tr>
          </thead>
          <tbody>
            {status.targets.slice(0, maxTargets).map((t) => (
              <tr key={`${t.target} ${t.authority ?? ""}`}>
                <th scope="row">{t.target}</th>
                <td>{t.authority ?? "–"}</td>
                <td>
                  {t.server ?? "–"} {t.fallback && <span class="state unwell">fallback</span>}
                </td>
                <td><Connected is={t.connected} /></td>
                <td class="number">{count(t.resources)}</td>
                <td class="number">{count(t.requested)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {status.targets_total > maxTargets && <p>and {count(status.targets_total - maxTargets)} more</p>}
    </>
  );
}

function Connected({ is }: { is: boolean }) {
  return (
    <span class={`state ${is ? "good" : "bad"}`}>
      <span aria-hidden="true">{is ? "●" : "✕"}</span> {is ? "connected" : "not connected"}
    </span>
  );
}

function ServerRow({ s, now }: { s: XdsServer; now: number }) {
  return (
    <tr>
      <th scope="row">
        {s.server}
        {s.active && <span class="tag tone-accent">in use</span>}
      </th>
      <td>{s.authority || "–"}</td>
      <td>
        <Connected is={s.connected} />
      </td>
      <td class="age"><Ago at={s.since} now={now} /></td>
      <td class="number">{count(s.targets)}</td>
      <td>
        {s.last_error} {s.last_error_at && <>(<Ago at={s.last_error_at} now={now} />)</>}
      </td>
    </tr>
  );
}

function ResourceRow({ r, now }: { r: XdsResource; now: number }) {
  const tone = tones[r.state] ?? "idle";
  return (
    <tr>
      <td>{r.type}</td>
      <th scope="row">{r.authority ? `${r.authority}/${r.name}` : r.name}</th>
      <td>{r.target}</td>
      <td><span class={`state ${tone}`}>{r.state.replaceAll("_", " ")}</span></td>
      <td>{r.version ?? "–"}</td>
      <td class="age">{r.updated_at ? <Ago at={r.updated_at} now={now} suffix="" /> : (r.age ?? "–")}</td>
      <td>
        {r.rejected && (
          <>
            rejected{r.rejected.version && ` version ${r.rejected.version}`}: {r.rejected.reason}{" "}
          </>
        )}
        {r.error && !r.rejected?.reason.includes(r.error) && r.error}
      </td>
    </tr>
  );
}
