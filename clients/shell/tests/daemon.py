"""A real lbd for the tests."""

import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.parse

LBD_BIN = os.environ.get("LBD_BIN", os.path.join(os.path.dirname(__file__), "../../../bin/lbd"))
DEADLINE = 120


def until(condition, what):
    """Waits until condition is true, and returns what it returned."""
    end = time.monotonic() + DEADLINE
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {DEADLINE} s: {what}")
        time.sleep(0.02)
    return result


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """lbd on a unix socket. token is the one of an operator, if flags ask for one."""

    def __init__(self, *flags, token=None):
        self._directory = tempfile.TemporaryDirectory()
        self._socket = os.path.join(self._directory.name, "lbd.sock")
        self._flags = flags
        self._token = token
        self.lbd = "unix:" + self._socket
        self.start()

    def start(self):
        data = os.path.join(self._directory.name, "data")
        with open(os.path.join(self._directory.name, "lbd.log"), "ab") as log:
            self.process = subprocess.Popen(
                [LBD_BIN, "serve", "--listen=" + self.lbd, "--data=" + data, "--connect=none", *self._flags], stderr=log
            )
        until(self._ready, "lbd is ready")

    def _ready(self):
        if self.process.poll() is not None:
            with open(os.path.join(self._directory.name, "lbd.log")) as log:
                raise AssertionError("lbd ended: " + log.read())
        try:
            return self.call("GET", "/v1/daemon")
        except OSError:
            return None

    def call(self, method, path, body=None):
        connection = Connection(self._socket)
        try:
            headers = {"Authorization": "Bearer " + self._token} if self._token else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read().decode()
            if response.status >= 300:
                raise AssertionError(f"{method} {path}: {response.status} {content}")
            return json.loads(content) if content.startswith("{") else content
        finally:
            connection.close()

    def push(self, cluster, addresses, drop=0, max_requests=None):
        name = urllib.parse.quote(cluster, safe="")
        if max_requests:
            breaker = {"thresholds": [{"max_requests": max_requests}]}
            config = {"type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "circuit_breakers": breaker}
            self.call("PUT", f"/v1/clusters/{name}/config", config)
        endpoints = []
        for address in addresses:
            host, _, port = address.rpartition(":")
            endpoints.append({"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}})
        drops = {"drop_overloads": [{"category": "throttle", "drop_percentage": {"numerator": drop}}]} if drop else {}
        path = f"/v1/clusters/{name}/endpoints?allow_empty=true"
        self.call("PUT", path, {"endpoints": [{"lb_endpoints": endpoints}], "policy": drops})

    def leases(self, cluster):
        return self.call("GET", f"/v1/leases?cluster={cluster}")["leases"]

    def ended(self, cluster, outcome):
        """How many leases ended with an outcome."""
        return self._metric(f'lbd_leases_finished_total{{cluster="{cluster}",outcome="{outcome}"}} ')

    def connect_failures(self, cluster):
        """How many were reported, other than by leases."""
        return self._metric(f'lbd_reported_connect_failures_total{{cluster="{cluster}"}} ')

    def _metric(self, series):
        lines = [line for line in self.call("GET", "/metrics").splitlines() if line.startswith(series)]
        return int(lines[0].removeprefix(series)) if lines else 0

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE)

    def close(self):
        if self.process.poll() is None:
            self.stop()
        self._directory.cleanup()
