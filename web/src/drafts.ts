// What was typed and not pushed outlives the page that it was typed on.

import type { Body } from "./body.ts";
import type { Where } from "./verdict.ts";

export interface Draft {
  body: Body;
  where: Where;
  /** By hand: what the body is does not change it. */
  chosen: boolean;
  cluster: string;
}

const drafts = new Map<string, Draft>();

/** Browsers ask before they leave a page on which something was typed. */
const hold = (e: Event) => e.preventDefault();

/** The draft of a place: that of one cluster's link, or "". */
export const draftOf = (place: string): Draft | undefined => drafts.get(place);

/** The other places that have one. */
export const otherDrafts = (place: string): string[] => [...drafts.keys()].filter((p) => p !== place);

/** Keeps a draft, or forgets it. */
export function keepDraft(place: string, draft: Draft | null): void {
  if (draft) drafts.set(place, draft);
  else drafts.delete(place);
  if (drafts.size > 0) addEventListener("beforeunload", hold);
  else removeEventListener("beforeunload", hold);
}
