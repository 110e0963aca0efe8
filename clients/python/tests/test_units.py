"""Parts of the client that need no daemon."""

import collections
import copy
import pickle
import time
import unittest
from unittest import mock

import requests

import lbd
import lbd.requests
from lbd import _aside, _batch, _counts, errors


class BatchTest(unittest.TestCase):
    def batch(self):
        return _batch.of_answer(
            "orders",
            "orders",
            {
                "generation": 7,
                "picks": [{"address": "a:1"}, {"address": "a:1"}, {"address": "b:1"}],
                "dropped": {"throttle": 2},
                "circuit_broken": 1,
            },
        )

    def test_takes_each_element_in_turn(self):
        batch = self.batch()
        for _ in range(3):
            taken = collections.Counter(
                element.address if isinstance(element, _batch.Endpoint) else type(element.error)
                for element in (batch.take(lambda _: False) for _ in "123456")
            )
            self.assertEqual(taken, {"a:1": 2, "b:1": 1, lbd.Dropped: 2, lbd.CircuitBroken: 1})

    def test_takes_another_address(self):
        batch = self.batch()
        self.assertEqual(batch.draw(lambda address: address != "a:1").address, "b:1")
        self.assertIsNone(batch.draw(lambda _: False))
        taken = collections.Counter(batch.draw(lambda _: True).address for _ in range(600))
        self.assertGreater(taken["a:1"], 1.4 * taken["b:1"])

    def test_keeps_the_shares_of_the_addresses_that_are_not_avoided(self):
        picks = [{"address": f"{name}:1"} for name in "a" * 10 + "b" * 20 + "c" * 30 + "d" * 40]
        batch = _batch.of_answer("orders", "orders", {"generation": 7, "picks": picks})
        taken = collections.Counter(batch.take("d:1".__eq__).address for _ in range(600))
        self.assertEqual(taken, {"a:1": 100, "b:1": 200, "c:1": 300})
        self.assertEqual(batch.take(lambda _: True).address[1:], ":1")

    def test_rejects_what_is_not_a_batch(self):
        for answer in (
            {},
            {"generation": 1, "picks": []},
            {"generation": 1, "picks": [{}]},
            {"generation": 1, "picks": [{"address": 7}]},
            {"generation": None, "picks": [{"address": "a:1"}]},
            {"generation": 1, "picks": None},
            {"generation": 1, "picks": [{"address": "a:1"}], "dropped": {"x": "y"}},
            {"generation": 1, "picks": [{"address": "a:1"}], "dropped": {"x": 1001}},
            {"generation": 1, "picks": [{"address": "a:1"}], "circuit_broken": 10**9},
            {"generation": 1, "picks": [{"address": "a:1"}], "circuit_broken": -1},
        ):
            with self.subTest(answer), self.assertRaises((KeyError, TypeError, ValueError)):
                _batch.of_answer("orders", "orders", answer)


