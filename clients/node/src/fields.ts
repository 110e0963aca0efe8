export interface Fields {
  /** The headers with Host. */
  readonly headers: unknown;
  readonly idempotencyKey: boolean;
}

type Pairs = Iterable<[string, unknown]>;

/** The headers of a request in any of undici's forms: an object, a flat array, or an iterable of pairs. */
export function fieldsOf(headers: unknown, host: string): Fields {
  if (Array.isArray(headers) || isIterable(headers)) {
    const flat: unknown[] = Array.isArray(headers) ? headers : [...(headers as Pairs)].flatMap((pair) => [...pair]);
    const names = flat.filter((_, index) => index % 2 === 0).map((name) => String(name).toLowerCase());
    return {
      headers: names.includes("host") ? flat : [...flat, "host", host],
      idempotencyKey: names.includes("idempotency-key"),
    };
  }
  const object = (headers ?? {}) as Record<string, unknown>;
  let hasHost = false;
  let idempotencyKey = false;
  for (const name in object) {
    if (name.length === 4) hasHost ||= name.toLowerCase() === "host";
    else if (name.length === 15) idempotencyKey ||= name.toLowerCase() === "idempotency-key";
  }
  return { headers: hasHost ? object : { ...object, host }, idempotencyKey };
}

/** The values of a header, in headers of fieldsOf. */
export function valuesOf(headers: unknown, name: string): string[] {
  const flat: unknown[] = Array.isArray(headers) ? headers : Object.entries(headers ?? {}).flat();
  const is = (value: unknown) => String(value).toLowerCase() === name.toLowerCase();
  const values = flat.filter((_, index) => index % 2 === 1 && is(flat[index - 1]));
  return values
    .flat()
    .filter((value) => value != null)
    .map(String);
}

function isIterable(headers: unknown): boolean {
  return typeof headers === "object" && headers !== null && Symbol.iterator in headers;
}
