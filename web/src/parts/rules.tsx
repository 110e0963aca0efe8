// A list of broken rules.

import type { BrokenRule } from "../model.ts";

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
