// How Explain shows the choice of policies, and aggregate clusters.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { type Daemon, endpointsOf, fits, freePort, has, openBrowser, prioritiesOf, push, startDaemon, startUpstream, type Upstream, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;
let upstreams: Upstream[];
let gone: string;

const policy = (name: string, config: object = {}) => ({
  type: "EDS",
  load_balancing_policy: {
    policies: [{ typed_extension_config: { name, typed_config: { "@type": `type.googleapis.com/envoy.extensions.load_balancing_policies.${name}`, ...config } } }],
  },
});

before(async () => {
  [browser, daemon, upstreams] = await Promise.all([openBrowser(), startDaemon("serve"), Promise.all([startUpstream(), startUpstream(), startUpstream()])]);
  gone = `127.0.0.1:${await freePort()}`;
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
  await Promise.all((upstreams ?? []).map((u) => u.stop()));
});

const addresses = () => upstreams.map((u) => u.address) as [string, string, string];

/** A cluster of three endpoints in one zone, once all of them are READY. */
async function cluster(name: string, config: object, weights: number[] = [1, 1, 1]): Promise<void> {
  const assignment = endpointsOf({ a: addresses() });
  assignment.endpoints[0]!.lb_endpoints = assignment.endpoints[0]!.lb_endpoints.map((e, i) => ({ ...e, load_balancing_weight: weights[i] }));
  await push(daemon, `/v1/clusters/${name}/config`, config);
  await push(daemon, `/v1/clusters/${name}/endpoints`, assignment);
}
async function ready(t: Parameters<typeof visit>[0], name: string, text: RegExp): Promise<Page> {
  const { page } = await visit(t, browser, daemon, `#/clusters/${name}`);
  await has(page, text, "#headline");
  return page;
}

interface Drawn {
  address: string;
  says: string;
}

/** What the endpoint's step shows of the pick that is shown. */
const drawn = (page: Page): Promise<Drawn> =>
  page.$eval(".step.endpoint", (e) => ({ address: e.querySelector("code.address")?.textContent ?? "", says: e.querySelector(".says")?.textContent ?? "" }));

/** Picks once more, and reads that. */
async function again(page: Page): Promise<Drawn> {
  const answered = page.waitForResponse((r) => new URL(r.url()).pathname === "/pick");
  await page.click("#pick");
  await answered;
  await page.waitForSelector('#pick[aria-disabled="false"]');
  return drawn(page);
}

/** What the tree says of the endpoints' shares, in percent. */
const shares = (page: Page) => page.$$eval(".tree .endpoint .share", (all) => all.map((e) => Number(/^ ([\d.]+) %$/.exec(e.textContent ?? "")?.[1])));

/** Where a circle is on the ring, in parts of it. */
const around = (page: Page, circle: string) =>
  page.$eval(`svg.ring ${circle}`, (c) => {
    const at = (a: string) => Number(c.getAttribute(a)) - 30;
    return (Math.atan2(at("cx"), -at("cy")) / (2 * Math.PI) + 1) % 1;
  });
const near = (got: number, want: number) => assert.ok(Math.abs(got - want) < 1e-6, `at ${got}, not ${want}`);

test("ring_hash: the position of the hash, and the entries that were skipped", async (t) => {
  await cluster("ring", { type: "EDS", lb_policy: "RING_HASH" });
  const { page, faults } = await visit(t, browser, daemon, "#/explain?cluster=ring&hash=alice");
  await has(page, /Picked 127/, "#outcome");
  const tree = await visit(t, browser, daemon, "#/clusters/ring");
  await has(tree.page, /READY on priority 0/, "#headline");
  assert.ok(Math.abs((await shares(tree.page)).reduce((a, b) => a + b, 0) - 100) < 0.2, "of the ring");
  const first = await drawn(page);
  const place = /^ring_hash_experimental: the request's hash [0-9a-f]{16} maps to entry (\d+) of (\d+); used the endpoint 0 entries later, (\S+), which is READY/.exec(first.says);
  assert.ok(place && place[3] === first.address, first.says);
  const fell = Number(place[1]) / Number(place[2]);
  near(await around(page, ".fell"), fell);
  near(await around(page, ".chosen"), fell);
  assert.equal(await page.$("svg.ring .way"), null);
  assert.deepEqual(await again(page), first, "the same key");

  await page.fill('input[placeholder="addresses"]', first.address);
  const second = await again(page);
  assert.notEqual(second.address, first.address);
  const walked = /maps to entry (\d+) of (\d+); used the endpoint ([1-9]\d*) entries later/.exec(second.says);
  assert.ok(walked && walked[1] === place[1], second.says);
  near(await around(page, ".fell"), fell);
  near(await around(page, ".chosen"), (fell + Number(walked[3]) / Number(walked[2])) % 1);
  assert.ok(await page.$("svg.ring .way"));
  await page.fill('input[placeholder="addresses"]', "");
  await page.fill('input[placeholder="random"]', "");
  assert.match((await again(page)).says, /a random hash/);
  assert.deepEqual(faults, []);
});

