import assert from "node:assert/strict";
import { test } from "node:test";
import { compareAssignments, compareMessages } from "../../src/diff.ts";
import { assignmentOf, clusterOf, formatOf, kindOf, readDocument, resourcesOf } from "../../src/document.ts";
import { type Basis, basisOf, dropped, firstUsed, predict } from "../../src/shares.ts";

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

test("shares are by weight among localities with usable endpoints", async () => {
  const of = predict(await assignment(yaml));
  assert.deepEqual(of.map((l) => [l.priority, l.name, l.usable, l.share]), [
    [0, "us/a", 1, 0.75],
    [0, "us/b", 1, 0.25],
    [1, "eu", 0, 0],
  ]);
  assert.equal(firstUsed(of), 0);
});

test("without weights, the weight of a locality is its number of usable endpoints", async () => {
  const three = "{address: {socket_address: {address: 10.0.0.1, port_value: 80}}}";
  const of = predict(await assignment(`endpoints:
- {locality: {zone: a}, lb_endpoints: [{endpoint: ${three}}, {endpoint: ${three}}, {endpoint: ${three}, health_status: DRAINING}]}
- {locality: {zone: b}, lb_endpoints: [{endpoint: ${three}}]}`));
  assert.deepEqual(of.map((l) => l.share), [2 / 3, 1 / 3]);
  const mixed = predict(await assignment(`endpoints:
- {locality: {zone: a}, load_balancing_weight: 2, lb_endpoints: [{endpoint: ${three}}]}
- {locality: {zone: b}, lb_endpoints: [{endpoint: ${three}}]}`));
  assert.deepEqual(mixed.map((l) => l.name), ["/a"]); // one without a weight among others that have one is left out
});

test("picks use only endpoints with health HEALTHY or UNKNOWN", async () => {
  const usable = async (health: string) => {
    const [l] = predict(await assignment(`endpoints: [{load_balancing_weight: 1, lb_endpoints: [{endpoint: {}, health_status: ${health}}]}]`));
    return l!.usable;
  };
  const all = ["UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED", "0", "1", "5"];
  assert.deepEqual(await Promise.all(all.map(usable)), [1, 1, 0, 0, 0, 0, 1, 1, 0]);
});

test("shares depend on the policy of the cluster", async () => {
  const one = "{endpoint: {}}";
  const a = await assignment(`endpoints:
- {locality: {zone: a}, load_balancing_weight: 9, lb_endpoints: [${one}, {endpoint: {}, health_status: DEGRADED}]}
- {locality: {zone: b}, load_balancing_weight: 1, lb_endpoints: [${one}, ${one}, ${one}]}
- {locality: {zone: c}, load_balancing_weight: 5, lb_endpoints: []}`);
  const shares = (basis: Basis) => predict(a, basis).map((l) => l.share);
  assert.deepEqual(shares("weights"), [0.9, 0.1, 0]);
  assert.deepEqual(shares("hashes"), [0.9, 0.1, 0]);
  assert.deepEqual(shares("endpoints"), [0.25, 0.75, 0]);
  assert.deepEqual(shares("load"), [0.25, 0.75, 0]);
  assert.deepEqual(shares("unknown"), [null, null, null]);
  const policies = ["xds_wrr_locality_experimental/least_request_experimental", "ring_hash_experimental", "round_robin", "least_request_experimental", "pick_first", ""];
  assert.deepEqual(policies.map(basisOf), ["weights", "hashes", "endpoints", "load", "unknown", "unknown"]);
});

test("a priority without a usable endpoint is not used", async () => {
  const of = predict(await assignment(`endpoints:
- {load_balancing_weight: 1, lb_endpoints: [{endpoint: {}, health_status: UNHEALTHY}]}
- {priority: 1, load_balancing_weight: 1, lb_endpoints: [{endpoint: {}}]}`));
  assert.equal(firstUsed(of), 1);
  assert.equal(firstUsed([]), -1);
});

test("each drop category draws independently", () => {
  assert.equal(dropped([{ perMillion: 500_000 }, { perMillion: 500_000 }]), 0.75);
  assert.equal(dropped([]), 0);
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
