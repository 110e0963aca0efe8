"""Requests to upstreams with http.client, and the handler for urllib."""

from __future__ import annotations

import contextlib
import errno
import http.client
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from ._aside import Connects
from ._connection import Connection, Deadline, Pool
from .client import DRAIN_MAX, DRAIN_TIME, IDEMPOTENT, RETRIED_STATUSES, Try, shortage

if TYPE_CHECKING:
    from .client import Client


class Response(http.client.HTTPResponse):
    """A response whose request is in flight until it is read to its end, or closed."""

    _attempt: Optional[Try] = None
    _connection: Optional[Connection] = None
    _pool: Optional[Pool] = None
    _key: Any = None
    _lbd: Optional[Try] = None  # for lbd.choice

    def own(self, connection: Connection, pool: Pool, key: Any) -> None:
        self._connection, self._pool, self._key = connection, pool, key
        if self.length == 0:
            self.read()

    def follow(self, attempt: Try) -> None:
        """Finishes attempt with this response."""
        self._attempt = self._lbd = attempt
        self._check()

    def _check(self) -> None:
        if not self.isclosed():
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            if self.will_close or self.length:
                connection.close()
            elif self._pool is not None:
                self._pool.put(self._key, connection)
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.finish()

    def read(self, amt: Optional[int] = None) -> bytes:
        try:
            return super().read(amt)
        except BaseException:
            self.close()
            raise
        finally:
            self._check()

    def read1(self, n: int = -1) -> bytes:
        try:
            return super().read1(n)
        finally:
            self._check()

    def readinto(self, b: Any) -> int:
        try:
            return super().readinto(b)
        finally:
            self._check()

    def readline(self, limit: int = -1) -> bytes:  # type: ignore[override]
        try:
            return super().readline(limit)
        finally:
            self._check()

    def discard(self) -> None:
        """Closes the response; before, reads the rest of it if it is short and there, to keep the connection."""
        if self._connection is not None and self.length is not None and self.length <= DRAIN_MAX:
            self._connection.expire(Deadline(DRAIN_TIME))
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.read()
        self.close()

    def close(self) -> None:
        connection = self._connection
        if connection is not None and not self.isclosed():  # given up before its end
            self._connection = None
            connection.close()
        super().close()
        self._check()


