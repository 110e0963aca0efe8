"""What requests ask beside their cluster, and what lbd has chosen for them."""

import concurrent.futures
import contextlib
import os
import pickle
import queue
import socket
import threading
import unittest
import urllib.error
import urllib.request
from unittest import mock

from daemon import Daemon, Upstream, until
from test_faults import Case, LibrariesTest

import lbd
from lbd import _batch, asking
from lbd._connection import Deadline

PICK = "/v1/pick"
MANAGER = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
LISTENER = "config.listener.v3.Listener"


class HostTest(unittest.TestCase):
    def test_rejects_what_is_not_valid(self):
        for fields in (
            {"hash": "session"},
            {"hash": "query:x"},
            {"hash": "cookie:"},
            {"cluster": "a", "target": "b"},
            {"headers": "tenant"},
        ):
            with self.subTest(fields), self.assertRaises(ValueError):
                lbd.Host(**fields)

    def test_names_a_cluster_or_a_target(self):
        hosts = {
            "Orders.lbd": lbd.Host(hash="header:X"),
            "shop.test": "xds:///shop",
            "b.test": lbd.Host("xds:///b"),
            "c.test": lbd.Host(target="xds:///c"),
            "D.test": lbd.Host("eu/d", hash="cookie:x"),
        }
        for setting in (hosts, lambda host: {k.lower(): v for k, v in hosts.items()}.get(host)):
            with lbd.Client("http://127.0.0.1:1", hosts=setting) as client:
                for host, name in (
                    ("orders.LBD", "orders"),
                    ("shop.test", "xds:///shop"),
                    ("b.test", "xds:///b"),
                    ("c.test", "xds:///c"),
                    ("d.test", "eu/d"),
                    ("other.lbd", "other"),
                    ("other", None),
                ):
                    self.assertEqual(client.cluster_of(host), name)
                for host in ("shop.test", "b.test", "c.test"):
                    self.assertTrue(client.place_of(host).target)


class QueryTest(unittest.TestCase):
    def check(self, host, query, *headers, path="/a%20b"):
        self.assertEqual(asking.asked(host, path, lambda: headers)[1], query)

    def test_has_the_hash_key(self):
        by_header, by_cookie = lbd.Host("a", hash="header:X-User"), lbd.Host("a", hash="cookie:id")
        self.check(by_header, "&hash=al%20ice", ("x-user", "al ice"))
        self.check(by_header, "&hash=7", (b"X-USER", b"7"), ("X-User", "8"))
        self.check(by_header, "&hash=" + "x" * 1024, ("X-User", "x" * 1025))
        self.check(by_header, "", ("X-User", ""), ("Other", "x"))
        self.check(by_cookie, "&hash=7", ("Cookie", 'x=1; id="7"; y=2'))
        self.check(by_cookie, "&hash=7%3D", ("cookie", "x=1"), ("cookie", "id=7="))
        self.check(by_cookie, "", ("Cookie", "ide=7"))
        with lbd.ask(hash="ü&"):
            self.check(by_header, "&hash=%C3%BC%26", ("X-User", "alice"))
            self.check("a", "&hash=%C3%BC%26")
        self.check("a", "", ("X-User", "alice"))

    def test_has_what_routes_match(self):
        host = lbd.Host(target="shop", headers=["Tenant", "x"])
        self.check(host, "&path=%2Fa%2520b&header.Tenant=b%26c&header.Tenant=d", ("tenant", "b&c"), ("TENANT", "d"))
        self.check(host, "&path=%2F", ("other", "x"), path="")
        with lbd.ask(path="/a"), lbd.ask(hash="7"):
            self.check(host, "&hash=7&path=%2Fa")


