// A text editor with line numbers and marks at errors.

import { useRef } from "preact/hooks";
import type { BrokenRule } from "../model.ts";

/** The line height of text and numbers, in pixels, as in style.css. */
const lineHeight = 18;

const example = `endpoints:
- locality: {region: us-east1, zone: a}
  load_balancing_weight: 3
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.0.0.7, port_value: 8080}}}
`;

/** Shows a line, and selects it. */
export function select(area: HTMLTextAreaElement, line: number): void {
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((a, l) => a + l.length + 1, 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  area.scrollTop = Math.max(0, (line - 4) * lineHeight);
}

export function Editor({ body, rules, warnings, onInput, area }: {
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
  // In a very long body only marked lines have numbers.
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

export function Rules({ rules, onGo, label }: { rules: BrokenRule[]; onGo: (r: BrokenRule) => void; label: string }) {
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
