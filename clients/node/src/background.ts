import { AsyncResource } from "node:async_hooks";

const scope = new AsyncResource("lbd");

/** Runs a task apart from the request that starts it: the task does not hold values of its AsyncLocalStorage. */
export function inBackground(task: () => unknown): void {
  scope.runInAsyncScope(task);
}
