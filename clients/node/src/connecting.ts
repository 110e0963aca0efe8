import { subscribe } from "node:diagnostics_channel";

/** What to call when undici begins a connect, by address. */
const waiting = new Map<string, Set<() => void>>();

// Of undici, and of the one that is part of Node.
subscribe("undici:client:beforeConnect", (message) => {
  if (waiting.size === 0) return;
  const { host, protocol } = (message as { connectParams: { host: string; protocol: string } }).connectParams;
  const address = /:\d+$/.test(host) ? host : `${host}:${protocol === "https:" ? 443 : 80}`;
  const [first] = waiting.get(address) ?? [];
  first?.();
});

/** Calls begins when undici begins a connect for a request to an address. Without one, it waits for other requests. */
export function whenConnecting(address: string, begins: () => void): void {
  const others = waiting.get(address);
  if (others === undefined) waiting.set(address, new Set([begins]));
  else others.add(begins);
}

/** Ends what whenConnecting began. */
export function endConnecting(address: string, begins: () => void): void {
  const others = waiting.get(address);
  if (others?.delete(begins) && others.size === 0) waiting.delete(address);
}
