// A line chart of the last minutes, with what happened marked on its time axis. What
// it draws is in a table below it, for those who do not see it.

import { useEffect, useId, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "../format.ts";

export interface Line {
  label: string;
  /** The name of the color's custom property. */
  color: string;
  dash?: number[];
  fill?: boolean;
}

export interface Mark {
  /** Milliseconds. */
  t: number;
  /** One letter, drawn at the top. */
  letter: string;
  color: string;
  says: string;
  /** The page with more about it. */
  href?: string;
}

export interface ChartProps {
  title: string;
  lines: Line[];
  /** Times in seconds, and a column for each line, with null where nothing is known. */
  x: number[];
  columns: (number | null)[][];
  marks: Mark[];
  now: number;
  /** How much of the past is shown, in milliseconds. */
  window: number;
  format: (v: number) => string;
  unit: string;
  /** Values are whole numbers. */
  whole?: boolean;
}

const known = (p: ChartProps, v: number | null | undefined) => (v === null || v === undefined ? "–" : p.format(v));

const scheme = matchMedia("(prefers-color-scheme: dark)");

export function Chart(p: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const props = useRef(p);
  props.current = p;
  const id = useId();
  const labels = p.lines.map((l) => l.label).join("\n");

  useEffect(() => {
    const host = box.current!;
    let width = host.clientWidth;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(props, width || 300), data(props.current), host);
    };
    draw();
    const resized = new ResizeObserver(() => {
      if (host.clientWidth === width || host.clientWidth === 0) return;
      width = host.clientWidth;
      plot.current?.setSize({ width, height });
    });
    resized.observe(host);
    scheme.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [labels]);

  useEffect(() => {
    plot.current?.setData(data(p));
  });

  return (
    <figure class="chart" aria-labelledby={id}>
      <figcaption id={id}>
        {p.title} <span class="unit">{p.unit}</span>
      </figcaption>
      <ul class="legend">
        {p.lines.map((l, i) => (
          <li key={l.label}>
            <svg class="stroke" viewBox="0 0 20 6" aria-hidden="true">
              <line x1="0" y1="3" x2="20" y2="3" class={`stroke-${l.color}`} stroke-dasharray={l.dash?.join(" ")} />
            </svg>
            {l.label} <b>{known(p, p.columns[i]?.at(-1))}</b>
          </li>
        ))}
      </ul>
      <div ref={box} class="plot" aria-hidden="true" />
      <details>
        <summary>{p.title} as a table</summary>
        <Table {...p} />
      </details>
    </figure>
  );
}

/** Every ten seconds, the newest first. */
function Table(p: ChartProps) {
  const step = 10;
  const rows: { t: number; values: (number | null)[] }[] = [];
  for (let i = p.x.length - 1; i >= 0 && rows.length < 12; i--) {
    const t = p.x[i]!;
    const last = rows.at(-1);
    if (!last || last.t - t >= step) rows.push({ t, values: p.columns.map((c) => c[i] ?? null) });
  }
  return (
    <>
      <table>
        <thead>
          <tr>
            <th scope="col">time</th>
            {p.lines.map((l) => (
              <th scope="col" key={l.label}>
                {l.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={r.t}>
              <th scope="row">{clock(r.t * 1000)}</th>
              {r.values.map((v, i) => (
                <td key={i}>{known(p, v)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {p.marks.length > 0 && (
        <ul class="marks">
          {p.marks.slice(0, 12).map((m) => (
            <li key={`${m.t}${m.says}`}>
              <b>{m.letter}</b> {clock(m.t)}: {m.href ? <a href={m.href}>{m.says}</a> : m.says}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

const height = 132;

/** Steps of an axis of whole numbers. */
const wholes = Array.from({ length: 9 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

function data(p: ChartProps): uPlot.AlignedData {
  return [p.x, ...p.columns] as uPlot.AlignedData;
}

function options(props: { current: ChartProps }, width: number): uPlot.Options {
  const css = getComputedStyle(document.documentElement);
  const color = (name: string) => css.getPropertyValue(`--${name}`).trim();
  const p = props.current;
  const font = `11px ${css.getPropertyValue("--font")}`;
  const axis = { stroke: color("muted"), font, grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { show: false },
    padding: [14, 26, 0, 0], // on the right half of the last time
    scales: {
      x: { time: true, range: () => [(props.current.now - props.current.window) / 1000, props.current.now / 1000] },
      y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.1)] },
    },
    axes: [
      { ...axis, space: 70, size: 26, values: (_u, splits) => splits.map((s) => clock(s * 1000)) },
      { ...axis, size: 44, space: 28, incrs: p.whole ? wholes : undefined, values: (_u, splits) => splits.map((v) => props.current.format(v)) },
    ],
    series: [
      {},
      ...p.lines.map((l): uPlot.Series => ({
        label: l.label,
        stroke: color(l.color),
        width: 1.5,
        dash: l.dash,
        fill: l.fill ? `${color(l.color)}22` : undefined,
        points: { show: false },
      })),
    ],
    hooks: { draw: [(u) => drawMarks(u, props.current.marks, color, font)] },
  };
}

function drawMarks(u: uPlot, marks: Mark[], color: (name: string) => string, font: string): void {
  const c = u.ctx;
  const dpr = devicePixelRatio || 1;
  const { left, top, width, height } = u.bbox;
  c.save();
  c.font = font.replace("11px", `${10 * dpr}px`);
  c.textAlign = "center";
  let lettered = Infinity; // marks come the newest first: of those that would overlap, it has the letter
  for (const m of marks) {
    const x = Math.round(u.valToPos(m.t / 1000, "x", true)) + 0.5;
    if (x < left || x > left + width) continue;
    c.strokeStyle = c.fillStyle = color(m.color);
    c.lineWidth = dpr;
    c.setLineDash([3 * dpr, 3 * dpr]);
    c.beginPath();
    c.moveTo(x, top);
    c.lineTo(x, top + height);
    c.stroke();
    if (lettered - x < 10 * dpr) continue;
    c.fillText(m.letter, x, top - 3 * dpr);
    lettered = x;
  }
  c.restore();
}
