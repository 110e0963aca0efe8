"""What a client does in the background, with a real daemon."""

import math
import os
import re
import socket
import threading
import time
import unittest

from daemon import Daemon, Upstream, until

import lbd
from lbd.client import CLUSTERS_MAX


class BackgroundTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def client(self, **settings):
        client = lbd.Client(self.daemon.lbd, **settings)
        self.addCleanup(client.close)
        return client

    def test_renews_a_lease_whose_ttl_is_shorter_than_the_interval(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        self.daemon.push("renewed", [upstream.address])
        client = self.client(mode="lease", ttl=2.0, report_interval=60, timeout=None)
        client.request("GET", "http://renewed.lbd/").close()
        until(lambda: time.monotonic() + 30 < client._sender._wake < math.inf, "the thread sleeps without a lease")
        began = time.monotonic()
        with client.request("GET", "http://renewed.lbd/"):
            until(lambda: time.monotonic() - began > 5, "the ttl has passed twice")
            self.assertEqual(self.daemon.metric('lbd_leases_active{cluster="renewed"}'), 1)
        until(lambda: self.daemon.metric('lbd_leases_active{cluster="renewed"}') == 0, "the lease is ended")
        self.assertEqual(self.daemon.metric('lbd_leases_finished_total{cluster="renewed",outcome="expired"}'), 0)

    def test_limits_the_ttl(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        self.daemon.push("long", [upstream.address])
        with self.client(mode="lease").request("GET", "http://long.lbd/", timeout=3600) as response:
            self.assertEqual(response.status, 200)

    def test_uses_a_batch_that_is_older_than_stale_for_while_lbd_answers(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        self.daemon.push("old", [upstream.address])
        client = self.client(stale_for=0.1, max_age=60)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with client.request("GET", "http://old.lbd/") as response:
                self.assertEqual(response.status, 200)

    def test_reports_errors_early(self):
        upstream = Upstream(lambda handler: Upstream.reply(handler, 500))
        self.addCleanup(upstream.close)
        self.daemon.push("failing", [upstream.address])
        client = self.client(report_interval=600)
        for _ in range(5):
            with client.request("GET", "http://failing.lbd/") as response:
                self.assertEqual(response.status, 500)
        errors = 'lbd_reported_requests_total{cluster="failing",outcome="error"}'
        until(lambda: self.daemon.metric(errors) == 5, "the errors are reported")

    def test_starts_again_after_it_ended_without_requests(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        self.daemon.push("idle", [upstream.address])
        client = self.client()
        client.request("GET", "http://idle.lbd/").close()
        cluster = client._clusters["idle"]
        with cluster._changed:
            cluster.batch, cluster._tries = None, 0
        waiter = threading.Thread(target=client.request, args=("GET", "http://idle.lbd/"), kwargs={"timeout": 300})
        waiter.start()
        until(lambda: cluster._changed._waiters, "the request waits")
        with cluster._changed:  # as at the end of the thread
            cluster._thread = None
            cluster._changed.notify_all()
        waiter.join(120)
        self.assertFalse(waiter.is_alive())

    def threads(self, prefix):
        return [thread for thread in threading.enumerate() if thread.name.startswith(f"lbd {prefix}")]

    def test_names_that_lbd_does_not_know_cost_nothing_for_long(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        self.daemon.push("known", [upstream.address])
        client = self.client()
        for number in range(CLUSTERS_MAX + 100):
            with self.assertRaises(lbd.UnknownCluster):
                client.request("GET", f"http://later-{number}.lbd/")
        until(lambda: not self.threads("later-"), "no cluster is followed")
        client.request("GET", "http://known.lbd/").close()
        self.daemon.push("later-1099", [upstream.address])

        def known():
            try:
                client.request("GET", "http://later-1099.lbd/").close()
            except lbd.UnknownCluster:
                return False
            return True

        until(known, "the cluster is known")

    def test_without_batches_names_that_lbd_does_not_know_are_forgotten_first(self):
        upstream = Upstream()
        self.addCleanup(upstream.close)
        client = self.client(mode="pick")
        for name in ("first", "second"):
            self.daemon.push(name, [upstream.address])
            client.request("GET", f"http://{name}.lbd/").close()
        first, second = client.cluster("first"), client.cluster("second")
        for number in range(2 * CLUSTERS_MAX):
            client.cluster(f"name-{number}")
        self.assertIs(client.cluster("first"), first)
        for number in range(CLUSTERS_MAX - 1):
            client.cluster(f"known-{number}").picked = time.monotonic()
        self.assertNotIn("first", client._clusters)
        self.assertIs(client.cluster("second"), second)

    def test_names_that_are_forgotten_are_not_followed(self):
        client = lbd.Client("http://127.0.0.1:1")
        self.addCleanup(client.close)
        for number in range(CLUSTERS_MAX + 10):
            with self.assertRaisesRegex(lbd.Unavailable, "unreachable"):
                client.request("GET", f"http://name-{number}.lbd/")
        until(lambda: len(self.threads("name-")) == 10, "10 clusters are followed")

    def test_clients_of_a_process_report_by_different_names(self):
        clients = [self.client() for _ in range(3)]
        names = {client._sender.reporter for client in clients}
        clients[0]._after_fork()
        names.add(clients[0]._sender.reporter)
        self.assertEqual(len(names), 4)
        for name in names:
            self.assertRegex(name, re.escape(f"{socket.gethostname()[:100]}/{os.getpid()}/") + "[0-9a-f]{8}$")


if __name__ == "__main__":
    unittest.main()
