"""What a program sees of its client."""

import logging
import os
import unittest
from unittest import mock

from daemon import Upstream, until
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from test_faults import Case, LibrariesTest

import lbd
import lbd.otel
from lbd._connection import Deadline


class Failing(Case):
    def two(self, status=503):
        """A server with two endpoints that answer with a status."""
        upstreams = [self.upstream(lambda handler: Upstream.reply(handler, status)) for _ in range(2)]
        self.addresses = {upstream.address for upstream in upstreams}
        picks = [{"address": address} for address in self.addresses]
        return self.lbd(
            lambda path, parameters, _: (200, {"generation": 1, "picks": picks}) if "n" in parameters else None
        )


class AttemptTest(Failing):
    def test_gets_each_try_of_each_library(self):
        attempts = []
        client = self.client(self.two(), on_attempt=attempts.append, max_tokens=1e6)
        for name, send in LibrariesTest.responders(self, client):
            with self.subTest(name):
                attempts.clear()
                before = len(attempts)
                send("http://orders.lbd/items?x=y")
                self.assertEqual(before + 2, len(attempts))
                self.assertEqual({attempt.choice.address for attempt in attempts}, self.addresses)
                for number, attempt in enumerate(attempts, 1):
                    self.assertEqual(attempt.choice.attempt, number)
                    self.assertEqual((attempt.outcome, attempt.status, attempt.error), ("error", 503, None))
                    self.assertEqual(attempt.request.method, "GET")
                    self.assertEqual(str(attempt.request.url), "http://orders.lbd/items?x=y")
                    self.assertTrue(0 < attempt.duration < 100)

    def test_gets_the_error_of_a_try_that_failed(self):
        attempts = []
        for mode in ("batch", "pick", "lease"):
            client = self.client(self.lbd(), mode=mode, on_attempt=attempts.append)
            for name, send in LibrariesTest.responders(self, client):
                with self.subTest((mode, name)), mock.patch("lbd.client.OTHER_TIME", 0):
                    attempts.clear()
                    with self.assertRaises(Exception) as caught:
                        send("http://orders.lbd/")
                    self.assertEqual(len(attempts), 1 if mode == "batch" else len(attempts))
                    self.assertEqual((attempts[0].outcome, attempts[0].status), ("unreachable", None))
                    self.assertIs(attempts[-1].error, caught.exception)

    def test_gets_a_try_that_was_given_up(self):
        attempts = []
        client = self.client(self.lbd(), mode="pick", on_attempt=attempts.append)
        client.call("orders", Deadline(10), True).first().finish()
        self.assertEqual([attempt.outcome for attempt in attempts], ["cancelled"])

    def test_a_hook_that_fails_breaks_nothing(self):
        def fail(_):
            raise RuntimeError("of a hook")

        logger = logging.getLogger("lbd.test.fail")
        with self.assertLogs(logger) as logs:
            client = self.client(self.two(200), on_attempt=fail, on_state=fail, logger=logger)
            client.observer.called(OSError("away"))
            with client.request("GET", "http://orders.lbd/") as response:
                self.assertEqual(response.status, 200)
        self.assertEqual(sum("of a hook" in line for line in logs.output), 3)


class StateTest(Case):
    def test_gets_changes_only(self):
        states, gone = [], []
        upstream = self.upstream()
        server = self.lbd(lambda *_: (500, {}) if gone else None, address=upstream.address)
        client = self.client(server, on_state=states.append, max_age=0.1, stale_for=0.5)

        def get():
            with client.request("GET", "http://orders.lbd/") as response:
                return response.status

        get()
        gone.append(True)
        until(lambda: states == ["unreachable"], "lbd is unreachable")
        cluster = client.cluster("orders")
        until(lambda: not cluster._usable(), "the batch is too old")
        for _ in "12":
            with self.assertRaises(lbd.Unavailable):
                get()
        self.assertEqual(states, ["unreachable", "stale"])
        gone.clear()
        until(lambda: len(states) > 2, "lbd answers")
        self.assertEqual(states, ["unreachable", "stale", "recovered"])
        gone.append(True)
        client.close()
        with self.assertRaises(lbd.Unavailable):
            get()
        self.assertEqual(len(states), 3)

    def test_an_answer_that_rejects_is_one(self):
        states = []
        client = self.client(
            self.lbd(lambda *_: (404, {"code": "unknown_cluster"})), mode="pick", on_state=states.append
        )
        client.observer.stale(OSError("an old one"))
        client.observer.called(OSError("away"))
        with self.assertRaises(lbd.UnknownCluster):
            client.request("GET", "http://orders.lbd/")
        self.assertEqual(states, ["unreachable", "recovered"])

    def test_a_call_that_ends_with_its_request_changes_nothing(self):
        states = []
        client = self.client(self.lbd(lambda *_: (500, {})), mode="pick", on_state=states.append)
        with self.assertRaises(lbd.Unavailable):
            client.request("GET", "http://orders.lbd/", timeout=0)
        self.assertEqual(states, [])
        with self.assertRaises(lbd.Unavailable):
            client.request("GET", "http://orders.lbd/", timeout=60)
        self.assertEqual(states, ["unreachable"])


