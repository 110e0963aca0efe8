// The conditions of the daemon, above every page.

import type { Condition } from "../model.ts";
import { Ago } from "./basics.tsx";

interface Words {
  title: string;
  /** The page with details. */
  place?: { href: string; label: string };
}

const xds = { href: "#/xds", label: "xDS" };
const events = { href: "#/events", label: "Events" };

const words: Record<string, Words> = {
  store_failing: { title: "Store failing", place: events },
  shortage: { title: "Resource shortage", place: events },
  server_unreachable: { title: "Management server unreachable", place: xds },
  resource_rejected: { title: "Resource rejected (NACK)", place: xds },
  file_bad: { title: "Invalid resource file", place: events },
  change_held: { title: "Change held", place: events },
};

const wordsOf = (kind: string): Words => words[kind] ?? { title: kind.replaceAll("_", " ") };

/** Conditions by kind, in their order. */
export function byKind(conditions: Condition[]): [kind: string, of: Condition[]][] {
  const out = new Map<string, Condition[]>();
  for (const c of conditions) out.set(c.kind, [...(out.get(c.kind) ?? []), c]);
  return [...out];
}

export function Banner({ conditions, now }: { conditions: Condition[]; now: number }) {
  const kinds = byKind(conditions);
  return (
    <>
      {kinds.length > 0 && (
        <section class="banner" aria-label="Problems of this daemon">
          <ul>
            {kinds.map(([kind, [first, ...others]]) => (
              <li key={kind}>
                <span class="kind">
                  <span aria-hidden="true">▲</span> {wordsOf(kind).title}
                </span>
                <div>
                  <Problem c={first!} now={now} />
                  {others.length > 0 && (
                    <details>
                      <summary>and {others.length} more</summary>
                      {others.map((c) => (
                        <Problem key={`${c.subject} ${c.since}`} c={c} now={now} />
                      ))}
                    </details>
                  )}
                </div>
                {wordsOf(kind).place && <a href={wordsOf(kind).place!.href}>{wordsOf(kind).place!.label}</a>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {/* Screen readers announce the begin and end, not changes of texts. */}
      <span class="unseen" role="status">
        {kinds.length > 0 ? `Problems of this daemon: ${kinds.map(([kind]) => wordsOf(kind).title).join(", ")}` : ""}
      </span>
    </>
  );
}

function Problem({ c, now }: { c: Condition; now: number }) {
  return (
    <p>
      {c.text}. {c.remedy && <>To do: {c.remedy}. </>}
      <span class="of">
        Since <Ago at={c.since} now={now} />.
      </span>
    </p>
  );
}
