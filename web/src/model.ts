// The API's values by short names.

import type { components, paths } from "./schema.d.ts";

type Schemas = components["schemas"];

export type BrokenRule = Schemas["BrokenRule"] & { line?: number; column?: number };
export type ClusterList = Schemas["ClusterList"];
export type ClusterState = Schemas["ClusterState"];
export type DropState = Schemas["DropState"];
export type EndpointState = Schemas["EndpointState"];
export type EventList = Schemas["EventList"];
export type EventType = Schemas["EventType"];
export type LbdEvent = Schemas["Event"];
export type Locality = Schemas["Locality"];
export type LocalityState = Schemas["LocalityState"];
export type PickAnswer = Schemas["PickAnswer"];
export type PriorityState = Schemas["PriorityState"];
export type PushAnswer = Schemas["PushAnswer"];
export type RouteState = Schemas["RouteState"];
export type Step = Schemas["Step"];
export type TargetList = Schemas["TargetList"];
export type TargetState = Schemas["TargetState"];
export type TargetSummary = Schemas["TargetSummary"];
export type Problem = Omit<Schemas["Problem"], "errors"> & { errors?: BrokenRule[] };
/** Paths of the API, so that a path that is not one does not compile. */
export type ApiPath = keyof paths;

/** What was counted since the process's start; the reader makes rates. */
export interface ClusterCounts {
  time: string;
  cluster: string;
  target?: string;
  picks: Record<string, number>;
  drops: Record<string, number>;
  circuit_broken: number;
  breaker?: { in_flight: number; max_requests: number; open: boolean };
  leases: number;
  localities?: { priority: number; locality: Locality; picks: number }[];
}

export type ClusterSummary = Schemas["ClusterSummary"] & { counts?: ClusterCounts };

/** The clusters that changed since the last message of the feed. */
export interface ClusterUpdate {
  clusters: ClusterSummary[];
  removed?: string[];
}

export interface XdsStatus {
  servers: XdsServer[];
  resources: XdsResource[];
}

export interface XdsServer {
  server: string;
  authority?: string;
  connected: boolean;
  active?: boolean;
  since?: string;
  last_error?: string;
  last_error_at?: string;
}

export interface XdsResource {
  type: string;
  name: string;
  authority?: string;
  state: string;
  version?: string;
  updated_at?: string;
  age?: string;
  error?: string;
  rejected?: { version?: string; reason: string; at?: string };
}
