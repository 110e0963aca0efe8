const ADDRESS = /^(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}$/;

/** Whether a value is HOST:PORT or [IPV6]:PORT. */
export function isAddress(value: unknown): value is string {
  return typeof value === "string" && ADDRESS.test(value);
}