class AskedTest(unittest.TestCase):
    def setUp(self):
        self.asked = asking.Asked()

    def put(self, query, generation, published=False):
        batch = _batch.Batch("a", generation, [])
        batch.query = query
        self.asked.put(batch, published)

    def known(self, *queries):
        return [query for query in queries if self.asked.get(query) is not None]

    def test_keeps_those_that_were_used_last(self):
        for number in range(asking.ASKED_MAX):
            self.put(f"q{number}", 1)
        self.assertEqual(self.known("q0"), ["q0"])
        self.put("new", 1)
        self.assertEqual(self.known("q0", "q1", "q2", "new"), ["q0", "q2", "new"])

    def test_keeps_fewer_if_they_are_long(self):
        most = asking.ASKED_BYTES // asking.QUERY_MAX
        for generation in (1, 2):
            for number in range(2 * most):
                for _ in range(2):
                    self.put(f"{number:0{asking.QUERY_MAX}}", generation)
                self.put("used", generation)
                self.assertEqual(self.known("used"), ["used"])
                self.assertEqual(len(self.asked._batches), min(number + 2, most + 1))

    def test_forgets_all_with_another_generation(self):
        for query, generation, published, known in (
            ("a", 5, False, ["a"]),
            ("b", None, False, ["a", "b"]),
            ("c", 4, False, ["a", "b"]),
            ("d", 6, False, ["d"]),
            ("a", 6, True, ["a", "d"]),
            ("b", 2, True, ["b"]),
        ):
            self.put(query, generation, published)
            self.assertEqual(self.known("a", "b", "c", "d"), known)

    def test_knows_what_was_answered_last(self):
        for step, query, last in (
            (self.asked.get, "&hash=a", "&hash=a"),  # before any answer
            (self.asked.get, "&hash=b", "&hash=a"),
            (lambda query: self.put(query, 1), "", ""),
            (self.asked.get, "&hash=b", ""),
            (lambda query: self.put(query, 1), "&hash=b", "&hash=b"),
            (lambda query: self.put(query, 1), "&hash=c&exclude=1", "&hash=b"),
            (lambda query: self.put(query, 1), "&hash=d", "&hash=d"),
            (self.asked.get, "&hash=b", "&hash=b"),
        ):
            step(query)
            self.assertEqual(self.asked.last, last)


