"""A real lbd and real upstreams for the tests."""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

LBD_BIN = os.environ.get("LBD_BIN", os.path.join(os.path.dirname(__file__), "../../../bin/lbd"))
DEADLINE = 120


def until(condition, what):
    """Waits until condition is true."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {DEADLINE} s: {what}")
        time.sleep(0.02)


class Daemon:
    """lbd with a listener on loopback and one on a unix socket."""

    def __init__(self, connect="none"):
        self._connect = connect
        self._directory = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self._directory.name, "lbd.sock")
        self.lbd = "unix:" + self.socket
        self.start()

    def start(self):
        self._log = open(os.path.join(self._directory.name, "lbd.log"), "ab")  # noqa: SIM115 (it is closed with the process)
        self._process = subprocess.Popen(
            [
                LBD_BIN,
                "serve",
                "--listen=" + self.lbd,
                "--data=" + os.path.join(self._directory.name, "data"),
                "--connect=" + self._connect,
            ],
            stderr=self._log,
        )
        until(self._ready, "lbd is ready")

    def _ready(self):
        if self._process.poll() is not None:
            with open(self._log.name) as log:
                raise AssertionError("lbd ended: " + log.read())
        try:
            return self.call("GET", "/v1/daemon") is not None
        except (OSError, ValueError):
            return False

    def call(self, method, path, body=None):
        from lbd._connection import Connection, Deadline

        connection = Connection(self.lbd)
        try:
            connection.open(Deadline(5))
            connection.request(method, path, None if body is None else json.dumps(body).encode())
            with connection.getresponse() as response:
                content = response.read()
                if response.status >= 300:
                    raise AssertionError(f"{method} {path}: {response.status} {content.decode()}")
                return json.loads(content) if content[:1] in b"{[" and content else content.decode()
        finally:
            connection.close()

    def push(self, cluster, *priorities, **policy):
        """Each of priorities is a list of addresses."""
        name = urllib.parse.quote(cluster, safe="")
        body = {"endpoints": []}
        for priority, addresses in enumerate(priorities):
            endpoints = [{"endpoint": {"address": _address(address)}} for address in addresses]
            locality = {"zone": f"zone-{priority}"}
            body["endpoints"].append({"priority": priority, "locality": locality, "lb_endpoints": endpoints})
        if policy:
            body["policy"] = policy
        self.call("PUT", f"/v1/clusters/{name}/endpoints", body)

    def metric(self, line):
        """The value of a metric with its labels; 0 if it is not there."""
        for text in self.call("GET", "/metrics").splitlines():
            if text.startswith(line + " "):
                return float(text.rpartition(" ")[2])
        return 0.0

    def stop(self):
        self._process.terminate()
        self._process.wait(DEADLINE)
        self._log.close()

    def close(self):
        if self._process.poll() is None:
            self.stop()
        self._directory.cleanup()


def _address(address):
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


class Upstream:
    """An HTTP server on loopback. `behave(handler)` answers its requests, by default with the address."""

    def __init__(self, behave=None):
        upstream = self
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                self.body = self.rfile.read(length)
                while self.headers.get("Transfer-Encoding") and (size := int(self.rfile.readline(), 16)):
                    self.body += self.rfile.read(size + 2)[:size]
                if self.headers.get("Transfer-Encoding"):
                    self.rfile.readline()
                upstream.requests.append((self.command, self.path, self.headers.get("Host"), self.body))
                (behave or Upstream.reply)(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # a client may close its connection at any time

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @staticmethod
    def reply(handler, status=200, body=None):
        body = f"127.0.0.1:{handler.server.server_port}".encode() if body is None else body
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Proxy:
    """A process that is a proxy of HTTP. It prints the addresses that requests are for."""

    PROGRAM = """
import http.server, urllib.parse, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(urllib.parse.urlsplit(self.path).netloc, flush=True)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(self.path) as response:
            self.send_response(response.status)
            self.end_headers()
            self.wfile.write(response.read())
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def close(self):
        """Ends it, and returns what it has printed."""
        self._process.terminate()
        return self._process.communicate()[0].decode().split()
