"""An adapter for requests.

session = requests.Session()
lbd.requests.mount(session, client)
session.get("http://orders.lbd/items/7")
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Optional

import requests
import urllib3
from requests.adapters import HTTPAdapter

from . import errors
from ._aside import Connects
from ._connection import Deadline
from .client import DRAIN_MAX, DRAIN_TIME, IDEMPOTENT, RETRIED_STATUSES, Client, Try, shortage

POOL_IDLE = 60.0
"""Seconds without a request after which the connections to an endpoint are closed."""

DEFAULTS = {"pool_connections": 1000, "pool_maxsize": 100}
"""Endpoints, and idle connections to each of them. With the defaults of HTTPAdapter, 10 and 10, requests to more
endpoints or of more threads would make connections all the time."""


class Dropped(errors.Dropped, requests.RequestException):
    """lbd.Dropped, for callers that expect a requests.RequestException."""


class CircuitBroken(errors.CircuitBroken, requests.RequestException):
    """lbd.CircuitBroken, for callers that expect a requests.RequestException."""


class Unavailable(errors.Unavailable, requests.ConnectionError):
    """lbd.Unavailable, for callers that expect a requests.ConnectionError."""


class UnknownCluster(errors.UnknownCluster, requests.RequestException):
    """lbd.UnknownCluster, for callers that expect a requests.RequestException."""


class PermissionDenied(errors.PermissionDenied, requests.RequestException):
    """lbd.PermissionDenied, for callers that expect a requests.RequestException."""


_KINDS = (Dropped, CircuitBroken, Unavailable, UnknownCluster, PermissionDenied)


_trying = threading.local()
"""What this thread has to know of its try: connecting is True while there is no connection."""


class _Connection(urllib3.connection.HTTPConnection):
    def connect(self) -> None:
        _trying.connecting, began = True, time.monotonic()
        super().connect()
        _trying.connecting = False
        connects: Optional[Connects] = getattr(_trying, "connects", None)
        if connects is not None:
            connects.add(time.monotonic() - began)


class _TLSConnection(_Connection, urllib3.connection.HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class Adapter(HTTPAdapter):
    """Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and the others as HTTPAdapter does.

    The deadline of a request is the read timeout that requests passes, else the timeout of the client. Arguments after
    client are those of HTTPAdapter; pool_connections is 1000 and pool_maxsize 100 by default.
    """

    def __init__(self, client: Client, **arguments: Any) -> None:
        self._client = client
        self._epoch = client.epoch()
        self._of_parents: list[Any] = []
        self._used: dict[str, float] = {}
        self._swept = time.monotonic()
        super().__init__(**(DEFAULTS | arguments))

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        attributes: tuple[dict, dict] = super().build_connection_pool_key_attributes(request, verify, cert)  # type: ignore[assignment]
        name = getattr(request, "_lbd_host", None)
        if name and attributes[0]["scheme"] == "https":
            attributes[1].update(server_hostname=name, assert_hostname=name)
        return attributes

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        self._check_process()
        parts = urllib.parse.urlsplit(request.url or "")
        place = self._client.place_of(parts.hostname)
        if place is None:
            _trying.connects = None
            return super().send(request, stream, timeout, verify, cert, proxies)
        connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        if not isinstance(read, (int, float, type(None))):  # a urllib3.Timeout
            connect, read = read.connect_timeout, read.read_timeout
        deadline = Deadline(self._client.timeout if read is None else read)
        method = (request.method or "GET").upper()
        idempotent = method in IDEMPOTENT or "Idempotency-Key" in request.headers
        repeatable = idempotent and (request.body is None or isinstance(request.body, (bytes, str)))
        try:
            call = self._client.call(place, deadline, repeatable, parts.path, request.headers.items, request)
            attempt = call.first()
        except errors.LbdError as error:
            raise _of(error, request) from error
        except TimeoutError as error:
            raise requests.Timeout(error, request=request) from error
        while True:
            self._keep(attempt.address)
            try:
                left = deadline.left()
                left = left if left is None else max(left, 0.001)  # urllib3 has no timeout of 0
                limits: Any = (_least(attempt.connect_timeout, _least(connect, left)), left)
                sent = _copy(request, parts, attempt.address)
                _trying.connecting, _trying.connects = False, call.cluster.connects
                response = super().send(sent, stream, limits, verify, cert, {})
            except (requests.ConnectionError, requests.Timeout) as error:
                if shortage(error):
                    attempt.finish(error)
                    raise
                timed_out = isinstance(error, requests.Timeout)
                late = timed_out and (deadline.passed() or not _trying.connecting)
                if _trying.connecting:
                    attempt.unsent(error, timed_out)
                else:
                    attempt.failed(error)
                other = None if late else call.retry()
                if other is None:
                    error.request = request
                    raise
            except BaseException as error:
                attempt.finish(error)
                raise
            else:
                attempt.answered(response.status_code)
                _finish_with(response.raw, attempt)
                other = call.retry() if response.status_code in RETRIED_STATUSES else None
                if other is None:
                    response.url, response.request = request.url or "", request
                    response._lbd = attempt  # type: ignore[attr-defined] # for lbd.choice
                    return response
                _discard(response)
            attempt = other

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def _check_process(self) -> None:
        """A child of fork does not use the connections of its parent."""
        if self._epoch != self._client.epoch():
            # Kept: another thread of the parent may have held a lock that closes them.
            self._of_parents.append((self.poolmanager, self.proxy_manager))
            self.proxy_manager = {}
            self.init_poolmanager(self._pool_connections, self._pool_maxsize, block=self._pool_block)  # type: ignore[attr-defined]
            self._epoch = self._client.epoch()

    def _keep(self, address: str) -> None:
        """Notes that address is in use, and closes the connections to those that are not any more."""
        now = time.monotonic()
        self._used[address] = now
        if now - self._swept < POOL_IDLE / 4:
            return
        self._swept = now
        unused = {old for old, used in list(self._used.items()) if now - used > POOL_IDLE}
        for old in unused:
            self._used.pop(old, None)
        pools = self.poolmanager.pools
        for key in list(pools.keys()) if unused else ():
            if f"{_bracketed(key.key_host)}:{key.key_port}" in unused:
                with contextlib.suppress(KeyError):  # another thread was faster
                    del pools[key]


def mount(session: requests.Session, client: Client, **arguments: Any) -> requests.Session:
    """Mounts an Adapter for http and https on a session, and returns the session."""
    adapter = Adapter(client, **arguments)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def _bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


def _discard(response: requests.Response) -> None:
    """Closes a response; before, reads the rest of it if it is short and there, to keep the connection."""
    length = response.headers.get("Content-Length", "")
    sock = getattr(getattr(response.raw, "connection", None), "sock", None)
    if sock is not None and length.isdecimal() and int(length) <= DRAIN_MAX:
        end = time.monotonic() + DRAIN_TIME
        with contextlib.suppress(OSError, urllib3.exceptions.HTTPError):
            sock.settimeout(DRAIN_TIME)
            while response.raw.read1(DRAIN_MAX, decode_content=False) and time.monotonic() < end:
                pass
    response.close()


def _least(first: Optional[float], second: Optional[float]) -> Optional[float]:
    return second if first is None else first if second is None else min(first, second)


def _copy(request: requests.PreparedRequest, parts: urllib.parse.SplitResult, address: str) -> Any:
    copy = request.copy()
    copy.url = urllib.parse.urlunsplit((parts.scheme, address, parts.path, parts.query, ""))
    if "Host" not in copy.headers:
        copy.headers["Host"] = parts.netloc.rpartition("@")[2]
    copy._lbd_host = parts.hostname  # type: ignore[attr-defined]
    return copy


def _finish_with(raw: Any, attempt: Try) -> None:
    """Finishes an attempt when urllib3 gives the connection of its response back, or closes it."""
    original = getattr(raw, "_original_response", None)
    if original is None or original.isclosed():
        attempt.finish()
        return

    def wrap(method: Callable[[], None]) -> Callable[[], None]:
        def wrapped() -> None:
            try:
                method()
            finally:
                attempt.finish()

        return wrapped

    raw.release_conn = wrap(raw.release_conn)
    raw.close = wrap(raw.close)


def _of(error: errors.LbdError, request: requests.PreparedRequest) -> errors.LbdError:
    for kind in _KINDS:
        if isinstance(error, kind.__mro__[1]):
            like = kind(*error.args)
            like.__dict__.update(error.__dict__)
            like.request = request  # type: ignore[attr-defined]
            return like
    return error
