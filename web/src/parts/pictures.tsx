// Pictures of the decisions of a pick, with texts next to them.

import { count, percent } from "../format.ts";

/** A draw in [0, 1) that drops below the chance. */
export function Chance({ chance, draw, label, dropped }: { chance: number; draw: number; label: string; dropped: boolean }) {
  return (
    <div class="gauge">
      <svg class="line" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="rest" width="100" height="10" />
        <rect class="unwell" width={100 * chance} height="10" />
        <rect class="needle" x={Math.min(99, 100 * draw)} width="1" height="10" />
      </svg>
      <span>
        {label}; drew {percent(draw)}: {dropped ? "dropped" : "passes"}
      </span>
    </div>
  );
}

interface Part {
  label: string;
  share: number;
  chosen: boolean;
}

/** The number of listed parts, in addition to the drawn one. */
const partsListed = 12;

/**
 * Shares side by side, and the drawn one. The drawn number is not a position among them: the
 * table of lbd has another order.
 */
export function Draw({ parts, drawn, unlisted = 0 }: { parts: Part[]; drawn: string; unlisted?: number }) {
  let at = 0;
  const listed = parts.filter((p, i) => i < partsListed || p.chosen);
  const isListed = parts.some((p) => p.chosen);
  const more = parts.length - listed.length + unlisted - (isListed ? 0 : 1);
  return (
    <div class="gauge">
      <svg class="line" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        {parts.map((p, i) => {
          const x = at;
          at += 100 * p.share;
          return <rect key={i} class={p.chosen ? "chosen" : i % 2 ? "other" : "rest"} x={x} width={100 * p.share} height="10" />;
        })}
      </svg>
      <ul class="parts">
        {listed.map((p, i) => (
          <li key={i} class={p.chosen ? "taken" : "passed"}>
            {p.label}: {percent(p.share)}
            {p.chosen && ", drawn"}
          </li>
        ))}
        {!isListed && <li class="taken">{drawn}, drawn</li>}
        {more > 0 && <li>and {count(more)} more</li>}
      </ul>
    </div>
  );
}

/** Endpoints that take turns. */
export function Rotation({ of, index }: { of: number; index: number }) {
  const n = Math.min(of, 40);
  const at = of <= 40 ? index : Math.floor((index / of) * n);
  return (
    <svg class="rotation" viewBox={`0 0 ${n * 12} 12`} width={n * 12} height="12" aria-hidden="true">
      {Array.from({ length: n }, (_, i) => (
        <circle key={i} cx={i * 12 + 6} cy="6" r={i === at ? 5 : 3.5} class={i === at ? "chosen" : "other"} />
      ))}
    </svg>
  );
}

/** A ring, where the hash fell on it, and how far the pick walked. */
export function Ring({ entry, walked, size }: { entry: number; walked: number; size: number }) {
  const point = (i: number) => {
    const angle = (2 * Math.PI * i) / Math.max(1, size) - Math.PI / 2;
    return { x: 30 + 24 * Math.cos(angle), y: 30 + 24 * Math.sin(angle) };
  };
  const from = point(entry);
  const to = point(entry + walked);
  const far = (walked % Math.max(1, size)) / Math.max(1, size) > 0.5 ? 1 : 0;
  return (
    <svg class="ring" viewBox="0 0 60 60" width="60" height="60" aria-hidden="true">
      <circle cx="30" cy="30" r="24" class="band" />
      {walked > 0 && <path d={`M ${from.x} ${from.y} A 24 24 0 ${far} 1 ${to.x} ${to.y}`} class="way" />}
      <circle cx={from.x} cy={from.y} r="3.5" class="fell" />
      <circle cx={to.x} cy={to.y} r="4.5" class="chosen" />
    </svg>
  );
}
