// Addresses of pages: #/clusters/orders?x=y. They are in the fragment, so that the dashboard
// works under any path prefix of a proxy.

export interface Place {
  path: string[];
  query: URLSearchParams;
}

export function parsePlace(hash: string): Place {
  const [path = "", query = ""] = splitOnce(hash.replace(/^#?\/?/, ""), "?");
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export function href(path: string[], query?: Record<string, string | undefined>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query ?? {})) if (v) q.set(k, v);
  const tail = q.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${tail && `?${tail}`}`;
}

export const clusterHref = (name: string, target?: string) => href(["clusters", name], { target });

/** Replaces the query of the address, without a new page or history entry. */
export function replaceQuery(path: string[], query: Record<string, string | undefined>): void {
  history.replaceState(history.state, "", href(path, query));
}

/** Stores in the history which row of this page was opened. */
export function leaveAt(row: string): void {
  history.replaceState({ row }, "");
}

/** The stored row of this page, after going back. */
export function leftAt(): string | null {
  const state: unknown = history.state;
  return typeof state === "object" && state !== null && "row" in state && typeof state.row === "string" ? state.row : null;
}

function splitOnce(s: string, by: string): [string, string?] {
  const at = s.indexOf(by);
  return at < 0 ? [s] : [s.slice(0, at), s.slice(at + 1)];
}

function decode(s: string): string {
  try {
    return decodeURIComponent(s);
  } catch {
    return s; // typed by hand
  }
}
