// What is known of events, from lists and from a stream, in whichever order they come.

import type { EventType, LbdEvent } from "./model.ts";

/** Those that happen in the tree of a target or of a cluster; others are about every tree. */
const ofTrees: EventType[] = ["priority_switched", "leaf_skipped", "leaf_restored", "state_changed", "connection_changed", "ejected", "unejected"];

export interface Wanted {
  types: ReadonlySet<string>;
  /** A part of the cluster's name, in whichever case; "" for all. */
  cluster: string;
  /** The target in whose tree it happened; "" for all. */
  target: string;
}

const fullName = (target: string) => (target.startsWith("xds:") ? target : `xds:///${target}`);

/** Whether an event is of one tree, a target's or ("") the cluster's own, or is about every tree. */
export function inTree(e: LbdEvent, target: string): boolean {
  if (!ofTrees.includes(e.type)) return true;
  return target === "" ? !e.target : e.target !== undefined && fullName(e.target) === fullName(target);
}

/** Whether an event is one of those that are looked for, whatever its type. */
export function isAbout(e: LbdEvent, w: Omit<Wanted, "types">): boolean {
  const name = w.cluster.trim().toLowerCase();
  if (name && !(e.cluster ?? "").toLowerCase().includes(name)) return false;
  return !w.target || inTree(e, w.target);
}

/** EventLog keeps events by their ids. */
export class EventLog {
  /** The newest first. */
  events: LbdEvent[] = [];
  private readonly most: number;
  private doubted = new Set<number>();

  /** @param most how many are kept */
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

  /** Doubts what is known: lbd is another process, or forgot what came after it. */
  doubt(): void {
    this.doubted = new Set(this.events.map((e) => e.id));
  }

  /** Takes what lbd remembers, which settles doubts; what came by the stream since stays. */
  remembered(of: LbdEvent[]): void {
    if (this.doubted.size > 0) this.events = this.events.filter((e) => !this.doubted.has(e.id));
    this.doubted.clear();
    this.add(of);
  }
}