class LoggerTest(Case):
    def test_gets_states_and_tries_without_secrets(self):
        logger, gone = logging.getLogger("lbd.test"), []
        server = self.lbd(lambda *_: (500, {}) if gone else None, address=self.upstream().address)
        hosts = {"orders.lbd": lbd.Host(hash="header:X")}
        client = self.client(server, mode="pick", token="geheim-token", hosts=hosts, logger=logger)

        def get():
            client.request("GET", "http://orders.lbd/a?geheim-query", headers={"X": "geheim-key"}).close()

        with self.assertLogs(logger, "DEBUG") as logs:
            get()
            gone.append(True)
            with self.assertRaises(lbd.Unavailable) as caught:
                get()
            gone.clear()
            get()
        self.assertEqual([record.levelname for record in logs.records], ["DEBUG", "WARNING", "INFO", "DEBUG"])
        self.assertIn(server.endpoint, logs.output[0])
        self.assertIn(server.lbd, logs.output[1])
        for text in (str(caught.exception), repr(caught.exception.__cause__), *logs.output):
            self.assertNotIn("geheim", text)

    def test_is_off(self):
        client = self.client(self.lbd(address=self.upstream().address))
        with self.assertRaises(AssertionError), self.assertLogs(level="DEBUG"):
            client.observer.called(OSError("away"))
            client.request("GET", "http://orders.lbd/").close()


class AddressTest(unittest.TestCase):
    def message(self, address, environment=None, mode="pick"):
        with mock.patch.dict(os.environ), mock.patch("lbd._api.SOCKETS", ()):
            os.environ.pop("LBD", None)
            os.environ.update({"LBD": environment} if environment else {})
            client = lbd.Client(address, mode=mode)
        self.addCleanup(client.close)
        with self.assertRaises(lbd.Unavailable) as caught:
            client.request("GET", "http://orders.lbd/")
        return str(caught.exception)

    def test_names_the_address_and_how_it_was_found(self):
        failed = "cluster orders: lbd is unreachable: GET /v1/pick at "
        for mode in ("batch", "pick"):
            setting = self.message("unix:/no/such", mode=mode)
            self.assertTrue(
                setting.startswith(failed + "unix:/no/such (the setting lbd): FileNotFoundError: "), setting
            )
        environment = self.message(None, "http://127.0.0.1:1")
        self.assertTrue(environment.startswith(failed + "http://127.0.0.1:1 (environment LBD): Conn"), environment)
        with mock.patch("lbd._api.Pool.get", side_effect=ConnectionRefusedError("refused")):
            default = self.message(None)
        self.assertTrue(default.startswith(failed + "http://localhost:8080 (default; set LBD): Conn"), default)

    def test_has_no_password(self):
        with self.assertRaises(ValueError) as caught:
            lbd.Client("user:geheim@host:8080")
        self.assertNotIn("geheim", str(caught.exception))


class OtelTest(Failing):
    def test_makes_a_span_of_each_try(self):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        client = self.client(self.two(), on_attempt=lbd.otel.on_attempt(provider), max_tokens=1e6)
        for name, send in LibrariesTest.responders(self, client):
            with self.subTest(name):
                exporter.clear()
                with provider.get_tracer("test").start_as_current_span("parent") as parent:
                    send("http://orders.lbd/items?key=geheim")
                spans = exporter.get_finished_spans()[:2]
                for number, span in enumerate(spans):
                    got = dict(span.attributes)
                    peer = f"{got.pop('network.peer.address')}:{got.pop('network.peer.port')}"
                    self.assertIn(peer, self.addresses)
                    self.assertEqual(
                        got,
                        {
                            "http.request.method": "GET",
                            "server.address": "orders.lbd",
                            "server.port": 80,
                            "lbd.cluster": "orders",
                            "http.response.status_code": 503,
                            "error.type": "503",
                        }
                        | ({"http.request.resend_count": 1} if number else {}),
                    )
                    self.assertEqual((span.name, span.kind.name, span.status.is_ok), ("GET", "CLIENT", False))
                    self.assertEqual(span.parent.span_id, parent.get_span_context().span_id)
                    self.assertLess(span.start_time, span.end_time)

    def test_names_the_outcome_of_a_try_without_a_status(self):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        client = self.client(self.lbd(), on_attempt=lbd.otel.on_attempt(provider))
        with mock.patch("lbd.client.OTHER_TIME", 0), self.assertRaises(OSError):
            client.request("GET", "https://orders.lbd:8443/")
        (span,) = exporter.get_finished_spans()
        self.assertEqual(span.attributes["error.type"], "unreachable")
        self.assertEqual(span.attributes["server.port"], 8443)
        self.assertNotIn("http.response.status_code", span.attributes)


if __name__ == "__main__":
    unittest.main()
