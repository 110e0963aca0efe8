// What an interceptor is composed with: proxies, and other interceptors.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { Client } from "lbd-client";
import { createFetch } from "lbd-client/fetch";
import { interceptor } from "lbd-client/undici";
import * as undici from "undici";

import { Daemon, HttpProxy, Upstream, until } from "./stand.js";

// undici 6 is there in the tests of this folder, but not in that of the package.
const undici6 = await import("undici6").catch(() => undefined);

const daemon = new Daemon();
before(() => daemon.start());
after(() => daemon.close());

/** A client, an endpoint of the cluster, another server, and a proxy that the environment has. */
async function start(t, cluster) {
  const upstreams = [await Upstream.start(), await Upstream.start()];
  const client = new Client({ lbd: daemon.lbd });
  const proxy = await HttpProxy.start(t);
  t.after(() => {
    for (const upstream of upstreams) upstream.close();
    delete process.env.http_proxy;
    return client.close();
  });
  await daemon.push(cluster, [upstreams[0].address]);
  process.env.http_proxy = proxy.url;
  return { client, endpoint: upstreams[0].address, other: upstreams[1].address, proxy };
}

for (const [name, { Agent, EnvHttpProxyAgent, ProxyAgent, interceptors, request }] of Object.entries({
  undici,
  ...(undici6 && { "undici 6": /** @type {any} */ (undici6) }),
})) {
  describe(name, () => {
    for (const more of [[], [interceptors.redirect({ maxRedirections: 1 })]]) {
      test(`the proxy of the environment is not for endpoints: ${more.length}`, async (t) => {
        const { client, endpoint, other, proxy } = await start(t, "env");
        const dispatcher = new EnvHttpProxyAgent().compose(interceptor(client), ...more);
        const send = async (url) => (await request(url, { dispatcher })).body.text();
        assert.equal(await send("http://env.lbd/"), endpoint);
        assert.equal(await send(`http://${other}/`), other);
        await until(() => proxy.targets.length > 0, "the proxy has a request");
        assert.deepEqual(proxy.targets, [other]);
      });
    }

    test("a proxy for all is for endpoints, too, unless they have a dispatcher", async (t) => {
      const { client, endpoint, proxy } = await start(t, "all");
      for (const endpoints of [new Agent(), undefined]) {
        const dispatcher = new ProxyAgent(proxy.url).compose(interceptor(client, endpoints));
        const response = await request("http://all.lbd/", { dispatcher });
        assert.equal(await response.body.text(), endpoint);
      }
      await until(() => proxy.targets.length > 0, "the proxy has a request");
      assert.deepEqual(proxy.targets, [endpoint]);
    });

    test("rejects redirects that are followed within a try", async (t) => {
      const { client } = await start(t, "to");
      const moves = await Upstream.start((_, response) =>
        response.writeHead(307, { location: "http://to.lbd/" }).end(),
      );
      t.after(() => moves.close());
      await daemon.push("from", [moves.address]);
      const redirect = interceptors.redirect({ maxRedirections: 3 });
      const wrong = new Agent().compose(redirect, interceptor(client));
      await assert.rejects(
        request("http://from.lbd/", { dispatcher: wrong }),
        /compose\(interceptor\(client\), redirect\)/,
      );
      assert.equal(moves.requests.length, 0);
      const right = new Agent().compose(interceptor(client), redirect);
      assert.equal((await request("http://from.lbd/", { dispatcher: right })).statusCode, 200);
    });
  });
}

test("the proxy of the environment is not for endpoints: fetch", async (t) => {
  const { client, endpoint, other, proxy } = await start(t, "fetch");
  const before = undici.getGlobalDispatcher();
  undici.setGlobalDispatcher(new undici.EnvHttpProxyAgent());
  t.after(() => undici.setGlobalDispatcher(before));
  const fetch = createFetch(client);
  assert.equal(await (await fetch("http://fetch.lbd/")).text(), endpoint);
  assert.equal(await (await fetch(`http://${other}/`)).text(), other);
  await until(() => proxy.targets.length > 0, "the proxy has a request");
  assert.deepEqual(proxy.targets, [other]);
});