class AsideTest(unittest.TestCase):
    def setUp(self):
        self.now = 1000.0
        for patch in (
            mock.patch.object(time, "monotonic", lambda: self.now),
            mock.patch.object(_aside.random, "uniform", lambda low, high: high),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.asides = _aside.Asides()

    def check(self, **avoided):
        self.assertEqual({address: self.asides.avoids(address) for address in avoided}, avoided)

    def test_permits_a_trial_after_a_time_that_grows(self):
        self.asides.failed("a", False, 2)
        self.check(a=True, b=False)
        for pause in (1.2, 2.4, 4.8, 9.6, 12, 12):
            self.now += pause - 0.001
            self.check(a=True)
            self.now += 0.002
            self.check(a=False)  # the trial
            self.check(a=True)
            self.asides.failed("a", False, 2)
        self.now += 13
        self.check(a=False)
        self.asides.failed("a", True, 2)  # it was connected
        self.check(a=False)

    def test_takes_three_ends_without_an_answer(self):
        for _ in range(2):
            self.asides.failed("a", True, 2)
            self.asides.failed("a", True, 2)
            self.check(a=False)
            self.asides.answered("a")
        for _ in range(3):
            self.asides.failed("a", True, 2)
        self.check(a=True)

    def test_sets_no_more_aside_than_permitted_and_forgets(self):
        for address in "abc":
            self.asides.failed(address, False, 2)
        self.check(a=True, b=True, c=False)
        self.assertEqual(self.asides.avoided(), ["a", "b"])
        self.asides.keep({"b", "c"})
        self.check(a=False, b=True)
        self.now += 1.3
        self.assertEqual(self.asides.avoided(), [])
        self.check(b=False)
        self.check(b=True)
        self.now += _aside.FORGET_TIME + _aside.ASIDE_MAX + 1
        self.asides.avoided()
        self.assertEqual(self.asides._addresses, {})

    def test_connects_have_three_times_the_usual(self):
        connects = _aside.Connects()
        for took, limit in ((0.01, 0.25), (0.4, 1.2), *[(0.001, 1.2)] * 15, (0.001, 0.25)):
            connects.add(took)
            self.assertAlmostEqual(connects.limit, limit)


class BudgetTest(unittest.TestCase):
    def test_permits_retries_until_half_of_the_tokens_are_left(self):
        budget = _counts.Budget(10)
        self.assertEqual([budget.failed() for _ in range(6)], [True] * 4 + [False] * 2)
        for _ in range(21):
            budget.succeeded()
        self.assertTrue(budget.failed() or budget.failed())

    def test_grows_with_the_batch(self):
        budget = _counts.Budget(10)
        for batches, retries in ((0.2, 4), (3, 14), (1, 24)):
            budget.fit(batches)
            self.assertEqual([budget.failed() for _ in range(100)].count(True), retries)
            for _ in range(1000):
                budget.succeeded()

    def test_never_has_more_than_all_tokens(self):
        budget = _counts.Budget(2)
        for _ in range(100):
            budget.succeeded()
        self.assertFalse(budget.failed())


class CountsTest(unittest.TestCase):
    def setUp(self):
        self.now = 1000.0
        clock = mock.patch.object(time, "monotonic", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        self.counts = _counts.Counts()

    def test_counts_the_time_in_flight_within_the_interval(self):
        begin = self.counts.begin("a:1")
        self.now += 2
        self.assertEqual(self.counts.take(), (1000.0, [entry(in_flight_seconds=2)]))
        self.now += 1
        self.counts.answered("a:1", "error", begin)
        self.now += 1
        self.counts.end("a:1")
        self.now += 5
        taken = self.counts.take()
        self.assertEqual(taken, (1002.0, [entry(requests=1, errors=1, in_flight_seconds=2, latency_seconds=3)]))
        self.assertEqual(self.counts.take()[1], [])

    def test_gives_back_what_was_not_sent(self):
        self.counts.answered("a:1", "cancelled", self.counts.begin("a:1"))
        self.counts.end("a:1")
        self.now += 5
        taken = self.counts.take()
        self.counts.answered("a:1", "success", self.counts.begin("a:1"))
        self.counts.end("a:1")
        self.counts.give_back(*taken)
        self.assertEqual(self.counts.take(), (1000.0, [entry(requests=2, cancelled=1)]))

    def test_forgets_what_is_too_old(self):
        self.counts.answered("a:1", "success", self.counts.begin("a:1"))
        self.counts.end("a:1")
        taken = self.counts.take()
        self.now += _counts.REPORT_AGE + 1
        self.counts.give_back(*taken)
        self.assertEqual(self.counts.take()[1], [])


def entry(**fields):
    zero = {"requests": 0, "errors": 0, "cancelled": 0, "in_flight_seconds": 0.0, "latency_seconds": 0.0}
    return {"address": "a:1"} | zero | fields


class ErrorsTest(unittest.TestCase):
    def test_has_a_type_for_each_code(self):
        for status, problem, kind, code in (
            (503, {"code": "dropped", "detail": "x"}, lbd.Dropped, "dropped"),
            (503, {"code": "circuit_broken"}, lbd.CircuitBroken, "circuit_broken"),
            (404, {"code": "unknown_cluster"}, lbd.UnknownCluster, "unknown_cluster"),
            (404, {"code": "unknown_target"}, lbd.UnknownCluster, "unknown_target"),
            (401, {}, lbd.PermissionDenied, "401"),
            (403, {"code": "permission_denied"}, lbd.PermissionDenied, "permission_denied"),
            (503, {"code": "no_ready_endpoint"}, lbd.Unavailable, "no_ready_endpoint"),
            (429, {"code": ["x"]}, lbd.Unavailable, "429"),
        ):
            with self.subTest(problem):
                error = errors.of_answer("orders", status, problem, 0)
                self.assertIs(type(error), kind)
                self.assertEqual(error.code, code)
                self.assertIn("orders", str(error))

    def test_names_the_category_of_a_drop(self):
        error = errors.of_answer("orders", 503, {"code": "dropped", "detail": "x", "category": "throttle"}, 0)
        self.assertIn("throttle", str(error))

    def test_can_be_copied(self):
        error = errors.of_answer("orders", 503, {"code": "dropped", "detail": "x"}, 2)
        for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            self.assertEqual(
                (type(same), same.args, same.code, same.retry_after), (lbd.Dropped, error.args, "dropped", 2)
            )

    def test_is_also_an_error_of_requests(self):
        error = lbd.requests.Dropped("x", cluster="orders", code="dropped")
        self.assertIsInstance(error, requests.RequestException)
        self.assertEqual(error.code, "dropped")


class ClientTest(unittest.TestCase):
    def test_knows_the_hosts_of_clusters(self):
        with lbd.Client("http://127.0.0.1:1", hosts={"shop.test": "eu/orders"}) as client:
            for host, cluster in (
                ("orders.lbd", "orders"),
                ("eu.orders.lbd", "eu.orders"),
                ("shop.test", "eu/orders"),
                ("lbd", None),
                (".lbd", None),
                ("orders.lbd.example", None),
                ("", None),
                (None, None),
            ):
                self.assertEqual(client.cluster_of(host), cluster, host)

    def test_rejects_settings(self):
        for settings in ({"lbd": "ftp://x"}, {"lbd": "localhost:8080"}, {"mode": "turbo"}, {"lbd": "http://x/path"}):
            with self.subTest(settings), self.assertRaises(ValueError):
                lbd.Client(**settings)


if __name__ == "__main__":
    unittest.main()