class BatchTest(Case):
    """Batches of a server whose answers to a hash key are its own address."""

    def start(self, behave=None, **settings):
        self.addresses = {"a": self.upstream().address, "b": self.upstream().address}

        def pick(path, parameters, body):
            answer = behave and behave(path, parameters, body)
            if answer is None and path == PICK:
                address = self.addresses.get(parameters.get("hash"), self.addresses["a"])
                pick = {"address": address, "cluster": "chosen", "priority": 3, "hostname": "h"}
                pick["locality"] = {"region": "r", "zone": "z", "sub_zone": "s"}
                return 200, {"generation": 1, "picks": [pick] * 3} | pick
            return answer

        self.server = self.lbd(pick)
        hosts = {"orders.lbd": lbd.Host(hash="header:X"), "shop.lbd": lbd.Host(target="shop", headers=["x"])}
        return self.client(self.server, hosts=hosts, **settings)

    def get(self, client, key="", host="orders", method="GET"):
        with client.request(method, f"http://{host}.lbd/p?q", b"x", headers={"X": key} if key else {}) as response:
            return response.read().decode(), lbd.choice(response)

    def picks(self):
        """The parameters of the picks since the last call."""
        seen = []
        with contextlib.suppress(queue.Empty):
            while True:
                path, parameters, _ = self.server.calls.get_nowait()
                seen += [parameters] if path == PICK else []
        return seen

    def test_asks_once_for_each_key(self):
        client = self.start(max_age=600)
        for _ in range(4):
            for key in "ab":
                self.assertEqual(self.get(client, key)[0], self.addresses[key])
        self.get(client)
        picks = self.picks()
        self.assertEqual([(pick.get("hash"), pick["n"]) for pick in picks], [("a", "20"), ("b", "20"), (None, "20")])

    def held(self, status=200):
        """A client, and events: the first call for the key b has begun, and may end with a status."""
        begun, end = threading.Event(), threading.Event()

        def hold(path, parameters, _):
            if path == PICK and parameters.get("hash") == "b" and not begun.is_set():
                begun.set()
                end.wait(120)
                return None if status == 200 else (status, {"code": "no_ready_endpoint"})

        self.addCleanup(end.set)
        patch = mock.patch("lbd._cluster.BATCH_WAIT", 120)
        patch.start()
        self.addCleanup(patch.stop)
        client = self.start(hold, max_age=600)
        self.get(client, "a")
        self.picks()
        return client, begun, end

    def test_asks_once_for_all_requests_with_a_key(self):
        client, begun, end = self.held()
        with self.assertRaises(lbd.Unavailable), lbd.ask(hash="b"):
            client.request("GET", "http://orders.lbd/", timeout=0.5)  # the call does not end with it
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            requests = [pool.submit(self.get, client, "b") for _ in range(50)]
            begun.wait(120)
            end.set()
        self.assertEqual({request.result()[0] for request in requests}, {self.addresses["b"]})
        self.assertEqual([pick["hash"] for pick in self.picks()], ["b"])

    def test_all_requests_with_a_key_have_the_error_of_the_call(self):
        client, begun, end = self.held(503)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            requests = [pool.submit(self.get, client, "b") for _ in range(2)]
            begun.wait(120)
            call = client.cluster("orders")._asked.calls["&hash=b"]
            until(lambda: len(call.ended._cond._waiters) == 2, "both wait for the call")
            end.set()
            errors = [request.exception() for request in requests]
        self.assertEqual([error.code for error in errors], ["no_ready_endpoint"] * 2)
        self.assertIsNot(*errors)
        self.assertEqual(self.get(client, "b")[0], self.addresses["b"])

    def test_a_child_of_fork_does_not_wait_for_a_call_of_its_parent(self):
        client, begun, _ = self.held()
        with self.assertRaises(lbd.Unavailable), lbd.ask(hash="b"):
            client.request("GET", "http://orders.lbd/", timeout=0.5)
        begun.wait(120)
        child = os.fork()
        if child == 0:
            try:
                self.get(client, "b")
            finally:
                os._exit(int(not client.cluster("orders")._asked.get("&hash=b")))
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_forgets_keys_when_lbd_has_another_generation(self):
        client = self.start(max_age=600)
        self.get(client, "a")
        self.get(client, "b")
        self.picks()
        self.server.answer = lambda *_: {"generation": 2}  # what the client follows
        self.server.open.set()
        until(lambda: "n" in str(self.picks()), "there is a new batch")

    def test_is_sent_elsewhere_in_the_order_of_lbd(self):
        with contextlib.ExitStack() as stack:
            refuses = stack.enter_context(socket.socket())
            refuses.bind(("127.0.0.1", 0))
            gone = f"127.0.0.1:{refuses.getsockname()[1]}"
            client = self.start(
                lambda path, parameters, _: (
                    (200, {"generation": 1, "picks": [{"address": self.addresses["b"]}]})
                    if "exclude" in parameters
                    else None
                ),
                max_age=600,
            )
            self.addresses["a"] = gone
            for _ in range(3):
                body, choice = self.get(client, "a", method="POST")
                self.assertEqual((body, choice.address), (self.addresses["b"],) * 2)
            keys = [(pick["hash"], pick.get("exclude")) for pick in self.picks()]
            self.assertEqual(keys, [("a", None), ("a", gone)])

    def test_a_request_without_a_key_is_sent_elsewhere_if_the_batch_is_for_a_key(self):
        client = self.start(
            lambda path, parameters, _: (
                (200, {"generation": 1, "picks": [{"address": self.addresses["b"]}]})
                if path == PICK and "exclude" in parameters
                else None
            ),
            max_age=600,
        )
        self.addresses["a"] = self.upstream(lambda handler: Upstream.reply(handler, 503)).address
        self.get(client, "a")
        body, choice = self.get(client)
        self.assertEqual((body, choice.attempt), (self.addresses["b"], 2))

    def test_uses_what_it_has_while_lbd_is_unreachable(self):
        gone = []
        client = self.start(lambda *_: (500, {}) if gone else None, max_age=0.2, stale_for=600)
        self.get(client, "b")
        self.get(client, "a")
        self.get(client, host="shop")
        gone.append(True)
        until(lambda: client.cluster("orders")._error is not None, "lbd is unreachable")
        until(lambda: client.cluster("xds:///shop")._error is not None, "lbd is unreachable")
        self.assertEqual(self.get(client, "b")[0], self.addresses["b"])
        self.assertIn(self.get(client, "new")[0], self.addresses.values())
        self.assertEqual(self.get(client, host="shop")[0], self.addresses["a"])
        with self.assertRaises(lbd.Unavailable):
            self.get(client, "new", host="shop")

    def test_a_new_key_goes_to_any_endpoint_while_lbd_is_unreachable_and_an_address_is_set_aside(self):
        gone = []
        client = self.start(lambda path, *_: (500, {}) if gone and path == PICK else None, max_age=600)
        self.get(client, "a")
        gone.append(True)
        client.cluster("orders").failed("127.0.0.1:1", False)
        body, choice = self.get(client, "new")
        self.assertEqual((body, choice.attempt), (self.addresses["a"], 1))
        self.assertIn("exclude", self.picks()[-1])

    def test_a_retry_needs_lbd(self):
        gone, statuses = [], [200, 503, 503]
        client = self.start(lambda path, *_: (500, {}) if gone and path == PICK else None, max_age=600)
        self.addresses["a"] = self.upstream(lambda handler: Upstream.reply(handler, statuses.pop(0))).address
        self.get(client, "a")
        gone.append(True)
        self.assertEqual(self.get(client, "a")[1].attempt, 1)
        self.assertEqual(statuses, [503])

    def test_forgets_keys_when_the_cluster_is_idle(self):
        with mock.patch("lbd._cluster.IDLE_TIME", 0):
            client = self.start(max_age=600)
            self.get(client, "a")
            self.get(client, "b")
            self.server.answer = lambda *_: {"generation": 2}  # what the client follows
            self.server.open.set()
            until(lambda: client.cluster("orders")._thread is None, "the cluster is not followed")
        self.picks()
        self.get(client, "c")
        self.get(client, "b")
        self.assertEqual([pick["hash"] for pick in self.picks()][:2], ["c", "b"])

    def test_uses_an_old_batch_if_lbd_has_just_become_unreachable(self):
        gone = []
        client = self.start(lambda path, *_: (500, {}) if gone and path == PICK else None, max_age=600)
        self.get(client, "a")
        self.get(client, "b")
        gone.append(True)
        client.cluster("orders")._asked.get("&hash=b").until = 0
        self.picks()
        for _ in range(2):
            self.assertEqual(self.get(client, "b")[0], self.addresses["b"])
        self.assertEqual(len(self.picks()), 1)

    def test_asks_for_a_target_and_counts_at_its_cluster(self):
        for mode in ("batch", "pick"):
            client = self.start(mode=mode)
            _, choice = self.get(client, "v", "shop")
            pick, _ = self.server.next(PICK)
            self.assertNotIn("cluster", pick)
            self.assertEqual((pick["target"], pick["path"], pick["header.x"]), ("shop", "/p", "v"))
            place = lbd.Locality("r", "z", "s")
            self.assertEqual(choice, lbd.Choice("chosen", self.addresses["a"], "h", place, 3, 1))
            if mode == "batch":
                parameters, _ = self.server.next("/v1/clusters/chosen")  # before the first report
                self.assertEqual(parameters["target"], "shop")
                client.close()
                self.assertEqual(self.server.next("/v1/reports")[1]["clusters"][0]["cluster"], "chosen")

    def test_needs_the_cluster_of_a_target(self):
        client = self.start(lambda *_: (200, {"generation": 1, "picks": [{"address": "127.0.0.1:1"}]}))
        with self.assertRaises(lbd.Unavailable):
            self.get(client, host="shop")

    def test_keeps_what_is_set_aside_when_the_batch_is_for_a_key(self):
        client = self.start(max_age=600)
        self.get(client, "a")
        cluster = client.cluster("orders")
        cluster.asides.failed("127.0.0.1:1", False, 9)
        cluster._publish(cluster.batch, None)
        cluster.failed("127.0.0.1:2", False)
        self.assertEqual(sorted(cluster.asides.avoided()), ["127.0.0.1:1", "127.0.0.1:2"])

    def test_an_event_loop_does_not_wait_for_lbd(self):
        client = self.start(max_age=600)
        self.get(client, "a")
        host = client.place_of("orders.lbd")
        for key, waits in (("a", False), ("b", True), ("a", False)):
            call = client.call(host, Deadline(10), True, "/", {"X": key}.items)
            self.assertEqual(call.waits(), waits, key)
        attempt = call.first()
        attempt.answered(503)
        self.assertTrue(call.waits())
        attempt.finish()


