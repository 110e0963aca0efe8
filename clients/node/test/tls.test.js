// Requests to https://CLUSTER.lbd, with a real daemon and an upstream with TLS.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Daemon } from "./stand.js";

const directory = mkdtempSync(join(tmpdir(), "lbd"));
const daemon = new Daemon();
before(() => daemon.start());
after(async () => {
  await daemon.close();
  rmSync(directory, { recursive: true });
});

/** What each library gets from an endpoint whose certificate is valid for a name. */
async function answers(t, name) {
  const [key, cert] = [join(directory, `${name}.key`), join(directory, `${name}.pem`)];
  const how = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test".split(" ");
  execFileSync("openssl", [...how, "-addext", `subjectAltName=${name}`, "-keyout", key, "-out", cert], {
    stdio: "ignore",
  });
  const settings = { key: readFileSync(key), cert: readFileSync(cert) };
  const server = https.createServer(settings, (request, response) => {
    const { servername } = /** @type {import("node:tls").TLSSocket & { servername: string }} */ (request.socket);
    response.end(`${servername} ${request.headers.host}`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  await daemon.push("orders", [`127.0.0.1:${port}`]);
  const program = `
    import { Client } from "lbd-client";
    import { causeOf, libraries } from "./libraries.js";
    const answers = {};
    for (const [library, connect] of Object.entries(libraries)) {
      const client = new Client();
      const answer = connect(client)("GET", "https://orders.lbd/").then(([, body]) => body);
      answers[library] = await answer.catch((error) => causeOf(error).code);
      await client.close();
    }
    console.log(JSON.stringify(answers));
    process.exit();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    env: { ...process.env, LBD: daemon.lbd, NODE_EXTRA_CA_CERTS: cert },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  return Object.entries(JSON.parse(await text(child.stdout)));
}

test("an endpoint has to have a certificate of the host", async (t) => {
  for (const [library, answer] of await answers(t, "DNS:orders.lbd")) {
    assert.equal(answer, "orders.lbd orders.lbd", library);
  }
});

for (const name of ["DNS:other.lbd", "IP:127.0.0.1"]) {
  test(`a certificate of ${name} is not one of the host`, async (t) => {
    for (const [library, answer] of await answers(t, name)) {
      assert.equal(answer, "ERR_TLS_CERT_ALTNAME_INVALID", library);
    }
  });
}
