// The API's values by short names.

import type { components } from "./schema.d.ts";

type Schemas = components["schemas"];

export type BrokenRule = Schemas["BrokenRule"];
export type Check = Schemas["Check"];
export type ChangeList = Schemas["ChangeList"];
export type ChangesOf = Schemas["ChangesOf"];
export type ClusterCounts = Schemas["ClusterCounts"];
export type ClusterList = Schemas["ClusterList"];
export type ClusterState = Schemas["ClusterState"];
export type ClusterUpdate = Omit<Schemas["ClustersUpdate"], "removed"> & { removed?: string[] };
export type ClusterHistory = Schemas["ClusterHistory"];
export type Condition = Schemas["Condition"];
export type DaemonState = Schemas["DaemonState"];
export type Disagreement = Schemas["Disagreement"];
export type DoctorReport = Schemas["Report"];
export type EndpointState = Schemas["EndpointState"];
export type EventList = Schemas["EventList"];
export type EventType = Schemas["EventType"];
export type FleetShare = Schemas["FleetShare"];
export type FleetState = Schemas["State"];
export type LbdEvent = Schemas["Event"];
export type LimitState = Schemas["LimitState"];
export type HistoryDifference = Schemas["Difference"];
export type HistoryEntry = Schemas["Entry"];
export type Locality = Schemas["Locality"];
export type LocalityState = Schemas["LocalityState"];
export type Overlay = Schemas["Overlay"];
export type OverlayList = Schemas["OverlayList"];
export type PickAnswer = Schemas["PickAnswer"];
export type PriorityState = Schemas["PriorityState"];
export type Problem = Schemas["Problem"];
export type PushAnswer = Schemas["PushAnswer"];
export type Effect = Schemas["Effect"];
export type ClusterEffect = Schemas["ClusterEffect"];
export type EndpointEffect = Schemas["EndpointEffect"];
export type ReplicaState = Schemas["ReplicaState"];
export type RouteState = Schemas["RouteState"];
export type SecurityState = Schemas["SecurityState"];
export type ShareState = Schemas["ShareState"];
export type Step = Schemas["Step"];
export type StoreState = Schemas["StoreState"];
export type TargetList = Schemas["TargetList"];
export type TargetState = Schemas["TargetState"];
export type TargetSummary = Schemas["TargetSummary"];
export type VersionChange = Schemas["VersionChange"];
export type XdsResource = Schemas["XDSResource"];
export type XdsServer = Schemas["XDSServer"];
export type XdsState = Schemas["XDSState"];

/** A cluster of a list, or of the feed of all, which counts as well. */
export type ClusterSummary = Schemas["ClusterSummary"] & { counts?: ClusterCounts };
