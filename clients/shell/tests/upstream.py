"""Real upstreams on loopback, which behave as a test says."""

import contextlib
import http.server
import socket
import struct
import threading


class Upstream:
    """An HTTP server. behave(handler) answers its requests, by default with its address."""

    def __init__(self, behave=None, context=None, path=None):
        upstream = self
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                upstream.requests.append((self.command, self.path, self.headers, self.body))
                with contextlib.suppress(ConnectionError):
                    (behave or reply)(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_UNIX if path else socket.AF_INET

            def server_bind(self):
                self.socket.bind(self.server_address)
                self.server_name, self.server_port = path or "127.0.0.1", 0 if path else self.socket.getsockname()[1]

            def get_request(self):
                connection, address = super().get_request()
                return connection, address or ("unix", 0)

            def handle_error(self, *_):
                pass  # a client may close its connection at any time

        self._server = Server(path or ("127.0.0.1", 0), Handler)
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = "unix:" + path if path else f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def reply(handler, status=200, body=None):
    body = f"127.0.0.1:{handler.server.server_port}".encode() if body is None else body
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def status(code, body=b"sorry"):
    return lambda handler: reply(handler, code, body)


def reset(handler):
    """Ends the connection before the status line."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def half(handler):
    """Ends the connection within the body."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"begin")
    handler.close_connection = True


class Held:
    """A behavior that answers when release is called, and notes when the peer has gone away."""

    def __init__(self):
        self.arrived = threading.Event()
        self._released = threading.Event()
        self.gone = threading.Event()

    def release(self):
        self._released.set()

    def __call__(self, handler):
        self.arrived.set()
        handler.connection.settimeout(0.02)
        while not self._released.is_set():
            try:
                if handler.connection.recv(1) == b"":
                    self.gone.set()
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                self.gone.set()
                break
        handler.connection.settimeout(20)
        reply(handler)


class Silent:
    """An address whose connections are never accepted."""

    def __init__(self):
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._clients = []
        for _ in range(4):  # fill the backlog
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(self._listener.getsockname())
            self._clients.append(client)

    def close(self):
        for client in self._clients:
            client.close()
        self._listener.close()


class Refused:
    """An address that refuses connections: it is bound, and nobody listens."""

    def __init__(self):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._socket.getsockname()[1]

    def close(self):
        self._socket.close()
