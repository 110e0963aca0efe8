"""Requests to https://CLUSTER.lbd, with a real daemon and upstreams with TLS."""

import asyncio
import http.server
import os
import ssl
import subprocess
import tempfile
import threading
import unittest
from unittest import mock

import httpx
import requests
from daemon import Daemon

import lbd
import lbd.httpx
import lbd.requests


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)

    def upstream(self, *names):
        """Starts a server with a certificate of names. Its answers are the server name and the Host of the request."""
        path = os.path.join(self.directory.name, "-".join(names).replace(":", "-"))
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=" + ",".join(names)]
        command += ["-keyout", path + ".key", "-out", path + ".pem"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(path + ".pem", path + ".key")
        context.sni_callback = lambda sock, name, _: setattr(sock, "name", name)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = f"{self.connection.name} {self.headers['Host']}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        server = Server(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"127.0.0.1:{server.server_port}", path + ".pem"

    def senders(self, ca):
        """A function for each library that gets a URL, and the errors of its TLS."""
        client = lbd.Client(self.daemon.lbd)
        self.addCleanup(client.close)
        context = ssl.create_default_context(cafile=ca)
        session = lbd.requests.mount(requests.Session(), client)
        self.addCleanup(session.close)
        session.trust_env, session.verify = False, ca
        http = httpx.Client(transport=lbd.httpx.Transport(client, lambda: httpx.HTTPTransport(verify=context)))
        self.addCleanup(http.close)

        def core(url):
            with mock.patch.object(ssl, "create_default_context", lambda: context), client.request("GET", url) as got:
                return got.read().decode()

        async def several(*urls):
            transport = lbd.httpx.AsyncTransport(client, lambda: httpx.AsyncHTTPTransport(verify=context))
            async with httpx.AsyncClient(transport=transport) as http:
                return [(await http.get(url)).text for url in urls]

        yield "core", lambda *urls: [core(url) for url in urls], ssl.SSLError
        yield "requests", lambda *urls: [session.get(url).text for url in urls], requests.exceptions.SSLError
        yield "httpx", lambda *urls: [http.get(url).text for url in urls], httpx.ConnectError
        yield "httpx-async", lambda *urls: asyncio.run(several(*urls)), httpx.ConnectError

    def test_an_endpoint_has_the_certificate_and_the_name_of_the_host(self):
        address, ca = self.upstream("DNS:orders.lbd", "DNS:payments.lbd")
        for cluster in ("orders", "payments"):
            self.daemon.push(cluster, [address])
        for name, send, _ in self.senders(ca):
            with self.subTest(name):  # also on a second connection to an address that has one
                answers = send("https://orders.lbd/", "https://payments.lbd/", "https://orders.lbd/")
                self.assertEqual(answers, [f"{host} {host}" for host in ("orders.lbd", "payments.lbd", "orders.lbd")])

    def test_another_certificate_is_not_accepted(self):
        for other in ("DNS:other.lbd", "IP:127.0.0.1"):
            address, ca = self.upstream(other)
            self.daemon.push("orders", [address])
            for name, send, error in self.senders(ca):
                with self.subTest((other, name)), self.assertRaises(error):
                    send("https://orders.lbd/")


if __name__ == "__main__":
    unittest.main()
