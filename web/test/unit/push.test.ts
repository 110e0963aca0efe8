import assert from "node:assert/strict";
import { test } from "node:test";
import { compareAssignments, compareMessages } from "../../src/diff.ts";
import { assignmentOf, clusterOf, formatOf, kindOf, readDocument, resourcesOf } from "../../src/document.ts";
import { flowsOf, ribbon } from "../../src/effect.ts";
import type { ClusterEffect } from "../../src/model.ts";

const yaml = `
clusterName: orders
endpoints:
- locality: {region: us, zone: a}
  loadBalancingWeight: 3
  lbEndpoints:
  - endpoint: {address: {socketAddress: {address: 10.0.0.1, portValue: 80}}, hostname: one}
  - endpoint: {address: {socketAddress: {address: "::1", portValue: 80}}}
    healthStatus: UNHEALTHY
- locality: {region: us, zone: b}
  loadBalancingWeight: {value: 1}
  lbEndpoints:
  - endpoint: {address: {socketAddress: {address: 10.0.0.3, portValue: 80}}}
- locality: {region: eu}
  priority: 1
  load_balancing_weight: 5
  lb_endpoints: []
policy:
  dropOverloads:
  - {category: a, dropPercentage: {numerator: 50}}
  - {category: b, dropPercentage: {numerator: 1000, denominator: TEN_THOUSAND}}
`;

const assignment = async (body: string) => assignmentOf((await readDocument(body))!.value);

test("YAML and JSON, snake_case and lowerCamelCase read the same", async () => {
  const d = (await readDocument(yaml))!;
  assert.equal(d.format, "yaml");
  assert.equal(kindOf(d.value), "endpoints");
  assert.equal(clusterOf(d.value, "endpoints"), "orders");
  const asJson = JSON.stringify(d.value);
  assert.equal(formatOf(asJson), "json");
  assert.deepEqual(await assignment(asJson), assignmentOf(d.value));
  const a = assignmentOf(d.value);
  assert.deepEqual(a.localities.map((l) => l.weight), [3, 1, 5]);
  assert.equal(a.localities[0]!.endpoints[1]!.address, "[::1]:80");
  assert.deepEqual(a.drops, [{ category: "a", perMillion: 500_000 }, { category: "b", perMillion: 100_000 }]);
});

test("a text that cannot be parsed is left to lbd", async () => {
  for (const body of ["{", "a: [", "- a", "just words"]) assert.equal(await readDocument(body), null, body);
  assert.deepEqual(await assignment("endpoints: [3, {lb_endpoints: [null, {endpoint: 7}]}]"), {
    localities: [{ priority: 0, region: "", zone: "", subZone: "", weight: null, rest: {}, endpoints: [{ address: "", also: [], hostname: "", weight: 1, health: "UNKNOWN", rest: {} }] }],
    drops: [],
    rest: {},
  });
});

test("kinds of resources are detected", async () => {
  const kind = async (body: string) => kindOf((await readDocument(body))!.value);
  assert.equal(await kind("type: EDS"), "config");
  assert.equal(await kind("resources: []"), "snapshot");
  assert.equal(await kind("something: else"), null);
  const bundle = (await readDocument(`resources:
- {"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: orders}
- {name: x, resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: orders}}`))!;
  assert.deepEqual(resourcesOf(bundle.value).map((r) => r.key), ["ClusterLoadAssignment/orders", "Cluster/orders"]);
});

test("assignments are compared by endpoint", async () => {
  const before = await assignment(yaml);
  const after = await assignment(
    yaml.replace("loadBalancingWeight: 3", "loadBalancingWeight: 4").replace("10.0.0.3", "10.0.0.4").replace("numerator: 50}", "numerator: 40}").replace("eu", "asia"),
  );
  assert.deepEqual(compareAssignments(before, before), []);
  const told = compareAssignments(before, after).map((d) => `${d.change} ${d.what}: ${d.from ?? ""} > ${d.to ?? ""}`);
  assert.deepEqual(told, [
    "modified priority 0, us/a: weight 3 > weight 4",
    "added priority 0, us/b, 10.0.0.4:80:  > weight 1",
    "removed priority 0, us/b, 10.0.0.3:80:  > ",
    "added priority 1, asia:  > 0 endpoints, weight 5",
    "removed priority 1, eu: 0 endpoints > ",
    'modified drop category "a": 50 % > 40 %',
  ]);
  assert.equal(compareAssignments(null, after).filter((d) => d.change === "added").length, 5);
});

const tell = (before: string, after: string) =>
  Promise.all([assignment(before), assignment(after)]).then(([b, a]) => compareAssignments(b, a).map((d) => `${d.change} ${d.what}: ${d.from ?? ""} > ${d.to ?? ""}`));

