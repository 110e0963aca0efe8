"""The programs of examples, and those of README.md, with a real daemon."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from daemon import Daemon, Upstream, until

TYPES = "type.googleapis.com/envoy."
ROOT = pathlib.Path(__file__).parent.parent


def path(handler):
    Upstream.reply(handler, body=handler.path.encode())


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.upstream = Upstream(path)
        self.addCleanup(self.upstream.close)
        self.daemon.push("orders", [self.upstream.address])
        self.environ = os.environ | {"LBD": self.daemon.lbd}

    def reported(self):
        return self.daemon.metric('lbd_reported_requests_total{cluster="orders",outcome="success"}')

    def shop(self):
        """Starts the shop, and returns the process with a function that gets a page."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--preload", "--workers=2", "--bind", address, "shop:app"],
            cwd=ROOT / "examples",
            env=self.environ,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

        def get(path):
            """A status and a body; None as long as the shop does not answer."""
            try:
                with urllib.request.urlopen(f"http://{address}{path}", timeout=120) as response:
                    return response.status, response.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()
            except OSError:
                return None

        return server, get

    def test_shop(self):
        server, get = self.shop()
        until(lambda: get("/items/a%20b") == (200, b"/items/a%20b"), "the shop answers")
        server.terminate()
        self.assertEqual(server.wait(120), 0)
        self.assertEqual(self.reported(), 1)

    def test_shop_without_orders(self):
        self.daemon.call("DELETE", "/v1/clusters/orders/endpoints")
        _, get = self.shop()
        answers = []
        until(lambda: answers.append(get("/")) or answers[-1] is not None, "the shop answers")
        status, body = answers[-1]
        self.assertEqual(status, 502)
        self.assertIn(b"unknown_cluster", body)

    def test_orders(self):
        program = [sys.executable, ROOT / "examples/orders.py", "7", "8"]
        output = subprocess.run(program, env=self.environ, check=True, timeout=120, capture_output=True, text=True)
        self.assertEqual(output.stdout, "7: 200 /items/7\n8: 200 /items/8\n")
        self.assertEqual(self.reported(), 2)

    def test_readme(self):
        manager = {
            "@type": TYPES + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "route_config": {
                "virtual_hosts": [
                    {
                        "name": "shop",
                        "domains": ["*"],
                        "routes": [{"match": {"prefix": "/items"}, "route": {"cluster": "orders"}}],
                    }
                ]
            },
        }
        listener = {"name": "shop", "api_listener": {"api_listener": manager}}
        listener["@type"] = TYPES + "config.listener.v3.Listener"
        self.daemon.call("POST", "/v1/snapshot", {"resources": [listener]})
        setup = "import asyncio, logging, lbd.otel\nuser = 'alice'\nasyncio.run(main())\n"
        first, *others = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        with tempfile.TemporaryDirectory() as directory:
            output = subprocess.run(
                [sys.executable, "-c", first + setup + "".join(others)],
                cwd=directory,
                env=self.environ,
                check=True,
                timeout=120,
                capture_output=True,
                text=True,
            ).stdout
        self.assertRegex(output, f"Choice.cluster='orders', address='{self.upstream.address}'.*attempt=1")
        self.assertEqual({request[1] for request in self.upstream.requests}, {"/items/7"})
        self.assertEqual(len(self.upstream.requests), 6)
        self.assertEqual(self.reported(), 6)


if __name__ == "__main__":
    unittest.main()
