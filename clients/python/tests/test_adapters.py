"""Requests through each HTTP library, with a real daemon and real upstreams."""

import asyncio
import concurrent.futures
import contextlib
import gc
import io
import os
import socket
import threading
import time
import unittest
import urllib.error
import urllib.request
from unittest import mock

import httpx
import requests
from daemon import Daemon, Proxy, Upstream, until

import lbd
import lbd.httpx
import lbd.requests
from lbd._connection import Deadline

MANY = 48
"""So many requests that each of two endpoints gets one: the elements of a batch are in random order."""


def setUpModule():
    global daemon, connecting
    daemon, connecting = Daemon(), Daemon("tcp")


def tearDownModule():
    daemon.close()
    connecting.close()


def reset(handler):
    handler.connection.shutdown(2)
    handler.close_connection = True


def once(handler):
    Upstream.reply(handler)
    handler.close_connection = True


def status(code):
    return lambda handler: Upstream.reply(handler, code, b"no")


def reported(outcome, cluster):
    return daemon.metric(f'lbd_reported_requests_total{{cluster="{cluster}",outcome="{outcome}"}}')


class Library:
    """The tests of all libraries; send returns status and body."""

    def setUp(self):
        self.cluster = f"{type(self).__name__}-{self._testMethodName}".lower().replace("_", "-")
        self.url = f"http://{self.cluster}.lbd"

    def upstreams(self, *behaviors):
        upstreams = [Upstream(behave) for behave in behaviors]
        for upstream in upstreams:
            self.addCleanup(upstream.close)
        daemon.push(self.cluster, [upstream.address for upstream in upstreams])
        return upstreams

    def client(self, **settings):
        client = lbd.Client(daemon.lbd, **settings)
        self.addCleanup(client.close)
        return client

    def test_keeps_host_path_and_body(self):
        (upstream,) = self.upstreams(None)
        send = self.sender(self.client())
        self.assertEqual(send("POST", self.url + "/a%20b?c=d", b"body"), (200, upstream.address.encode()))
        self.assertEqual(upstream.requests, [("POST", "/a%20b?c=d", f"{self.cluster}.lbd", b"body")])

    def test_does_not_touch_other_hosts(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        send = self.sender(self.client())
        self.assertEqual(send("GET", f"http://{upstream.address}/x")[0], 200)
        self.assertEqual(upstream.requests, [("GET", "/x", upstream.address, b"")])

    def test_the_proxy_of_the_environment_is_for_other_hosts(self):
        (upstream,) = self.upstreams(None)
        other = Upstream()
        self.addCleanup(other.close)
        proxy = Proxy()
        try:
            with mock.patch.dict(os.environ, {"http_proxy": proxy.url, "no_proxy": ""}):
                send = self.sender(self.client())
                self.assertEqual(send("GET", self.url), (200, upstream.address.encode()))
                self.assertEqual(send("GET", f"http://{other.address}/"), (200, other.address.encode()))
        finally:
            targets = proxy.close()
        self.assertEqual(targets, [] if isinstance(self, CoreTest) else [other.address])

    def test_retries_at_another_endpoint(self):
        for mode in ("batch", "pick", "lease"):
            for broken in (reset, status(503)):
                with self.subTest(mode):
                    good, bad = self.upstreams(None, broken)
                    send = self.sender(self.client(mode=mode))
                    for _ in range(MANY):
                        self.assertEqual(send("PUT", self.url, b"x"), (200, good.address.encode()))
                    self.assertGreater(len(bad.requests), 0)

    def test_sends_elsewhere_what_was_not_sent(self):
        for mode in ("batch", "pick", "lease"):
            with self.subTest(mode), socket.socket() as refuses:
                refuses.bind(("127.0.0.1", 0))
                good = Upstream()
                self.addCleanup(good.close)
                daemon.push(self.cluster, [good.address, f"127.0.0.1:{refuses.getsockname()[1]}"])
                client = self.client(mode=mode, max_tokens=0, retries=0)
                send = self.sender(client)
                for _ in range(MANY):
                    body = io.BytesIO(b"x")
                    self.assertEqual(send("POST", self.url, body), (200, good.address.encode()))
                self.assertEqual({request[3] for request in good.requests}, {b"x"})
                self.assertEqual(len(good.requests), MANY)
                client.close()
                if mode == "lease":
                    line = f'lbd_leases_finished_total{{cluster="{self.cluster}",outcome="unreachable"}}'
                else:
                    line = f'lbd_reported_connect_failures_total{{cluster="{self.cluster}"}}'
                told, self.told = daemon.metric(line), getattr(self, "told", 0)
                self.assertGreater(told, self.told if mode == "pick" else 0)
                self.told = told
                self.assertEqual(reported("error", self.cluster), 0)

    def test_waits_for_another_priority(self):
        for mode in ("batch", "pick", "lease"):
            with self.subTest(mode):
                first, second = Upstream(once), Upstream()
                self.addCleanup(second.close)
                connecting.push(f"{self.cluster}-{mode}", [first.address], [second.address])
                client = lbd.Client(connecting.lbd, mode=mode, max_age=600)
                self.addCleanup(client.close)
                send, url = self.sender(client), f"http://{self.cluster}-{mode}.lbd/"
                self.assertEqual(send("GET", url), (200, first.address.encode()))
                first.close()
                self.assertEqual(send("POST", url, b"x"), (200, second.address.encode()))

    def test_does_not_wait_for_an_endpoint_that_is_silent(self):
        with contextlib.ExitStack() as stack:
            silent = stack.enter_context(socket.socket())
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            for _ in range(4):  # its queue is full: Linux drops any further SYN
                other = stack.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(silent.getsockname())
            (good,) = self.upstreams(None)
            daemon.push(self.cluster, [good.address, f"127.0.0.1:{silent.getsockname()[1]}"])
            send = self.sender(self.client(connect_timeout=60))
            for _ in range(8):
                self.assertEqual(send("POST", self.url, b"x", timeout=20)[0], 200)

    def test_does_not_retry_a_post(self):
        good, bad = self.upstreams(None, status(503))
        send = self.sender(self.client())
        results = {send("POST", self.url, b"x")[0] for _ in range(MANY)}
        self.assertEqual(results, {200, 503})
        self.assertEqual(len(good.requests) + len(bad.requests), MANY)

    def test_gives_the_result_of_the_last_try(self):
        (one, two) = self.upstreams(status(503), status(502))
        send = self.sender(self.client())
        self.assertIn(send("GET", self.url)[0], (502, 503))
        self.assertEqual(len(one.requests) + len(two.requests), 2)

    def warm(self):
        """A client that has a batch: to get one may take longer than a short timeout."""
        client = self.client()
        client.call(self.cluster, Deadline(60), True).first()
        return client

    def test_keeps_the_deadline(self):
        done = threading.Event()
        self.addCleanup(done.set)
        (slow, _) = self.upstreams(lambda _: done.wait(120), lambda _: done.wait(120))
        send = self.sender(self.warm())
        with self.assertRaises(self.timeout):
            send("GET", self.url, timeout=0.3)
        self.assertLessEqual(len(slow.requests), 1)

    def test_reports_how_requests_ended(self):
        self.upstreams(lambda handler: Upstream.reply(handler, 500 if handler.path == "/bad" else 200))
        client = self.client()
        send = self.sender(client)
        for path in ("/", "/", "/bad"):
            send("GET", self.url + path)
        client.close()
        self.assertEqual([reported(outcome, self.cluster) for outcome in ("success", "error")], [2, 1])

    def test_ends_leases(self):
        self.upstreams(None)
        send = self.sender(self.client(mode="lease"))
        for _ in range(5):
            send("GET", self.url)
        state = f"/v1/clusters/{self.cluster}?endpoints=false"
        until(lambda: daemon.call("GET", state)["circuit_breaker"]["in_flight"] == 0, "no lease is held")

    def test_names_unknown_clusters(self):
        send = self.sender(self.client())
        with self.assertRaises(lbd.UnknownCluster) as caught:
            send("GET", self.url)
        self.assertEqual(caught.exception.code, "unknown_cluster")

    def test_says_when_lbd_is_unreachable(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        for mode in ("batch", "pick", "lease"):
            client = lbd.Client("http://127.0.0.1:1", mode=mode)
            self.addCleanup(client.close)
            with self.assertRaises(lbd.Unavailable):
                self.sender(client)("GET", self.url)
            other = lbd.Client("http://127.0.0.1:1", mode=mode, fallback=upstream.address)
            self.addCleanup(other.close)
            self.assertEqual(self.sender(other)("GET", self.url)[0], 200)

    def test_drops_what_lbd_drops(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        drop = {"drop_overloads": [{"category": "shed", "drop_percentage": {"numerator": 50}}]}
        daemon.push(self.cluster, [upstream.address], **drop)
        send = self.sender(self.client())
        ended = {"ok": 0, "dropped": 0}
        for _ in range(100):
            try:
                send("GET", self.url)
                ended["ok"] += 1
            except lbd.Dropped:
                ended["dropped"] += 1
        self.assertGreater(ended["ok"], 10)
        self.assertGreater(ended["dropped"], 10)
        self.assertEqual(len(upstream.requests), ended["ok"])


class CoreTest(Library, unittest.TestCase):
    timeout = TimeoutError

    def sender(self, client):
        def send(method, url, body=None, timeout=10):
            with client.request(method, url, body, timeout=timeout) as response:
                return response.status, response.read()

        return send

    def test_is_in_flight_until_the_body_is_read(self):
        self.upstreams(None)
        client = self.client(mode="lease")
        state = f"/v1/clusters/{self.cluster}?endpoints=false"

        def in_flight():
            return daemon.call("GET", state)["circuit_breaker"]["in_flight"]

        response = client.request("GET", self.url)
        self.assertEqual(in_flight(), 1)
        response.read()
        until(lambda: in_flight() == 0, "the lease is ended after the body")
        response = client.request("GET", self.url)
        self.assertEqual(in_flight(), 1)
        del response
        gc.collect()
        until(lambda: in_flight() == 0, "the lease of a response that was given up is ended")

    def test_uses_connections_again(self):
        connections = set()
        self.upstreams(lambda handler: (connections.add(handler.client_address), Upstream.reply(handler)))
        send = self.sender(self.client())
        for method in ("GET", "HEAD", "POST", "GET"):
            send(method, self.url)
        self.assertEqual(len(connections), 1)

    def test_repeats_a_request_whose_connection_had_ended(self):
        (upstream,) = self.upstreams(once)
        send = self.sender(self.client(retries=0))
        for _ in range(20):
            self.assertEqual(send("GET", self.url)[0], 200)
        self.assertEqual(len(upstream.requests), 20)

    def test_ends_at_the_deadline_however_slowly_bytes_come(self):
        def drip(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            try:
                for _ in range(1000):
                    handler.wfile.write(b".")
                    time.sleep(0.02)
            except OSError:
                handler.close_connection = True

        self.upstreams(drip)
        with self.assertRaises(TimeoutError):
            self.sender(self.warm())("GET", self.url, timeout=0.5)

    def test_survives_a_restart_of_lbd(self):
        (upstream,) = self.upstreams(None)
        client = self.client(max_age=0.2)
        send = self.sender(client)
        send("GET", self.url)
        daemon.stop()
        try:
            self.assertEqual(send("GET", self.url)[0], 200)
        finally:
            daemon.start()
        new = Upstream()
        self.addCleanup(new.close)
        daemon.push(self.cluster, [new.address])
        until(lambda: send("GET", self.url)[1] == new.address.encode(), "the batch has the new endpoint")
        self.assertGreater(len(upstream.requests), 0)


class UrllibTest(Library, unittest.TestCase):
    timeout = TimeoutError

    def sender(self, client):
        opener = lbd.opener(client)

        def send(method, url, body=None, timeout=10):
            request = urllib.request.Request(url, body, method=method)
            try:
                with opener.open(request, timeout=timeout) as response:
                    return response.status, response.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()

        return send


class RequestsTest(Library, unittest.TestCase):
    timeout = requests.Timeout

    def sender(self, client):
        session = lbd.requests.mount(requests.Session(), client)
        self.addCleanup(session.close)

        def send(method, url, body=None, timeout=10):
            response = session.request(method, url, data=body, timeout=timeout)
            self.assertEqual(response.url.rstrip("/"), url.rstrip("/"))
            return response.status_code, response.content

        return send


class HttpxTest(Library, unittest.TestCase):
    timeout = httpx.TimeoutException

    def sender(self, client):
        session = httpx.Client(mounts={"all://*.lbd": lbd.httpx.Transport(client)})
        self.addCleanup(session.close)

        def send(method, url, body=None, timeout=10):
            response = session.request(method, url, content=body, timeout=timeout)
            return response.status_code, response.content

        return send

    def test_keeps_the_connections_of_many_threads(self):
        """At a limit, httpcore closes connections that a thread begins to use."""
        threads = 24
        together = threading.Barrier(threads)
        connections = []

        def behave(handler):
            connections.append(handler.client_address)
            together.wait(60)
            Upstream.reply(handler)

        self.upstreams(behave)
        send = self.sender(self.client())
        for _ in range(2):
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                answers = list(pool.map(lambda _: send("GET", self.url)[0], range(threads)))
            self.assertEqual(answers, [200] * threads)
        self.assertEqual(set(connections[:threads]), set(connections[threads:]))


class HttpxAsyncTest(Library, unittest.TestCase):
    timeout = httpx.TimeoutException

    def sender(self, client):
        runner = asyncio.Runner() if hasattr(asyncio, "Runner") else None
        if runner is None:
            self.skipTest("asyncio.Runner needs Python 3.11")
        session = httpx.AsyncClient(mounts={"all://*.lbd": lbd.httpx.AsyncTransport(client)})

        async def request(method, url, body, timeout):
            async def parts(file=body):
                yield file.read()

            body = parts() if isinstance(body, io.BytesIO) else body
            response = await session.request(method, url, content=body, timeout=timeout)
            return response.status_code, response.content

        def close():
            runner.run(session.aclose())
            runner.close()

        self.addCleanup(close)
        return lambda method, url, body=None, timeout=10: runner.run(request(method, url, body, timeout))


if __name__ == "__main__":
    unittest.main()
