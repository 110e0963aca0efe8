"""What a client does when lbd, an upstream or the program does what it should not."""

import asyncio
import concurrent.futures
import contextlib
import io
import json
import os
import queue
import signal
import socket
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from unittest import mock

import anyio
import httpx
import requests
from daemon import Upstream, until

import lbd
import lbd.httpx
import lbd.requests
from lbd import _cluster
from lbd._connection import Deadline, _Socket
from lbd.client import CLUSTERS_MAX


class Lbd(Upstream):
    """A server that answers as lbd does, or as behave(call) says: a status and an object."""

    def __init__(self, behave=None, address="127.0.0.1:1"):
        self.calls = queue.Queue()

        def answer(handler):
            url = urllib.parse.urlsplit(handler.path)
            call = url.path, dict(urllib.parse.parse_qsl(url.query)), json.loads(handler.body or "null")
            self.calls.put(call)
            status, answer = (behave and behave(*call)) or (200, self.answer(*call))
            Upstream.reply(handler, status, json.dumps(answer).encode())

        super().__init__(answer)
        self.lbd = "http://" + self.address
        self.endpoint = address
        self.open = threading.Event()

    def answer(self, path, parameters, _):
        if path == "/v1/pick" and "ttl" in parameters:
            return {"address": self.endpoint, "lease": {"id": "one"}}
        if path == "/v1/pick" and "n" in parameters:
            return {"generation": 1, "picks": [{"address": self.endpoint}]}
        if path == "/v1/pick":
            return {"address": self.endpoint}
        if path.startswith("/v1/clusters/"):
            self.open.wait(float(parameters["wait"].removesuffix("ms")) / 1000)
            return {"generation": 1}
        return {}

    def next(self, path):
        """The parameters and the body of the next call of a path."""
        while True:
            called, parameters, body = self.calls.get(timeout=120)
            if called == path:
                return parameters, body

    def close(self):
        self.open.set()
        super().close()


def once(path, *answers):
    """A behavior that gives answers to the first calls of a path."""
    left = list(answers)
    return lambda called, *_: left.pop(0) if called == path and left else None


AWAY = (503, {"code": "shutting_down"})
DONE = "/v1/leases/done"
RENEW = "/v1/leases/one/renew"


class Case(unittest.TestCase):
    def lbd(self, *arguments, **named):
        server = Lbd(*arguments, **named)
        self.addCleanup(server.close)
        return server

    def upstream(self, behave=None):
        server = Upstream(behave)
        self.addCleanup(server.close)
        return server

    def client(self, server, **settings):
        client = lbd.Client(server.lbd, **settings)
        self.addCleanup(client.close)
        return client