test("least_request: the compared counts", async (t) => {
  const [busy, ...idle] = addresses();
  await cluster("least", policy("least_request.v3.LeastRequest", { choice_count: 10 }));
  const least = await ready(t, "least", /3 of 3 endpoints READY/);
  assert.deepEqual(await shares(least), [33.3, 33.3, 33.3]);
  const held = await daemon.call("POST", `/pick?cluster=least&n=4&ttl=10m&${idle.map((a) => `exclude=${a}`).join("&")}`);
  assert.ok(held.ok);
  const { page, faults } = await visit(t, browser, daemon, "#/explain?cluster=least");
  await has(page, /Picked 127/, "#outcome");
  // Ten are drawn of three: the busy one is among them but in one pick of 57.
  let compared: { text: string; taken: boolean }[] = [];
  for (let tries = 0; !compared.some((c) => c.text.startsWith(`${busy} `)); tries++) {
    assert.ok(tries < 20, JSON.stringify(compared));
    await again(page);
    compared = await page.$$eval(".compared li", (all) => all.map((e) => ({ text: e.textContent ?? "", taken: e.className === "taken" })));
    assert.equal(compared.length, 10);
  }
  const { address } = await drawn(page);
  assert.ok(idle.includes(address), address);
  for (const { text, taken } of compared) {
    assert.ok(text === `${busy} 4 in flight` || idle.some((a) => text === `${a} 0 in flight`), text);
    assert.equal(taken, text.startsWith(`${address} `));
  }
  assert.deepEqual(faults, []);
});

/** Which of how many dots is the one whose turn it was. */
const turn = (page: Page) =>
  page.$$eval("svg.rotation circle", (all) => `${all.findIndex((c) => c.classList.contains("chosen"))} of ${all.length}`);

test("weighted_round_robin: the turn and the weight", async (t) => {
  const all = addresses();
  const weights = [1, 2, 5];
  await cluster("weighted", policy("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"), weights);
  await ready(t, "weighted", /3 of 3 endpoints READY/);
  const { page, faults } = await visit(t, browser, daemon, "#/explain?cluster=weighted");
  await has(page, /Picked 127/, "#outcome");
  for (let picks = 0; picks < 4; picks++) {
    const { address, says } = await again(page);
    const weight = weights[all.indexOf(address)]!;
    const at = /^weighted_round_robin took (\S+), number (\d of \d) in rotation, which has ([\d.]+)% of the turns by its weight of (\d) from eds/.exec(says);
    assert.deepEqual(at?.slice(1), [address, await turn(page), (weight * 12.5).toFixed(1), String(weight)], says);
  }
  assert.deepEqual(faults, []);
});

test("pick_first: always the first", async (t) => {
  await cluster("first", policy("pick_first.v3.PickFirst"));
  const { page, faults } = await visit(t, browser, daemon, "#/explain?cluster=first");
  await has(page, /Picked 127/, "#outcome");
  for (let picks = 0; picks < 3; picks++) {
    assert.deepEqual(await again(page), { address: addresses()[0], says: `pick_first took ${addresses()[0]}, number 0 of 1 in rotation (0 excluded)` });
    assert.equal(await turn(page), "0 of 1");
  }
  assert.deepEqual(faults, []);
});

test("the priorities of an aggregate are shown with their leaves and explained", async (t) => {
  const [second, last] = addresses();
  await push(daemon, "/v1/clusters/near/config", { type: "EDS", circuit_breakers: { thresholds: [{ max_requests: 7 }] } });
  await push(daemon, "/v1/clusters/near/endpoints", { ...prioritiesOf([gone]), policy: { drop_overloads: [{ category: "shed", drop_percentage: { numerator: 100 } }] } });
  await push(daemon, "/v1/clusters/far/endpoints", prioritiesOf([second], [last]));
  await push(daemon, "/v1/clusters/both/config", {
    cluster_type: {
      name: "envoy.clusters.aggregate",
      typed_config: { "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", clusters: ["near", "far"] },
    },
  });
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/both");
  await has(page, /READY on priority 1.*priority 0 is TRANSIENT_FAILURE: .*refused/, "#headline");
  const rows = await page.$$eval(".tree [data-key]", (all) => all.map((e) => (e.querySelector(".where")?.textContent ?? "").replace(/^▾/, "")));
  assert.deepEqual(rows, [
    "priority 0 of near", "us/a", gone,
    "priority 1 of farin use", "us/a", second,
    "priority 2 of farstandby", "us/a", last,
  ]);
  await has(page, /Dropsshed 100 % of near, 0 so far/, ".facts div");
  await has(page, /Circuit breakernear: 0 of 7far: 0 of 1,024/, ".facts div");
  await has(page, /Connectionsnear: tcp; a lost connection is detected within \S+sfar: tcp; a lost connection/, ".facts div");
  assert.deepEqual(await violations(page), []);

  // In use is far: its limit is drawn, and shown in the list, for the other's is emptier.
  await has(page, /In flight against the limit of far/, ".chart");
  const held = await daemon.call("POST", "/pick?cluster=both&n=3&ttl=10m");
  assert.ok(held.ok);
  await has(page, /^in flight 3limit 1,024$/, ".legend");
  await has(page, /near: 0 of 7far: 3 of 1,024/, ".facts div");

  // On a phone, too, the list says that it is not the first choice.
  await page.setViewportSize({ width: 390, height: 740 });
  await page.goto(`${daemon.url}/#/clusters`);
  await page.waitForSelector('[data-key="both"] .of-state .tag:has-text("failed over to 1")', { state: "visible" });
  assert.equal(await page.locator('[data-key="far"] .of-state .tag').count(), 0);
  await fits(page);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.waitForSelector('[data-key="both"] .of-state .tag', { state: "hidden" });
  await has(page, /3 \/ 1,024/, '[data-key="both"] .of-breaker');

  await page.goto(`${daemon.url}/#/explain?cluster=both`);
  await has(page, new RegExp(`Picked ${second}`), "#outcome");
  await has(page, /^near ✕ TRANSIENT_FAILURE skipped: TRANSIENT_FAILURE: connect to .*: connection refused$/, ".priorities .passed");
  await has(page, /^far ● READY in use: its drops and circuit breaker apply$/, ".priorities .taken");
  await has(page, /[34] in flight of at most 1,024: passes/, ".step.circuit_breaker"); // the leaf's that is in use
  assert.equal(await page.$(".step.drop"), null, "the other leaf's are not in the way");
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(faults, []);
});
