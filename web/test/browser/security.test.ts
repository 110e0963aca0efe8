// Endpoints with TLS.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { certificateOf } from "./certificate.ts";
import { type Daemon, endpointsOf, fits, has, openBrowser, push, startDaemon, startUpstream, type Upstream, violations, visit } from "./kit.ts";

let browser: Browser;
let daemon: Daemon;
let upstream: Upstream;
let dir: string;

before(async () => {
  const { cert, key } = certificateOf("orders.example");
  dir = await mkdtemp(join(tmpdir(), "lbd-security-"));
  const [certFile, keyFile, bootstrap] = [join(dir, "cert.pem"), join(dir, "key.pem"), join(dir, "xds.json")];
  await writeFile(certFile, cert);
  await writeFile(keyFile, key);
  await writeFile(
    bootstrap,
    JSON.stringify({
      xds_servers: [{ server_uri: "127.0.0.1:1", channel_creds: [{ type: "insecure" }] }],
      node: { id: "lbd" },
      certificate_providers: {
        mesh: { plugin_name: "file_watcher", config: { ca_certificate_file: certFile, certificate_file: certFile, private_key_file: keyFile } },
      },
    }),
  );
  [browser, daemon, upstream] = await Promise.all([openBrowser(), startDaemon("serve", 0, ["--bootstrap", bootstrap]), startUpstream(0, { cert, key })]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
  await upstream?.stop();
  await rm(dir, { recursive: true });
});

/** A cluster of one endpoint, whose connections are secured so. */
async function cluster(name: string, context: object): Promise<void> {
  await push(daemon, `/v1/clusters/${name}/config`, {
    type: "EDS",
    transport_socket: {
      name: "envoy.transport_sockets.tls",
      typed_config: { "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", ...context },
    },
  });
  await push(daemon, `/v1/clusters/${name}/endpoints`, endpointsOf({ a: [upstream.address] }));
}
const mesh = { instance_name: "mesh" };
const bearing = (name: string) => ({
  common_tls_context: {
    tls_certificate_provider_instance: mesh,
    validation_context: { ca_certificate_provider_instance: mesh, match_subject_alt_names: [{ exact: name }] },
  },
});
const row = () => `[data-key="l0 us/a ${upstream.address}"]`;

test("the security of connections is shown", async (t) => {
  await cluster("named", bearing("orders.example"));
  await cluster("sent", {
    sni: "orders.example", auto_sni_san_validation: true, common_tls_context: { validation_context: { ca_certificate_provider_instance: mesh } },
  });
  await cluster("any", { common_tls_context: { validation_context: { ca_certificate_provider_instance: mesh } } });
  const words = {
    named: /TLS: trusts the roots of mesh, requires exact "orders\.example", sends the certificate of mesh$/,
    sent: /TLS: SNI orders\.example, trusts the roots of mesh, requires the SNI name$/,
    any: /TLS: trusts the roots of mesh, accepts any name$/,
  };
  for (const [name, text] of Object.entries(words)) {
    const { page, faults } = await visit(t, browser, daemon, `#/clusters/${name}`);
    await has(page, /READY on priority 0/, "#headline");
    await has(page, /● READY/, row());
    await has(page, text, ".facts dd");
    if (name === "named") assert.deepEqual(await violations(page), []);
    assert.deepEqual(faults, []);
  }
});

test("a failed handshake has a reason", async (t) => {
  await cluster("misnamed", bearing("other.example"));
  const why = /certificate is of DNS "orders\.example": wanted exact "other\.example"/;
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/misnamed");
  await has(page, new RegExp(`TRANSIENT_FAILURE.*${why.source}`), row());
  await has(page, new RegExp(`Picks fail( for [^:]*)?: .*${why.source}`), "#headline");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 740 });
  await fits(page);
  await page.goto(`${daemon.url}/#/events?cluster=misnamed&types=connection_changed`);
  await has(page, new RegExp(`could not connect.*${why.source}`), ".event.connection_changed");
  await page.goto(`${daemon.url}/#/explain?cluster=misnamed`);
  await has(page, /Refused/, "#outcome");
  await has(page, why, ".step.failure");
  assert.deepEqual(faults, []);
});

test("connect mode tls without certificates trusts the system's roots", async (t) => {
  await push(daemon, "/v1/clusters/stranger/config", { type: "EDS", metadata: { filter_metadata: { lbd: { connect: "tls" } } } });
  await push(daemon, "/v1/clusters/stranger/endpoints", endpointsOf({ a: [upstream.address] }));
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/stranger");
  await has(page, /TRANSIENT_FAILURE.*x509: /, row());
  await has(page, /^tls; .*TLS: trusts the system's roots, requires the endpoint's hostname/, ".facts dd");
  assert.deepEqual(faults, []);
});

test("each leaf of an aggregate has its own security", async (t) => {
  await cluster("inner", bearing("orders.example"));
  await push(daemon, "/v1/clusters/plain/endpoints", endpointsOf({ a: [upstream.address] }));
  await push(daemon, "/v1/clusters/outer/config", {
    cluster_type: {
      name: "envoy.clusters.aggregate",
      typed_config: { "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", clusters: ["inner", "plain"] },
    },
  });
  const { page, faults } = await visit(t, browser, daemon, "#/clusters/outer");
  await has(page, /^inner: tcp; a lost connection is detected within \S+TLS: trusts the roots of mesh, requires exact "orders\.example".*plain: tcp; a lost connection is detected within \S+$/, ".facts dd");
  assert.deepEqual(faults, []);
});