class LeaseTest(Case):
    def attempt(self, client, timeout=None):
        return client.call("orders", Deadline(timeout), True).first()

    def test_renews_again_after_a_call_that_was_rejected(self):
        server = self.lbd(once(RENEW, AWAY))
        attempt = self.attempt(self.client(server, mode="lease", ttl=0.2))
        server.next(RENEW)
        server.next(RENEW)
        attempt.answered(200)
        attempt.finish()
        self.assertEqual(server.next(DONE)[1], {"leases": [{"id": "one", "outcome": "success"}]})

    def test_ends_again_after_a_call_that_was_rejected(self):
        server = self.lbd(once(DONE, AWAY))
        self.attempt(self.client(server, mode="lease")).finish()
        for _ in range(2):
            self.assertEqual(server.next(DONE)[1], {"leases": [{"id": "one", "outcome": "cancelled"}]})

    def test_does_not_end_a_lease_that_has_expired(self):
        server = self.lbd(once(RENEW, (404, {"code": "unknown_lease"})))
        client = self.client(server, mode="lease", ttl=0.2)
        attempt = self.attempt(client)
        server.next(RENEW)
        until(lambda: not client._sender._leases, "the lease is forgotten")
        attempt.finish()
        client.close()
        self.assertNotIn(DONE, {call[0] for call in server.calls.queue})

    def test_ends_a_lease_that_comes_after_close(self):
        asked, closed = threading.Event(), threading.Event()

        def late(path, *_):
            if path == "/v1/pick":
                asked.set()
                closed.wait(120)

        server = self.lbd(late)
        client = self.client(server, mode="lease", fallback="127.0.0.1:1")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            request = pool.submit(client.request, "GET", "http://orders.lbd/")
            asked.wait(120)
            client.close()
            closed.set()
            with self.assertRaises(lbd.Unavailable):
                request.result(20)
        self.assertEqual(server.next(DONE)[1], {"leases": [{"id": "one", "outcome": "cancelled"}]})

    def test_close_ends_leases_with_the_outcome_of_their_requests(self):
        server = self.lbd(address=self.upstream().address)
        client = self.client(server, mode="lease")
        with client.request("GET", "http://orders.lbd/", timeout=None) as response:
            self.assertEqual(response.status, 200)
            attempt = self.attempt(client)
            attempt.answered(500)
            client.close()
        self.assertEqual(server.next(DONE)[1]["leases"][-1]["outcome"], "error")

    def test_ends_the_lease_of_a_request_that_was_forgotten(self):
        server = self.lbd()
        client = self.client(server, mode="lease")
        self.attempt(client)
        self.assertEqual(server.next(DONE)[1], {"leases": [{"id": "one", "outcome": "cancelled"}]})

    def cancel(self, at, **options):
        """Cancels a task while lbd has its call of a path, and returns lbd when the client has no call left."""
        asked, cancelled = threading.Event(), threading.Event()

        def late(path, *_):
            if path == at:
                asked.set()
                cancelled.wait(120)

        server = self.lbd(late, **options)
        client = self.client(server, mode="lease")

        async def main():
            async with httpx.AsyncClient(transport=lbd.httpx.AsyncTransport(client)) as http:
                task = asyncio.create_task(http.get("http://orders.lbd/"))
                await asyncio.to_thread(asked.wait, 20)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                self.assertFalse(cancelled.is_set())  # the task did not wait for lbd
                cancelled.set()

        asyncio.run(main())
        until(lambda: not any("AnyIO" in thread.name for thread in threading.enumerate()), "no call to lbd is left")
        return server

    def test_ends_the_lease_of_a_task_that_was_cancelled(self):
        server = self.cancel("/v1/pick")
        self.assertEqual(server.next(DONE)[1], {"leases": [{"id": "one", "outcome": "cancelled"}]})

    def test_does_not_retry_a_task_that_was_cancelled_while_its_lease_ended(self):
        server = self.cancel(DONE, address=self.upstream(lambda handler: Upstream.reply(handler, 503)).address)
        self.assertEqual([call[0] for call in server.calls.queue].count("/v1/pick"), 1)

    def test_needs_the_lease_that_it_asked_for(self):
        for answer in (
            {"address": "127.0.0.1:1"},
            {"address": "127.0.0.1:1", "lease": "one"},
            {"lease": {"id": "one"}},
        ):
            server = self.lbd(lambda *_, answer=answer: (200, answer))
            with self.subTest(answer), self.assertRaises(lbd.Unavailable):
                self.attempt(self.client(server, mode="lease"))


