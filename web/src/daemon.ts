// Which daemon this is, and its problems as a whole: known to every page.

import { createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import { get } from "./api.ts";
import type { DaemonState } from "./model.ts";
import { useQuestion } from "./question.ts";
import { type Liveness, useStream } from "./stream.ts";

/** The daemon's state; null until it is known. */
export const Daemon = createContext<DaemonState | null>(null);

export const useDaemon = () => useContext(Daemon);

/** Keeps the daemon's state up to date. The frame of the dashboard calls it, once. */
export function useDaemonStream(): { daemon: DaemonState | null; live: Liveness } {
  const [daemon, setDaemon] = useState<DaemonState | null>(null);
  const question = useQuestion();
  const live = useStream(
    "v1/daemon/watch",
    ["daemon"],
    (m) => setDaemon(m.data as DaemonState),
    () => question.ask((signal) => get<DaemonState>("v1/daemon", signal), setDaemon, () => undefined),
    (l) => l.state === "live" && question.drop(),
  );
  return { daemon, live };
}
