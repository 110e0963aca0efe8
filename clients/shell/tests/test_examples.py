"""The programs of examples."""

import os
from subprocess import PIPE, Popen

from case import LBD_CURL, SHELL, Case
from daemon import DEADLINE, until
from upstream import Held, reply

ORDERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/orders.sh")


class ExampleTest(Case):
    def test_orders(self):
        self.cluster = "orders"
        held = Held()
        answers = [held, lambda handler: reply(handler, 200, handler.path.encode())]
        self.push(self.upstream(lambda handler: answers.pop(0)(handler)), max_requests=1)
        environment = self.environment({"LBD_MODE": "lease"})
        environment["PATH"] = os.path.dirname(LBD_CURL) + ":" + environment["PATH"]
        first = self.start("-sS", "http://orders.lbd/", LBD_MODE="lease")
        held.arrived.wait(DEADLINE)
        example = Popen([*SHELL, ORDERS, "7"], env=environment, stdout=PIPE, stderr=PIPE)
        self.addCleanup(example.wait)
        self.addCleanup(example.kill)
        self.assertIn(b"(circuit_broken)", example.stderr.readline())
        held.release()
        self.assertEqual(first.wait(DEADLINE), 0)
        self.assertEqual(example.communicate(timeout=DEADLINE)[0], b"/items/7")
        self.assertEqual(example.returncode, 0)
        until(lambda: not self.daemon.leases("orders"), "the leases have ended")