class DeadlineTest(Case):
    def test_blames_no_endpoint_for_a_deadline_that_had_passed(self):
        upstream = self.upstream()
        server = self.lbd(address=upstream.address)
        client = self.client(server)
        client.request("GET", "http://orders.lbd/").read()
        with self.assertRaises(TimeoutError):
            client.request("GET", "http://orders.lbd/", timeout=0)
        client.close()
        (endpoint,) = server.next("/v1/reports")[1]["clusters"][0]["endpoints"]
        self.assertEqual((endpoint["requests"], endpoint["errors"], endpoint["cancelled"]), (1, 0, 0))

    def test_is_a_timeout_of_each_library(self):
        def slow(path, *_):
            time.sleep(0.2)

        server = self.lbd(slow, address=self.upstream().address)
        client = self.client(server, mode="lease")
        with self.assertRaises(TimeoutError):
            client.request("GET", "http://orders.lbd/", timeout=0.1)
        with self.assertRaises(requests.Timeout):
            lbd.requests.mount(requests.Session(), client).get("http://orders.lbd/", timeout=0.1)
        with self.assertRaises(httpx.TimeoutException):
            httpx.Client(transport=lbd.httpx.Transport(client)).get("http://orders.lbd/", timeout=0.1)

        async def main():
            async with httpx.AsyncClient(transport=lbd.httpx.AsyncTransport(client)) as http:
                with self.assertRaises(httpx.TimeoutException):
                    await http.get("http://orders.lbd/", timeout=0.1)

        asyncio.run(main())
        for _ in range(4):
            self.assertEqual(server.next(DONE)[1]["leases"][0]["outcome"], "cancelled")

    def test_accepts_deadlines_that_are_far(self):
        server = self.lbd(address=self.upstream().address)
        client = self.client(server, report_interval=float("inf"), max_age=float("inf"), stale_for=float("inf"))
        for timeout in (1e12, float("inf"), None):
            with client.request("GET", "http://orders.lbd/", timeout=timeout) as response:
                self.assertEqual(response.status, 200)

    def test_an_endpoint_that_does_not_shake_hands_cannot_be_reached(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            server = self.lbd(address=f"127.0.0.1:{silent.getsockname()[1]}")
            client = self.client(server, connect_timeout=0.1)
            with self.assertRaises(ConnectionError):
                client.request("POST", "https://orders.lbd/", b"x")
            with self.assertRaises(TimeoutError):
                client.request("POST", "https://orders.lbd/", b"x", timeout=0.05)

    def test_limits_the_time_of_each_part_that_is_sent(self):
        class Slow:
            """Like a socket with TLS: a timeout of its own for each part, and a peer that reads slowly."""

            def settimeout(self, timeout):
                pass

            def send(self, data):
                time.sleep(0.01)
                return 1

        sock = _Socket(Slow())
        sock.deadline = Deadline(0.1)
        with self.assertRaises(TimeoutError):
            sock.sendall(bytes(100_000))


class AnswersTest(Case):
    def test_gets_batches_of_a_cluster_that_changes_all_the_time_ten_times_a_second(self):
        generations = iter(range(10**9))

        def change(path, *_):
            return 200, {"generation": next(generations), "picks": [{"address": "127.0.0.1:1"}]}

        server = self.lbd(change)
        client = self.client(server)
        began = time.monotonic()
        client.call("orders", Deadline(10), True).first()
        times = []
        while len(times) < 5:
            if "n" in server.next("/v1/pick")[0]:
                times.append(time.monotonic())
        self.assertGreater(times[-1] - began, 4 * _cluster.FOLLOW_PAUSE * 0.9)

    def test_draws_when_a_batch_is_replaced(self):
        server = self.lbd()
        client = self.client(server, max_age=20)
        for name in "abcde":
            client.call(name, Deadline(10), True).first()
        waits = set()
        for _ in "abcde":
            called = ""
            while not called.startswith("/v1/clusters/"):
                called, parameters, _body = server.calls.get(timeout=120)
            waits.add(int(parameters["wait"].removesuffix("ms")))
        self.assertGreater(len(waits), 1)
        self.assertTrue(all(15_000 < wait <= 20_000 for wait in waits), waits)

    def test_follows_the_cluster_named_watch(self):
        server = self.lbd()
        self.client(server).call("watch", Deadline(10), True).first()
        server.next("/v1/clusters/%77atch")

    def test_uses_no_address_that_is_none(self):
        for address in ("unix:/run/docker.sock", "a", "a:b", "a:0", "a:65536", "u@a:1", "a:1/x", "::1:80", 7, None, ""):
            for mode in ("batch", "pick"):
                server = self.lbd(address=address)
                with self.subTest((address, mode)), self.assertRaises(lbd.Unavailable):
                    self.client(server, mode=mode).request("GET", "http://orders.lbd/")

    def test_forgets_clusters_beyond_the_limit(self):
        client = self.client(self.lbd(), mode="pick")
        for number in range(2 * CLUSTERS_MAX):
            client.call(f"orders-{number}", Deadline(1), True)
        self.assertLessEqual(len(client._clusters), CLUSTERS_MAX)

    def test_remembers_that_lbd_rejects_a_name_or_the_token(self):
        for status, code, kind in (
            (404, "unknown_cluster", lbd.UnknownCluster),
            (404, "unknown_target", lbd.UnknownCluster),
            (400, "invalid_argument", lbd.Unavailable),
            (401, "unauthenticated", lbd.PermissionDenied),
            (403, "permission_denied", lbd.PermissionDenied),
        ):
            for age, calls in ((600, 1), (0, 3)):
                server = self.lbd(lambda *_, answer=(status, {"code": code}): answer)
                client = self.client(server)
                with self.subTest((code, age)), mock.patch("lbd._cluster.REFUSED_AGE", age):
                    for _ in range(3):
                        with self.assertRaises(kind):
                            client.request("GET", "http://orders.lbd/")
                        until(lambda client=client: client.cluster("orders")._thread is None, "it is not followed")
                    self.assertEqual(server.calls.qsize(), calls)

    def test_a_name_that_lbd_has_rejected_may_be_known_later(self):
        rejections, late = [(404, {"code": "unknown_cluster"})], threading.Event()
        address = self.upstream().address
        client = self.client(self.lbd(lambda *_: rejections.pop() if rejections else late.wait(120) and None, address))
        with mock.patch("lbd._cluster.REFUSED_AGE", 0):
            with self.assertRaises(lbd.UnknownCluster):
                client.request("GET", "http://orders.lbd/")
            until(lambda: client.cluster("orders")._thread is None, "it is not followed")
        with self.assertRaises(lbd.Unavailable):
            client.request("GET", "http://orders.lbd/", timeout=0.2)
        late.set()

        def known():
            with contextlib.suppress(lbd.Unavailable):
                client.request("GET", "http://orders.lbd/").close()
                return True

        until(known, "it is known")

    def test_survives_a_thread_that_cannot_start(self):
        server = self.lbd(address=self.upstream().address)
        client = self.client(server)
        start = threading.Thread.start
        try:
            threading.Thread.start = lambda *_: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
            with self.assertRaises(lbd.Unavailable):
                client.request("GET", "http://orders.lbd/")
        finally:
            threading.Thread.start = start
        with client.request("GET", "http://orders.lbd/") as response:
            self.assertEqual(response.status, 200)

    def test_sends_no_report_again_that_is_under_way_at_the_end(self):
        began, ended = threading.Event(), threading.Event()

        def has_request(path, body):  # others have only what is in flight
            return path == "/v1/reports" and body["clusters"][0]["endpoints"][0]["requests"] == 1

        def fail(path, _, body):
            if has_request(path, body) and not began.is_set():
                began.set()
                ended.wait(120)
                return 503, {"code": "shutting_down"}

        server = self.lbd(fail, address=self.upstream().address)
        client = self.client(server, report_interval=0.1)
        client.request("GET", "http://orders.lbd/").read()
        began.wait(120)
        closing = threading.Thread(target=client.close, args=(2,))
        closing.start()
        until(lambda: client._sender._closed, "it is closed")
        ended.set()
        closing.join()
        self.assertEqual(sum(has_request(path, body) for path, _, body in server.calls.queue), 1)


class ConnectTest(Case):
    def refuses(self):
        """An address that refuses connections."""
        refuses = socket.socket()
        self.addCleanup(refuses.close)
        refuses.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{refuses.getsockname()[1]}"

    def test_asks_for_the_picks_of_two_seconds(self):
        def limit(path, parameters, _):
            if path == "/v1/pick" and int(parameters["n"]) > 100:
                return 400, {"code": "invalid_argument"}

        server = self.lbd(limit)
        client = self.client(server, max_age=0.5)
        client.call("orders", Deadline(10), True).first()
        self.assertEqual([server.next("/v1/pick")[0]["n"] for _ in "12"], ["100", "20"])
        n = "20"
        while n == "20":  # a batch that has just been replaced does not count
            for _ in range(3000):
                client.call("orders", Deadline(10), True).first()
            n = server.next("/v1/pick")[0]["n"]
        self.assertGreater(int(n), 100)
        self.assertEqual(server.next("/v1/pick")[0]["n"], "100")

    def test_tells_lbd_at_once_and_asks_again_for_what_is_set_aside(self):
        server = self.lbd(
            lambda _, parameters, __: (503, {"code": "all_excluded"}) if "exclude" in parameters else None,
            address=self.refuses(),
        )
        client = self.client(server, mode="pick", report_interval=600)
        for excluded in ([False, True], [True, False, True]):
            with mock.patch("lbd.client.OTHER_TIME", 0), self.assertRaises(ConnectionRefusedError):
                client.request("POST", "http://orders.lbd/", b"x")
            self.assertEqual(["exclude" in server.next("/v1/pick")[0] for _ in excluded], excluded)
            report = server.next("/v1/reports")[1]
            self.assertNotIn("interval", report)
            endpoint = {"address": server.endpoint, "connect_failures": 1}
            self.assertEqual(report["clusters"], [{"cluster": "orders", "endpoints": [endpoint]}])

    def test_close_tells_lbd_of_connects_that_failed(self):
        server = self.lbd(address=self.refuses())
        client = self.client(server, report_interval=600)
        with self.assertRaises(ConnectionRefusedError):
            client.request("POST", "http://orders.lbd/", b"x")
        client.close()
        reports = [body["clusters"][0]["endpoints"][0] for path, _, body in server.calls.queue if path == "/v1/reports"]
        self.assertEqual(sum(endpoint.get("connect_failures", 0) for endpoint in reports), 1)
        self.assertEqual(sum(endpoint.get("requests", 0) for endpoint in reports), 0)

    def test_connects_with_more_time_if_there_is_no_other_endpoint(self):
        server = self.lbd(
            lambda _, parameters, __: (503, {"code": "all_excluded"}) if "exclude" in parameters else None,
            address=self.upstream().address,
        )
        for mode in ("batch", "pick", "lease"):
            client = self.client(server, mode=mode, retries=0)
            client.cluster("orders").connects.limit = 0
            with self.subTest(mode), client.request("POST", "http://orders.lbd/", b"x") as response:
                self.assertEqual(response.status, 200)
        client = self.client(self.lbd(lambda *_: (503, {})), fallback="127.0.0.1:1")
        self.assertEqual(client.call("orders", Deadline(10), True).first().connect_timeout, 5.0)

    def test_repeats_a_post_of_which_nothing_was_sent(self):
        upstream = self.upstream()
        client = self.client(self.lbd(address=upstream.address))
        client.request("GET", "http://orders.lbd/").read()
        ((connection,),) = client._upstreams._pool._idle.values()
        connection.usable = lambda: True
        connection.sock.sock.shutdown(socket.SHUT_WR)
        with client.request("POST", "http://orders.lbd/", io.BytesIO(b"x")) as response:
            self.assertEqual(response.status, 200)
        self.assertEqual([request[0] for request in upstream.requests], ["GET", "POST"])


class SecretsTest(Case):
    def test_has_no_secret_in_messages(self):
        for settings in (
            {"token": "geheim\r\nX: y"},
            {"lbd": "http://user:geheim@localhost"},
            {"lbd": "http://user:geheim@localhost/path"},
        ):
            with self.subTest(settings), self.assertRaises(ValueError) as caught:
                lbd.Client(**settings)
            self.assertNotIn("geheim", str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            self.client(self.lbd()).request("GET", "ftp://user:geheim@orders.lbd/")
        self.assertNotIn("geheim", str(caught.exception))

    def test_settings_take_precedence_over_the_environment(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("of-file\n")
            file.flush()
            old = dict(os.environ)
            self.addCleanup(lambda: (os.environ.clear(), os.environ.update(old)))
            os.environ["LBD_TOKEN"] = "of-environment"
            client = self.client(self.lbd(), token_file=file.name)
        self.assertEqual(client._api._token, "of-file")

    def test_keeps_the_token_while_its_file_is_replaced(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("first")
            file.flush()
            client = self.client(self.lbd(), token_file=file.name)
            for content, token in (("", "first"), ("a\nb", "first"), ("second\n", "second")):
                file.seek(0)
                file.truncate()
                file.write(content)
                file.flush()
                self.assertEqual(client._api._read_token(), token)
        with self.assertRaises(ValueError):
            self.client(self.lbd(), token_file="/no/such/file")

    def test_urllib_follows_redirects_within_a_cluster_only(self):
        target = ""

        def redirect(handler):
            if handler.path == "/there":
                return Upstream.reply(handler)
            handler.send_response(302)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        upstream, other = self.upstream(redirect), self.upstream()
        opener = lbd.opener(self.client(self.lbd(address=upstream.address)))
        for target, followed in (
            ("/there", True),
            ("http://orders.lbd/there", True),
            ("http://payments.lbd/there", False),
            (f"http://{other.address}/", False),
        ):
            request = urllib.request.Request("http://orders.lbd/", headers={"Authorization": "x"})
            with self.subTest(target):
                if followed:
                    with opener.open(request) as response:
                        self.assertEqual(response.status, 200)
                else:
                    with self.assertRaises(urllib.error.HTTPError) as caught:
                        opener.open(request)
                    with caught.exception:
                        self.assertEqual(caught.exception.code, 302)
        target = "http://orders.lbd/there"
        with self.assertRaises(urllib.error.HTTPError) as caught:
            opener.open(f"http://{upstream.address}/")
        caught.exception.close()
        self.assertEqual(other.requests, [])


class LibrariesTest(Case):
    def senders(self, client):
        """A function for each library that sends a GET, and returns the status."""
        for name, send in self.responders(client):
            yield name, lambda url, send=send: self.status(send(url))

    @staticmethod
    def status(response):
        return response.status if hasattr(response, "status") else response.status_code

    def responders(self, client):
        """A function for each library that sends a GET, and returns the response."""
        session = lbd.requests.mount(requests.Session(), client)
        self.addCleanup(session.close)
        http = httpx.Client(transport=lbd.httpx.Transport(client))
        self.addCleanup(http.close)
        yield "core", lambda url: LibrariesTest.core(client, url)
        yield "requests", session.get
        yield "httpx", http.get
        with contextlib.ExitStack() as stack:
            portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            asynchronous = httpx.AsyncClient(transport=lbd.httpx.AsyncTransport(client))
            stack.callback(portal.call, asynchronous.aclose)
            yield "httpx-async", lambda url: portal.call(asynchronous.get, url)

    @staticmethod
    def core(client, url):
        with client.request("GET", url) as response:
            response.read()
            return response

    def test_uses_connections_again_after_responses_that_are_retried(self):
        connections = []

        def fail(handler):
            connections.append(handler.client_address)
            Upstream.reply(handler, 503, b"no")

        good, bad = self.upstream(), self.upstream(fail)
        server = self.lbd(
            lambda path, parameters, _: (
                (200, {"generation": 1, "picks": [{"address": good.address}, {"address": bad.address}]})
                if "n" in parameters
                else None
            )
        )
        for name, send in self.senders(self.client(server, max_tokens=1e6)):
            with self.subTest(name):
                connections.clear()
                self.assertEqual({send("http://orders.lbd/") for _ in range(20)}, {200})
                self.assertGreater(len(connections), 5)
                self.assertEqual(len(set(connections)), 1)

    def test_does_not_wait_for_the_rest_of_a_response_that_is_retried(self):
        sent = []

        def endless(handler):
            handler.send_response(503)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            parts = 0
            with contextlib.suppress(OSError):
                while parts < 1000:
                    handler.wfile.write(b".")
                    parts += 1
                    time.sleep(0.01)
            sent.append(parts)
            handler.close_connection = True

        good, bad = self.upstream(), self.upstream(endless)
        server = self.lbd(
            lambda path, parameters, _: (
                (200, {"generation": 1, "picks": [{"address": good.address}, {"address": bad.address}]})
                if "n" in parameters
                else None
            )
        )
        for name, send in self.senders(self.client(server, max_tokens=1e6)):
            with self.subTest(name):
                sent.clear()
                bad.requests.clear()
                self.assertEqual({send("http://orders.lbd/") for _ in range(4)}, {200})
                self.assertGreater(len(bad.requests), 0)
                until(lambda: len(sent) == len(bad.requests), "the connections are closed")
                self.assertLess(max(sent), 1000)

    def test_keeps_connections_to_many_endpoints(self):
        connections = set()

        def behave(handler):
            # Connections to two upstreams may have the same local port.
            connections.add((handler.server.server_port, handler.client_address))
            Upstream.reply(handler)

        upstreams = [self.upstream(behave) for _ in range(12)]
        picks = [{"address": upstream.address} for upstream in upstreams]
        server = self.lbd(
            lambda path, parameters, _: (200, {"generation": 1, "picks": picks}) if "n" in parameters else None
        )
        for name, send in self.senders(self.client(server)):
            with self.subTest(name):
                connections.clear()
                for _ in range(48):
                    self.assertEqual(send("http://orders.lbd/"), 200)
                self.assertEqual(len(connections), 12)

    def test_requests_closes_connections_that_are_not_used(self):
        one, two = self.upstream(), self.upstream()
        server = self.lbd(address=one.address)
        client = self.client(server, mode="pick")
        session = lbd.requests.mount(requests.Session(), client)
        self.addCleanup(session.close)
        self.assertEqual(session.get("http://orders.lbd/").text, one.address)
        self.assertEqual(session.get(f"http://{two.address}/").text, two.address)
        adapter = session.get_adapter("http://orders.lbd/")
        server.endpoint = two.address
        adapter._swept = adapter._used[one.address] = -1000.0
        self.assertEqual(session.get("http://orders.lbd/").text, two.address)
        self.assertEqual(len(adapter.poolmanager.pools), 1)

    def test_does_not_use_connections_of_the_parent(self):
        ports = []
        upstream = self.upstream(lambda handler: (ports.append(handler.client_address[1]), Upstream.reply(handler)))
        client = self.client(self.lbd(address=upstream.address), mode="pick")
        for name, send in self.senders(client):
            if name == "httpx-async":
                continue  # an event loop does not survive a fork
            with self.subTest(name):
                ports.clear()
                send("http://orders.lbd/")
                pid = os.fork()
                if pid == 0:
                    status = 1
                    try:
                        status = 0 if send("http://orders.lbd/") == 200 else 2
                    finally:
                        os._exit(status)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
                send("http://orders.lbd/")
                self.assertEqual(len(ports), 3)
                self.assertEqual(ports[0], ports[2])
                self.assertNotEqual(ports[0], ports[1])

    def test_blames_no_endpoint_for_a_request_that_cannot_be_sent(self):
        server = self.lbd(address=self.upstream().address)
        client = self.client(server)
        http = httpx.Client(transport=lbd.httpx.Transport(client))
        self.addCleanup(http.close)
        with self.assertRaises(httpx.LocalProtocolError):
            http.get("http://orders.lbd/", headers={"X": "a\nb"})
        client.close()
        (endpoint,) = server.next("/v1/reports")[1]["clusters"][0]["endpoints"]
        self.assertEqual((endpoint["errors"], endpoint["cancelled"]), (0, 1))

    def test_works_with_trio(self):
        try:
            import trio  # noqa: F401
        except ImportError:
            self.skipTest("trio is not installed")
        upstream = self.upstream()
        for mode in ("batch", "pick", "lease"):
            client = self.client(self.lbd(address=upstream.address), mode=mode)

            async def main(client=client):
                async with httpx.AsyncClient(transport=lbd.httpx.AsyncTransport(client)) as http:
                    return (await http.get("http://orders.lbd/")).status_code

            self.assertEqual(anyio.run(main, backend="trio"), 200)

    def test_cancelled_tasks_keep_no_connections(self):
        asked, release = threading.Event(), threading.Event()
        bad = self.upstream(lambda handler: Upstream.reply(handler, 503, b"x" * 100_000))
        picks = []

        def second(path, parameters, _):
            if path == "/v1/pick":
                picks.append(path)
                if len(picks) == 2:
                    asked.set()
                    release.wait(120)

        client = self.client(self.lbd(second, address=bad.address), mode="pick")
        inner = httpx.AsyncHTTPTransport()

        async def main():
            async with httpx.AsyncClient(transport=lbd.httpx.AsyncTransport(client, lambda: inner)) as http:
                task = asyncio.create_task(http.get("http://orders.lbd/"))
                await asyncio.to_thread(asked.wait, 20)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                self.assertEqual(inner._pool._requests, [])
                release.set()

        asyncio.run(main())


class SignalTest(Case):
    def test_a_handler_may_close_the_client_at_any_time(self):
        client = self.client(self.lbd())
        signal.signal(signal.SIGUSR1, lambda *_: client.close())
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.SIG_DFL)
        client.call("orders", Deadline(10), True).first()
        cluster = client._clusters["orders"]
        with client._lock, cluster._changed, client._sender._lock, client._api._pool._lock:
            signal.raise_signal(signal.SIGUSR1)
        self.assertTrue(client._closed)


if __name__ == "__main__":
    unittest.main()