class Upstreams:
    """The connections of one client to upstreams."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pool = Pool()
        self._context: Optional[ssl.SSLContext] = None

    def after_fork(self) -> None:
        self._pool.abandon()
        self._pool = Pool()

    def close(self) -> None:
        self._pool.close()

    def request(
        self,
        method: str,
        url: str,
        body: Any,
        headers: Optional[Mapping[str, str]],
        deadline: Deadline,
        idempotent: Optional[bool],
    ) -> Response:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url: it is not http://HOST/PATH or https://HOST/PATH")  # it may have a password
        if isinstance(body, str):
            body = body.encode()
        fields = dict(headers or {})
        names = {name.lower() for name in fields}
        if "host" not in names:
            fields["Host"] = parts.netloc.rpartition("@")[2]
        path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        repeatable = body is None or isinstance(body, (bytes, bytearray, memoryview))
        if idempotent is None:
            idempotent = method.upper() in IDEMPOTENT or "idempotency-key" in names
        send = _Request(self, method, url, path, body, fields, parts.scheme, parts.hostname, idempotent and repeatable)

        place = self._client.place_of(parts.hostname)
        if place is None:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            response = send.to(f"{parts.hostname}:{port}", deadline, self._client.connect_timeout)
            response.url = url  # type: ignore[attr-defined]
            return response
        call = self._client.call(place, deadline, send.repeatable, parts.path, fields.items, send)
        attempt = call.first()
        while True:
            try:
                response = send.to(attempt.address, deadline, attempt.connect_timeout, call.cluster.connects)
            except (OSError, http.client.BadStatusLine) as error:
                if shortage(error):
                    attempt.finish(error)
                    raise
                timed_out = isinstance(error, TimeoutError) and error.errno != errno.ETIMEDOUT
                if send.connecting:
                    attempt.unsent(error, timed_out or isinstance(error.__cause__, TimeoutError))
                else:
                    attempt.failed(error)
                other = None if timed_out else call.retry()
                if other is None:
                    raise
            except BaseException as error:
                # The other errors of http.client are about the response, apart from that of a bad URL.
                if isinstance(error, http.client.HTTPException) and not isinstance(error, http.client.InvalidURL):
                    attempt.failed(error)
                attempt.finish(error)
                raise
            else:
                attempt.answered(response.status)
                response.follow(attempt)
                other = call.retry() if response.status in RETRIED_STATUSES else None
                if other is None:
                    response.url = url  # type: ignore[attr-defined]
                    return response
                response.discard()
            attempt = other

    def context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context


class _Request:
    """What is the same in all tries of a request."""

    __slots__ = (
        "_body", "_headers", "_host", "_owner", "_path", "_tls", "connecting", "method", "repeatable", "url",
    )  # fmt: skip

    def __init__(
        self,
        owner: Upstreams,
        method: str,
        url: str,
        path: str,
        body: Any,
        headers: dict[str, str],
        scheme: str,
        host: str,
        repeatable: bool,
    ) -> None:
        self._owner = owner
        self.method = method
        self.url = url
        self._path = path
        self._body = body
        self._headers = headers
        self._tls = scheme == "https"
        self._host = host
        self.repeatable = repeatable
        self.connecting = True  # there is no connection yet: nothing was sent

    def to(
        self, address: str, deadline: Deadline, connect_timeout: float, connects: Optional[Connects] = None
    ) -> Response:
        """Sends the request to an address; returns when the status and the headers of the response are there."""
        key = (address, self._host if self._tls else "")
        pool, context = self._owner._pool, self._owner.context() if self._tls else None
        fresh = False
        while True:
            self.connecting, began = True, time.monotonic()
            connection = pool.get(key, lambda: self._connection(address, context, connect_timeout), deadline, fresh)
            self.connecting = False
            if connects is not None and not connection.reused:
                connects.add(time.monotonic() - began)
            try:
                connection.request(self.method, self._path, self._body, self._headers)
                response = connection.getresponse()
                response.own(connection, pool, key)  # type: ignore[attr-defined]
                return response  # type: ignore[return-value]
            except (ConnectionError, http.client.BadStatusLine):
                sent = connection.sock is None or connection.sock.sent
                connection.close()
                # An upstream closes idle connections at times, then the request never reached it.
                if connection.reused and (self.repeatable or not sent) and not fresh:
                    fresh = True
                    continue
                raise
            except BaseException:
                connection.close()
                raise

    def _connection(self, address: str, context: Optional[ssl.SSLContext], connect_timeout: float) -> Connection:
        connection = Connection(address, context, self._host, connect_timeout)
        connection.response_class = Response  # type: ignore[assignment]
        return connection


class Handler(urllib.request.HTTPRedirectHandler):
    """Sends requests of urllib to hosts CLUSTER.lbd through a client. Others go to the next handler.

    It follows redirects within a cluster, but not from or to one: urllib would send the headers of the request along.
    """

    handler_order = 50  # before that of proxies

    def __init__(self, client: Client) -> None:
        self._client = client

    def http_open(self, request: urllib.request.Request) -> Any:
        if self._client.cluster_of(urllib.parse.urlsplit(request.full_url).hostname) is None:
            return None
        headers = {**request.headers, **request.unredirected_hdrs}
        headers.pop("Transfer-encoding", None)  # of urllib, for a body without a length: http.client adds it, too
        timeout = request.timeout if isinstance(request.timeout, (int, float)) else "default"
        response = self._client.request(request.get_method(), request.full_url, request.data, headers, timeout=timeout)
        response.msg = response.reason  # type: ignore[assignment] # as urllib's own handler does
        return response

    https_open = http_open

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        cluster = self._client.cluster_of(old.hostname)
        if cluster != self._client.cluster_of(new.hostname) or (
            cluster is not None and old.scheme == "https" != new.scheme
        ):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener(client: Client, *handlers: Any) -> urllib.request.OpenerDirector:
    """An opener of urllib with client. urllib.request.install_opener makes it that of urlopen."""
    return urllib.request.build_opener(Handler(client), *handlers)