class ChoiceTest(Case):
    def test_is_there_after_each_response_and_error(self):
        upstream, server = self.upstream(), self.lbd()
        client = self.client(server, mode="pick")
        server.endpoint = upstream.address
        for name, send in LibrariesTest.responders(self, client):
            with self.subTest(name):
                server.endpoint = upstream.address
                choice = lbd.choice(send("http://orders.lbd/"))
                self.assertEqual(choice, lbd.Choice("orders", upstream.address))
                self.assertIsNone(lbd.choice(send(f"http://{upstream.address}/")))
                server.endpoint = "127.0.0.1:1"
                with self.assertRaises(Exception) as caught:
                    send("http://orders.lbd/")
                self.assertEqual(lbd.choice(caught.exception).address, "127.0.0.1:1")

    def test_is_there_with_urllib(self):
        upstream = self.upstream(lambda handler: Upstream.reply(handler, 404))
        client = self.client(self.lbd(address=upstream.address))
        with self.assertRaises(urllib.error.HTTPError) as caught:
            lbd.opener(client).open("http://orders.lbd/")
        with caught.exception:
            self.assertEqual(lbd.choice(caught.exception).address, upstream.address)

    def test_does_not_keep_an_error_from_another_process(self):
        client = self.client(self.lbd())
        with self.assertRaises(OSError) as caught:
            client.request("GET", "http://orders.lbd/")
        same = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual(lbd.choice(same), lbd.Choice("orders", "127.0.0.1:1"))

    def test_is_none_of_anything_else(self):
        for other in (None, 7, ValueError("x"), lbd.Dropped("x")):
            self.assertIsNone(lbd.choice(other))


