import { setTimeout as sleep } from "node:timers/promises";

/** A point in time of performance.now(); Infinity is never. */
export class Deadline {
  readonly at: number;

  /** timeout is in milliseconds. */
  constructor(timeout: number) {
    this.at = performance.now() + timeout;
  }

  /** The milliseconds left, not below 0. */
  left(): number {
    return Math.max(0, this.at - performance.now());
  }

  passed(): boolean {
    return performance.now() >= this.at;
  }
}

/** Longest time of a timer of Node, in milliseconds. */
export const TIMER_MAX = 2 ** 31 - 1;

/** Waits without keeping the process alive; ends early when signal is aborted. */
export async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await sleep(milliseconds, undefined, { ref: false, signal }).catch(() => {});
}

/** The result of promise if it comes in time, else undefined. Keeps the process alive meanwhile. */
export async function within<T>(promise: Promise<T>, milliseconds: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), Math.min(milliseconds, TIMER_MAX));
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
