"""HTTP/1.1 connections with deadlines, and a bounded pool of idle ones."""

from __future__ import annotations

import collections
import contextlib
import encodings.idna  # noqa: F401 (socket imports it at its first use: see _open)
import http.client
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

IDLE_TIME = 30.0
"""Seconds after which an idle connection is closed."""

IDLE_EACH = 32
"""Idle connections that are kept to one address."""

IDLE_ALL = 256
"""Idle connections that are kept in all."""

TIMEOUT_MAX = 1e6
"""Seconds; sockets accept at most 2**31 ms."""


class Deadline:
    """A point in time; None is never."""

    __slots__ = ("at",)

    def __init__(self, timeout: Optional[float]) -> None:
        self.at = None if timeout is None else time.monotonic() + min(timeout, TIMEOUT_MAX)

    def left(self) -> Optional[float]:
        """The seconds left, not below 0; None without a deadline."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    def passed(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    def at_most(self, seconds: float) -> float:
        left = self.left()
        return seconds if left is None else min(seconds, left)


class _Socket:
    """What http.client needs of a socket. All reads and writes end at the deadline, however slowly bytes come."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline = Deadline(None)
        self.sent = False  # whether anything was, since the last request began
        self._users = 1

    def arm(self) -> None:
        left = self.deadline.left()
        if left is not None and left <= 0:
            raise TimeoutError("the deadline of the request has passed")
        self.sock.settimeout(left)

    def sendall(self, data: Any) -> None:
        left = memoryview(data).cast("B")
        while left:  # not sendall of the socket: with TLS, each part has the whole timeout
            self.arm()
            left = left[self.sock.send(left) :]
            self.sent = True

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        self._users += 1
        return io.BufferedReader(_Reader(self), 16384)

    def close(self) -> None:
        self._users -= 1
        if self._users == 0:
            self.sock.close()


class _Reader(io.RawIOBase):
    def __init__(self, stream: _Socket) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._stream.arm()
        return self._stream.sock.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream.close()


def _connect(address: str, deadline: Deadline) -> socket.socket:
    if address.startswith("unix:"):
        return _open(socket.AF_UNIX, address[len("unix:") :], deadline)
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return _open(family, (host.encode(), int(port)), deadline)
    failed: Optional[OSError] = None
    for family, _, _, _, name in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM):
        try:
            return _open(family, name, deadline)
        except OSError as error:
            failed = error
    raise failed or OSError(f"{host} has no address")


def _open(family: int, name: Any, deadline: Deadline) -> socket.socket:
    # Hosts in names are bytes: else socket imports the IDNA codec, and in a child of fork the lock of that import may
    # be held by a thread that does not live there.
    left = deadline.left()
    if left is not None and left <= 0:
        raise TimeoutError("the deadline of the request has passed")
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(left)
        sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return sock


class Connection(http.client.HTTPConnection):
    """A connection to an address: HOST:PORT, [IPV6]:PORT or unix:PATH; with TLS if context is not None."""

    def __init__(
        self,
        address: str,
        context: Optional[ssl.SSLContext] = None,
        server_name: str = "",
        connect_timeout: Optional[float] = None,
    ) -> None:
        super().__init__("localhost")
        self.address = address
        self.sock: Any = None
        self.reused = False
        self.idle_since = 0.0
        self._context = context
        self._server_name = server_name
        self._connect_timeout = connect_timeout

    def connect(self) -> None:
        raise NotImplementedError("use open")

    def open(self, deadline: Deadline) -> None:
        """Connects. Raises OSError; TimeoutError at the deadline."""
        within = Deadline(self._connect_timeout)
        if within.at is None or (deadline.at is not None and deadline.at < within.at):
            within = deadline
        try:
            sock = self._open(within)
        except TimeoutError as error:
            if within is deadline or error.errno is not None:
                raise
            raise ConnectionError(f"{self.address}: no connection within {self._connect_timeout:g} s") from error
        self.sock = _Socket(sock)
        self.expire(deadline)

    def _open(self, within: Deadline) -> socket.socket:
        sock = _connect(self.address, within)
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock.settimeout(within.left())
                sock = self._context.wrap_socket(sock, server_hostname=self._server_name)
        except BaseException:
            sock.close()
            raise
        return sock

    def expire(self, deadline: Deadline) -> None:
        """Sets the deadline of all that follows on this connection."""
        self.sock.deadline = deadline
        self.sock.sent = False

    def usable(self) -> bool:
        """Whether an idle connection can be used again: the peer neither closed it nor sent anything."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock.sock, select.POLLIN)
        return not poll.poll(0)

    def interrupt(self) -> None:
        """Ends a call that another thread waits for."""
        sock = self.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.sock.shutdown(socket.SHUT_RDWR)


class Pool:
    """Idle connections, the youngest first. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a handler of a signal may close the client
        self._idle: dict[Any, collections.deque[Connection]] = {}
        self._count = 0
        self._swept = time.monotonic()
        self._closed = False

    def get(self, key: Any, make: Callable[[], Connection], deadline: Deadline, fresh: bool = False) -> Connection:
        """A connection that is idle, or else a new one. Raises OSError if it cannot connect."""
        while not fresh:
            with self._lock:
                idle = self._idle.get(key)
                if not idle:
                    break
                connection = idle.pop()
                self._count -= 1
                if not idle:
                    del self._idle[key]
            if time.monotonic() - connection.idle_since < IDLE_TIME and connection.usable():
                connection.reused = True
                connection.expire(deadline)
                return connection
            connection.close()
        connection = make()
        connection.open(deadline)
        return connection

    def put(self, key: Any, connection: Connection) -> None:
        """Keeps a connection whose response was read to its end."""
        now = time.monotonic()
        connection.idle_since = now
        surplus: list[Connection] = []
        with self._lock:
            if self._closed or self._count >= IDLE_ALL:
                surplus.append(connection)
            else:
                idle = self._idle.setdefault(key, collections.deque())
                idle.append(connection)
                self._count += 1
                if len(idle) > IDLE_EACH:
                    surplus.append(idle.popleft())
                    self._count -= 1
            if now - self._swept > 1:
                self._swept = now
                surplus += self._take_old(now - IDLE_TIME)
        for old in surplus:
            old.close()

    def _take_old(self, before: float) -> list[Connection]:
        old = []
        for key, idle in list(self._idle.items()):
            while idle and idle[0].idle_since < before:
                old.append(idle.popleft())
            if not idle:
                del self._idle[key]
        self._count -= len(old)
        return old

    def close(self) -> None:
        """Closes the idle connections; those that are put later are closed at once."""
        with self._lock:
            self._closed = True
            connections = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
            self._count = 0
        for connection in connections:
            connection.close()

    def abandon(self) -> None:
        """Closes the idle connections without the lock, in a child: no other thread lives there."""
        for idle in list(self._idle.values()):
            for connection in list(idle):
                connection.close()
