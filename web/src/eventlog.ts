// Events, from lists and a stream, in any order.

import type { EventType, LbdEvent } from "./model.ts";

/** Types that belong to the tree of a target or cluster; others concern every tree. */
const ofTrees: EventType[] = ["priority_switched", "leaf_skipped", "leaf_restored", "state_changed", "connection_changed", "ejected", "unejected"];

export interface Wanted {
  types: ReadonlySet<string>;
  /** A part of the cluster's name, case-insensitive; "" for all. */
  cluster: string;
  /** The target of the tree; "" for all. */
  target: string;
}

const fullName = (target: string) => (target.startsWith("xds:") ? target : `xds:///${target}`);

/** Whether an event concerns a tree: that of a target or, with "", the cluster's own. */
export function inTree(e: LbdEvent, target: string): boolean {
  if (!ofTrees.includes(e.type)) return true;
  return target === "" ? !e.target : e.target !== undefined && fullName(e.target) === fullName(target);
}

/** Whether an event matches, regardless of its type. */
export function isAbout(e: LbdEvent, w: Omit<Wanted, "types">): boolean {
  const name = w.cluster.trim().toLowerCase();
  if (name && !(e.cluster ?? "").toLowerCase().includes(name)) return false;
  return !w.target || inTree(e, w.target);
}

/** EventLog has events by ID. */
export class EventLog {
  /** Newest first. */
  events: LbdEvent[] = [];
  private readonly most: number;
  private doubted = new Set<number>();

  /** @param most the maximum number of events */
  constructor(most: number) {
    this.most = most;
  }

  add(more: LbdEvent[]): void {
    const [one] = more;
    if (one && more.length === 1 && one.id > (this.events[0]?.id ?? 0)) {
      // As they come by the stream, and there may be many.
      this.events = [one, ...this.events.slice(0, this.most - 1)];
      return;
    }
    const byId = new Map(this.events.map((e) => [e.id, e]));
    for (const e of more) byId.set(e.id, e);
    this.events = [...byId.values()].sort((a, b) => b.id - a.id).slice(0, this.most);
  }

  /** Marks the events as outdated: lbd restarted, or dropped events after them. */
  invalidate(): void {
    this.doubted = new Set(this.events.map((e) => e.id));
  }

  /** Replaces outdated events by those that lbd has; newer events of the stream stay. */
  remembered(of: LbdEvent[]): void {
    if (this.doubted.size > 0) this.events = this.events.filter((e) => !this.doubted.has(e.id));
    this.doubted.clear();
    this.add(of);
  }
}
