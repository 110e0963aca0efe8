// A table of very many rows, of which those in sight are drawn. Rows have one height;
// the arrow keys, Page Up and Down, Home and End go from row to row.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Sorting } from "../overview.ts";

export interface Column<T> {
  id: string;
  title: string;
  /** Cells of numbers are set flush right. */
  numeric?: boolean;
  hint?: string;
  cell: (row: T) => ComponentChildren;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  /** The tone of a row's edge; "" for none. */
  rowTone?: (row: T) => string;
  sorting: Sorting;
  onSort: (s: Sorting) => void;
  empty: ComponentChildren;
  /** The row to begin at, by its key: it is brought into sight, and its link gets the focus. */
  begin?: string | null;
}

const narrow = matchMedia("(max-width: 700px)");
const beyond = 8;

function useNarrow(): boolean {
  const [is, set] = useState(narrow.matches);
  useEffect(() => {
    const change = () => set(narrow.matches);
    narrow.addEventListener("change", change);
    return () => narrow.removeEventListener("change", change);
  }, []);
  return is;
}

/** The head stays in sight above the rows. */
const headHeight = (s: HTMLElement) => (s.firstElementChild as HTMLElement).offsetHeight;

export function BigTable<T>(p: Props<T>) {
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [focused, setFocused] = useState<string | null>(null);
  const moveTo = useRef<string | null>(null);
  const rowHeight = useNarrow() ? 104 : 30;
  const begin = useRef(p.begin);

  useLayoutEffect(() => {
    const s = scroller.current!;
    const measure = () => setView({ top: s.scrollTop, height: s.clientHeight });
    measure();
    const resized = new ResizeObserver(measure);
    resized.observe(s);
    s.addEventListener("scroll", measure, { passive: true });
    return () => {
      resized.disconnect();
      s.removeEventListener("scroll", measure);
    };
  }, []);

  const first = Math.max(0, Math.floor(view.top / rowHeight) - beyond);
  const end = Math.min(p.rows.length, Math.ceil((view.top + view.height) / rowHeight) + beyond);
  const drawn = new Set<number>();
  for (let i = first; i < end; i++) drawn.add(i);
  // The row that has the focus stays, or scrolling would lose the focus.
  const focusedAt = focused === null ? -1 : p.rows.findIndex((r) => p.rowKey(r) === focused);
  if (focusedAt >= 0) drawn.add(focusedAt);

  useEffect(() => {
    if (!begin.current || p.rows.length === 0) return;
    const at = p.rows.findIndex((r) => p.rowKey(r) === begin.current);
    begin.current = null;
    // The focus is not taken from another element.
    const mine = document.activeElement === document.body || document.activeElement?.id === "title";
    if (at >= 0 && mine) go(at);
  }, [p.rows.length > 0]);

  useEffect(() => {
    if (moveTo.current === null) return;
    const link = scroller.current!.querySelector<HTMLElement>(`[data-key="${CSS.escape(moveTo.current)}"] a`);
    if (!link) return;
    moveTo.current = null;
    link.focus({ preventScroll: true });
  });

  const go = (to: number) => {
    const at = Math.min(p.rows.length - 1, Math.max(0, to));
    const row = p.rows[at];
    const s = scroller.current!;
    if (row === undefined) return;
    moveTo.current = p.rowKey(row);
    setFocused(moveTo.current);
    const top = at * rowHeight;
    const height = s.clientHeight - headHeight(s);
    if (top < s.scrollTop) s.scrollTop = top;
    else if (top + rowHeight > s.scrollTop + height) s.scrollTop = top + rowHeight - height;
  };
  const keys = (e: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const to: Record<string, number> = {
      ArrowDown: focusedAt + 1, ArrowUp: focusedAt - 1, PageDown: focusedAt + page, PageUp: focusedAt - page, Home: 0, End: p.rows.length - 1,
    };
    const at = to[e.key];
    if (at === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    go(at);
  };

  return (
    <div
      ref={scroller} class="big-table" role="table" tabIndex={0} aria-label={p.label} aria-rowcount={p.rows.length + 1}
      aria-colcount={p.columns.length} onKeyDown={keys}
    >
      <div role="rowgroup" class="head">
        <div role="row" aria-rowindex={1} class="row">
          {p.columns.map((c) => (
            <div
              role="columnheader" key={c.id} class={`cell of-${c.id} ${c.numeric ? "number" : ""}`} title={c.hint}
              aria-sort={p.sorting.by === c.id ? (p.sorting.down ? "descending" : "ascending") : undefined}
            >
              <button
                type="button" class="sort"
                onClick={() => p.onSort({ by: c.id, down: p.sorting.by === c.id ? !p.sorting.down : (c.numeric ?? false) })}
              >
                {c.title}
                <span aria-hidden="true">{p.sorting.by === c.id ? (p.sorting.down ? " ▾" : " ▴") : ""}</span>
              </button>
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="body" style={{ height: `${p.rows.length * rowHeight}px` }}>
        {[...drawn].sort((a, b) => a - b).map((i) => {
          const row = p.rows[i]!;
          const key = p.rowKey(row);
          return (
            <div
              role="row" class={`row edge-${p.rowTone?.(row) || "none"}`} key={key} data-key={key} aria-rowindex={i + 2} style={{ top: `${i * rowHeight}px` }}
              onFocusIn={() => setFocused(key)} onFocusOut={() => moveTo.current === null && setFocused(null)}
            >
              {p.columns.map((c) => (
                <div role="cell" key={c.id} class={`cell of-${c.id} ${c.numeric ? "number" : ""}`} data-title={c.title}>
                  {c.cell(row)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
      {p.rows.length === 0 && <div class="none" role="row"><div role="cell">{p.empty}</div></div>}
    </div>
  );
}