class DaemonTest(Case):
    def daemon(self):
        daemon = Daemon()
        self.addCleanup(daemon.close)
        return daemon

    def shop(self):
        """A daemon with the target shop, which has a route for paths that begin with /a."""
        daemon, kind = self.daemon(), "type.googleapis.com/envoy."
        daemon.push("orders", [self.upstream().address])
        routes = [{"match": {"prefix": "/a"}, "route": {"cluster": "orders"}}]
        hosts = [{"name": "all", "domains": ["*"], "routes": routes}]
        manager = {"@type": kind + MANAGER, "route_config": {"virtual_hosts": hosts}}
        listener = {"@type": kind + LISTENER, "name": "shop", "api_listener": {"api_listener": manager}}
        daemon.call("POST", "/v1/snapshot", {"resources": [listener]})
        return daemon

    def test_what_is_too_long_is_an_error_of_the_request(self):
        daemon, states = self.shop(), []
        settings = {"fallback": self.upstream().address, "hosts": {"shop.lbd": "xds:///shop"}}
        for mode in ("batch", "pick", "lease"):
            client = self.client(daemon, mode=mode, on_state=states.append, **settings)
            for url in (
                "http://shop.lbd/a" + "a" * 5000,  # lbd says so
                "http://shop.lbd/a" + "%2F" * 100_000,
                "http://" + "a" * 100_000 + ".lbd/",
            ):
                with self.subTest((mode, url[:30])), self.assertRaises(lbd.Unavailable) as caught:
                    client.request("GET", url)
                self.assertEqual(caught.exception.code, "invalid_argument")
                self.assertLess(len(str(caught.exception)), 1000)
                client.request("GET", "http://shop.lbd/a").close()
        self.assertEqual(states, [])

    def test_a_path_without_a_route_harms_no_other(self):
        client = self.client(self.shop(), hosts={"shop.lbd": "xds:///shop"}, max_age=0.2)

        def check(*paths):
            for path in paths:
                if path.startswith("/a"):
                    client.request("GET", "http://shop.lbd" + path).close()
                else:
                    with self.assertRaises(lbd.Unavailable) as caught:
                        client.request("GET", "http://shop.lbd" + path)
                    self.assertEqual(caught.exception.code, "no_route")

        check("/b", "/a", "/c", "/a2", "/b", "/a")
        cluster = client.cluster("xds:///shop")
        for _ in range(3):
            before = cluster.batch
            check("/a")
            until(lambda: check("/b") or cluster.batch is not before, "the batch is replaced")  # noqa: B023

    def test_a_key_stays_at_its_endpoint(self):
        daemon = self.daemon()
        upstreams = [Upstream() for _ in range(3)]
        for upstream in upstreams:
            self.addCleanup(upstream.close)
        daemon.call("PUT", "/v1/clusters/ring/config", {"type": "EDS", "lb_policy": "RING_HASH"})
        daemon.push("ring", [upstream.address for upstream in upstreams])
        for mode in ("batch", "pick", "lease"):
            with lbd.Client(daemon.lbd, mode=mode) as client:

                def get(client=client):
                    with client.request("GET", "http://ring.lbd/") as response:
                        return response.read()

                with self.subTest(mode):
                    found = set()
                    for key in range(24):
                        with lbd.ask(hash=f"user-{key}"):
                            self.assertEqual(len(same := {get() for _ in range(3)}), 1)
                        found |= same
                    self.assertGreater(len(found), 1)


if __name__ == "__main__":
    unittest.main()