test("other fields are compared by path", async () => {
  const plain = `endpoints:
- locality: {zone: a}
  load_balancing_weight: 1
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}
`;
  const also = plain.replace("port_value: 80}}", "port_value: 80}}, additional_addresses: [{address: {socket_address: {address: '::1', port_value: 80}}}]");
  const place = "priority 0, /a, 10.0.0.1:80";
  assert.deepEqual(await tell(plain, also), [`modified ${place}: weight 1 > weight 1, also [::1]:80`]);
  const canary = (is: string) => `${plain}    metadata: {filterMetadata: {envoy.lb: {canaryGroup: ${is}}}}\n`;
  assert.deepEqual(await tell(canary("a"), canary("b")), [`modified ${place}, metadata.filter_metadata.envoy.lb.canaryGroup: "a" > "b"`]);
  assert.deepEqual(await tell(plain, canary("a")), [`added ${place}, metadata:  > {"filter_metadata":{"envoy.lb":{"canaryGroup":"a"}}}`]);
  assert.deepEqual(await tell("endpoints: []", canary("a").replace("lb_endpoints", "proximity: 3\n  lb_endpoints")), [
    "added priority 0, /a:  > 1 endpoint, weight 1, with proximity",
  ]);
  assert.deepEqual(await tell(plain, plain.replace("lb_endpoints", "proximity: 3\n  lb_endpoints")), ["added priority 0, /a, proximity:  > 3"]);
  assert.deepEqual(await tell(plain.replace("10.0.0.1", "10.0.0.9"), canary("a")), [
    `added ${place}:  > weight 1, with metadata`,
    "removed priority 0, /a, 10.0.0.9:80:  > ",
  ]);
  assert.deepEqual(await tell(plain, `${plain}policy: {overprovisioning_factor: {value: 140}}\n`), ["added policy:  > {\"overprovisioning_factor\":{\"value\":140}}"]);
  const factor = (n: string) => `${plain}policy: {overprovisioning_factor: ${n}}\n`;
  assert.deepEqual(await tell(factor("140"), factor('{value: "140"}')), [], "the same number");
  assert.deepEqual(await tell(plain, `cluster_name: orders\n${plain}`), [], "the cluster has its name either way");
});

test("configs are compared by field", () => {
  assert.deepEqual(compareMessages({ a: { b: 1, c: [1, 2] } }, { a: { b: 2, c: [1] }, d: true }), [
    { change: "modified", what: "a.b", from: "1", to: "2" },
    { change: "removed", what: "a.c[1]", from: "2" },
    { change: "added", what: "d", to: "true" },
  ]);
  assert.equal(compareMessages(null, {}).length, 1);
});

/** A change of shares, of endpoints with the names 0, 1 and so on. */
function effect(shares: [number | undefined, number | undefined][], more: Partial<ClusterEffect> = {}): ClusterEffect {
  const locality = { region: "", zone: "", sub_zone: "" };
  const outcome = { dropped: 0, priority_in_use: 0 };
  return {
    cluster: "orders", change: "modified", before: outcome, after: outcome, assumed_reachable: 0, connections_opened: 0, connections_closed: 0,
    limits: [], unpredicted: [], more_endpoints: 0,
    endpoints: shares.map(([b, a], i) => ({ address: String(i), locality, priority: 0, share_before: b, share_after: a })), ...more,
  };
}
const spans = (c: ClusterEffect) => flowsOf(c).map((f) => `${f.label} ${[...f.before, ...f.after].map((n) => n.toFixed(2)).join(" ")}`);

test("the flows of a change are stacked", () => {
  assert.deepEqual(spans(effect([[0.5, undefined], [0.5, 0.75], [undefined, 0.25]])), ["0 0.00 0.50 0.00 0.00", "1 0.50 1.00 0.00 0.75", "2 1.00 1.00 0.75 1.00"]);
  assert.deepEqual(spans(effect([[undefined, undefined]])), []);
  assert.deepEqual(spans(effect([])), []);
});

test("dropped picks are a flow, and endpoints that are not listed are one together", () => {
  const outcome = (dropped: number, error?: string) => ({ dropped, priority_in_use: 0, error });
  assert.deepEqual(spans(effect([[1, 1]], { before: outcome(0), after: outcome(0.4) })), ["0 0.00 1.00 0.00 0.60", "dropped 1.00 1.00 0.60 1.00"]);
  assert.deepEqual(spans(effect([[1, undefined]], { after: outcome(0, "no endpoint") })), ["0 0.00 1.00 0.00 0.00"]);
  const ten = effect(Array.from({ length: 10 }, () => [0.1, 0.1]));
  assert.deepEqual(spans(ten).slice(7), ["7 0.70 0.80 0.70 0.80", "others 0.80 1.00 0.80 1.00"]);
  assert.deepEqual(spans(effect([[0.1, 0.2]], { more_endpoints: 9 })), ["0 0.00 0.10 0.00 0.20", "others 0.10 1.00 0.20 1.00"]);
});

test("a ribbon leads from its span before to its span after", () => {
  assert.equal(ribbon({ label: "a", kind: "endpoint", before: [0, 0.5], after: [0.25, 1] }, 100, 10), "M0 0H8C50 0 50 2.5 92 2.5H100V10H92C50 10 50 5 8 5H0Z");
});
