// Resources in JSON or YAML, with names in snake_case or lowerCamelCase.

/** The kind of a body, which decides where it is pushed. */
export type Kind = "endpoints" | "config" | "snapshot";

export type Value = null | boolean | number | string | Value[] | { [name: string]: Value };
export type Message = { [name: string]: Value };

export interface Document {
  format: "json" | "yaml";
  value: Message;
}

export const isMessage = (v: unknown): v is Message => typeof v === "object" && v !== null && !Array.isArray(v);

/** A body that begins with a brace is JSON, as in lbd. */
export const formatOf = (body: string): "json" | "yaml" => (/^\s*\{/.test(body) ? "json" : "yaml");

export const contentType = { json: "application/json", yaml: "application/yaml" } as const;

/** Parses a body, with names in snake_case. Null if it is invalid: lbd returns the reason. */
export async function readDocument(body: string): Promise<Document | null> {
  const format = formatOf(body);
  try {
    // The YAML parser is loaded on demand.
    const parsed: unknown = format === "json" ? JSON.parse(body) : (await import("js-yaml")).load(body);
    const value = snake(parsed);
    return isMessage(value) ? { format, value } : null;
  } catch {
    return null;
  }
}

/** Maps, whose names are data; in filter_metadata also the nested names. */
const maps: Record<string, "names" | "all"> = {
  filter_metadata: "all", typed_filter_metadata: "names", typed_per_filter_config: "names", typed_extension_protocol_options: "names",
};

function snake(v: unknown, keep: "none" | "names" | "all" = "none"): Value {
  if (Array.isArray(v)) return v.map((each) => snake(each, keep === "all" ? "all" : "none"));
  if (typeof v === "object" && v !== null) {
    const out: Message = {};
    for (const [name, value] of Object.entries(v)) {
      const key = keep !== "none" || name.startsWith("@") ? name : name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
      out[key] = snake(value, keep === "all" ? "all" : keep === "none" ? maps[key] : "none");
    }
    return out;
  }
  if (typeof v === "string" || typeof v === "number" || typeof v === "boolean") return v;
  return null;
}

/** The kind of a resource, by its fields. */
export function kindOf(m: Message): Kind | null {
  if ("resources" in m) return "snapshot";
  if ("cluster_name" in m || "endpoints" in m) return "endpoints";
  if (["type", "lb_policy", "eds_cluster_config", "circuit_breakers", "load_balancing_policy", "outlier_detection", "load_assignment", "cluster_type"].some((f) => f in m)) {
    return "config";
  }
  return null;
}

/** The cluster name in a body. */
export function clusterOf(m: Message, kind: Kind): string {
  const name = kind === "endpoints" ? m.cluster_name : kind === "config" ? m.name : undefined;
  return typeof name === "string" ? name : "";
}

/** A parsed assignment; "rest" has further fields unchanged. */
export interface Assignment {
  localities: AssignedLocality[];
  drops: { category: string; perMillion: number }[];
  rest: Message;
}

export interface AssignedLocality {
  priority: number;
  region: string;
  zone: string;
  subZone: string;
  /** Null if absent. */
  weight: number | null;
  endpoints: AssignedEndpoint[];
  rest: Message;
}

export interface AssignedEndpoint {
  address: string;
  /** Additional addresses of the endpoint. */
  also: string[];
  hostname: string;
  weight: number;
  health: string;
  rest: Message;
}

const text = (v: Value | undefined) => (typeof v === "string" ? v : "");
const number = (v: Value | undefined): number | null =>
  typeof v === "number" ? v : typeof v === "string" && v.trim() !== "" && Number.isFinite(Number(v)) ? Number(v) : null;
const list = (v: Value | undefined) => (Array.isArray(v) ? v.filter(isMessage) : []);
const message = (v: Value | undefined): Message => (isMessage(v) ? v : {});
const without = (m: Message, ...names: string[]): Message => Object.fromEntries(Object.entries(m).filter(([name]) => !names.includes(name)));
/** A message with a nested message, unless that is empty. */
const within = (name: string, m: Message): Message => (Object.keys(m).length > 0 ? { [name]: m } : {});

/** A number, or a wrapped one {value: n}. */
const wrapped = (v: Value | undefined) => (isMessage(v) ? number(v.value) : number(v));

const millionths: Record<string, number> = { HUNDRED: 10_000, TEN_THOUSAND: 100, MILLION: 1, "0": 10_000, "1": 100, "2": 1 };
const healths = ["UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"];

/** Reads the valid parts of a ClusterLoadAssignment. */
export function assignmentOf(m: Message): Assignment {
  return {
    localities: list(m.endpoints).map((group) => {
      const l = message(group.locality);
      return {
        priority: number(group.priority) ?? 0,
        region: text(l.region),
        zone: text(l.zone),
        subZone: text(l.sub_zone),
        weight: wrapped(group.load_balancing_weight),
        endpoints: list(group.lb_endpoints).map(endpointOf),
        rest: without(group, "locality", "priority", "load_balancing_weight", "lb_endpoints"),
      };
    }),
    drops: list(message(m.policy).drop_overloads).map((d) => {
      const p = message(d.drop_percentage);
      const per = millionths[String(p.denominator ?? "HUNDRED")] ?? 0;
      return { category: text(d.category), perMillion: Math.min((number(p.numerator) ?? 0) * per, 1_000_000) };
    }),
    rest: {
      ...without(m, "@type", "cluster_name", "endpoints", "policy"),
      ...within("policy", without(message(m.policy), "drop_overloads")),
    },
  };
}

function endpointOf(m: Message): AssignedEndpoint {
  const endpoint = message(m.endpoint);
  const health = m.health_status;
  return {
    address: addressOf(message(endpoint.address)),
    also: list(endpoint.additional_addresses).map((a) => addressOf(message(a.address))),
    hostname: text(endpoint.hostname),
    weight: wrapped(m.load_balancing_weight) ?? 1,
    health: typeof health === "number" ? (healths[health] ?? String(health)) : text(health) || "UNKNOWN",
    rest: {
      ...without(m, "endpoint", "load_balancing_weight", "health_status"),
      ...within("endpoint", without(endpoint, "address", "additional_addresses", "hostname")),
    },
  };
}

function addressOf(m: Message): string {
  const socket = message(m.socket_address);
  if (Object.keys(socket).length > 0) {
    const host = text(socket.address);
    return `${host.includes(":") ? `[${host}]` : host}:${number(socket.port_value) ?? 0}`;
  }
  return text(message(m.pipe).path);
}

/** The resources of a bundle: name, type and content. */
export function resourcesOf(m: Message): { key: string; type: string; value: Message }[] {
  return list(m.resources).map((r) => {
    const inner = isMessage(r.resource) ? r.resource : r; // a Resource wrapper
    const type = text(inner["@type"]).replace(/^.*\./, "");
    return { key: `${type}/${text(inner.cluster_name) || text(inner.name)}`, type, value: inner };
  });
}

/** The name of the locality of an assignment. */
export const assignedName = (l: AssignedLocality) =>
  [l.region, l.zone, l.subZone].join("/").replace(/\/+$/, "") || "(no locality)";
