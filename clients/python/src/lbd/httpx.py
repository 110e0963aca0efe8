"""Transports for httpx.

http = httpx.Client(mounts={"all://*.lbd": lbd.httpx.Transport(client)})
http = httpx.AsyncClient(mounts={"all://*.lbd": lbd.httpx.AsyncTransport(client)})
http.get("http://orders.lbd/items/7")
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, Optional, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx

from . import errors
from ._connection import Deadline
from .asking import Place
from .client import DRAIN_MAX, DRAIN_TIME, IDEMPOTENT, RETRIED_STATUSES, Call, Client, Try, shortage


class Dropped(errors.Dropped, httpx.TransportError):
    """lbd.Dropped, for callers that expect an httpx.TransportError."""


class CircuitBroken(errors.CircuitBroken, httpx.TransportError):
    """lbd.CircuitBroken, for callers that expect an httpx.TransportError."""


class Unavailable(errors.Unavailable, httpx.TransportError):
    """lbd.Unavailable, for callers that expect an httpx.TransportError."""


class UnknownCluster(errors.UnknownCluster, httpx.TransportError):
    """lbd.UnknownCluster, for callers that expect an httpx.TransportError."""


class PermissionDenied(errors.PermissionDenied, httpx.TransportError):
    """lbd.PermissionDenied, for callers that expect an httpx.TransportError."""


_KINDS = (Dropped, CircuitBroken, Unavailable, UnknownCluster, PermissionDenied)
_FAILED = (httpx.NetworkError, httpx.RemoteProtocolError)

_UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=5.0)
"""For threads. At a limit, httpcore 1.0.9 closes connections that it counts as idle, while another thread that it gave
them to begins to use them: that request fails, or waits for its timeout. Each thread has one connection in use, which
limits them."""


CALLS_MAX = 100
"""Threads of an event loop that wait for lbd, at most."""

_calls: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("lbd calls")

_T = TypeVar("_T", httpx.BaseTransport, httpx.AsyncBaseTransport)


@functools.cache
def _context() -> ssl.SSLContext:
    """What transports trust by default. It is read once: that takes httpx 50 ms."""
    return httpx.create_ssl_context()


class _Inner(Generic[_T]):
    """The transports that have the connections: one for each host with TLS, whose certificates were checked for it."""

    def __init__(self, client: Client, make: Callable[[], _T]) -> None:
        if not callable(make):
            raise TypeError(f"make: {make!r} is not a function that returns a transport")
        self._client = client
        self._make: Callable[[], _T] = make
        self._transports: dict[str, _T] = {}
        self._epoch = client.epoch()

    def of(self, url: Optional[httpx.URL] = None) -> _T:
        """The transport for a cluster, or without one for other hosts."""
        epoch = self._client.epoch()
        if epoch != self._epoch:  # a child of fork does not use the connections of its parent
            self._epoch, self._transports = epoch, {}
        host = url.host if url is not None and url.scheme == "https" else ""
        transport = self._transports.get(host)
        return transport or self._transports.setdefault(host, self._make())

    def all(self) -> list[_T]:
        return list(self._transports.values())


class _Request:
    """What the transports have in common: one request of httpx to a cluster."""

    def __init__(self, client: Client, place: Place, request: httpx.Request) -> None:
        timeouts = dict(request.extensions.get("timeout") or {})
        read = timeouts.get("read")
        idempotent = (
            request.method.upper() in IDEMPOTENT
            or "idempotency-key" in request.headers
            or request.extensions.get("idempotent") is True
        )
        repeatable = idempotent and isinstance(request.stream, httpx.ByteStream)
        self.deadline = Deadline(client.timeout if read is None else read)
        path = "" if isinstance(place, str) else request.url.raw_path.partition(b"?")[0].decode("ascii")
        headers = request.headers.multi_items
        self.call: Call = client.call(place, self.deadline, repeatable, path, headers, request)
        self._request = request
        self._timeouts = timeouts

    def to(self, attempt: Try, trace: Callable[[_Request], Any]) -> httpx.Request:
        """The request for an attempt, with the time that is left. trace returns a function that traces it."""
        request = self._request
        host, _, port = attempt.address.rpartition(":")
        left = self.deadline.left()
        left = left if left is None else max(left, 0.001)  # with 0, a socket does not wait, and reports EINPROGRESS
        timeouts = {
            name: left if value is None else value if left is None else min(value, left)
            for name, value in {"connect": None, "read": None, "write": None, "pool": None, **self._timeouts}.items()
        }
        connect = timeouts["connect"]
        timeouts["connect"] = attempt.connect_timeout if connect is None else min(connect, attempt.connect_timeout)
        traced = {"trace": trace(self)} if self.call.cut or self.call.cluster.connects.learns() else {}
        return httpx.Request(
            request.method,
            request.url.copy_with(host=host.strip("[]"), port=int(port)),
            headers=request.headers,
            stream=request.stream,
            extensions={
                **traced,
                **request.extensions,
                "timeout": timeouts,
                "sni_hostname": request.url.raw_host.decode("ascii"),
            },
        )

    def trace(self, name: str, _: Any) -> None:
        """Measures the parts of the connect."""
        if name in ("connection.connect_tcp.started", "connection.start_tls.started"):
            self._began = time.monotonic()
        elif name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self.call.cluster.connects.add(time.monotonic() - self._began)

    async def trace_async(self, name: str, info: Any) -> None:
        self.trace(name, info)

    def failed(self, attempt: Try, error: BaseException) -> bool:
        """Ends an attempt that raised, and says whether it may be retried."""
        if shortage(error) or isinstance(error, httpx.PoolTimeout):
            attempt.finish(error)
            return False
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            attempt.unsent(error, isinstance(error, httpx.ConnectTimeout))
            return not self.deadline.passed()
        if isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError, httpx.TimeoutException)):
            attempt.failed(error)
        attempt.finish(error)
        return isinstance(error, _FAILED) and not self.deadline.passed()


class Transport(httpx.BaseTransport):
    """Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and the others as httpx does.

    The deadline of a request is its read timeout, else the timeout of the client. The extension idempotent=True, or a
    header Idempotency-Key, permits retries of a POST or PATCH. make returns a transport of httpx that has the
    connections; it is called for each host with https, and again in a child of fork.
    """

    def __init__(self, client: Client, make: Optional[Callable[[], httpx.BaseTransport]] = None) -> None:
        self._client = client
        self._inner = _Inner(client, make or (lambda: httpx.HTTPTransport(verify=_context(), limits=_UNLIMITED)))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        place = self._client.place_of(request.url.host)
        if place is None:
            return self._inner.of().handle_request(request)
        try:
            sent = _Request(self._client, place, request)
            attempt = sent.call.first()
        except errors.LbdError as error:
            raise _of(error, request) from error
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error), request=request) from error
        inner = self._inner.of(request.url)
        while True:
            try:
                tried = sent.to(attempt, lambda sent: sent.trace)
                response = inner.handle_request(tried)
            except BaseException as error:
                other = sent.call.retry() if sent.failed(attempt, error) else None
                if other is None:
                    raise
            else:
                attempt.answered(response.status_code)
                response.extensions["lbd"] = attempt  # for lbd.choice
                response.stream = _Stream(response.stream, attempt)
                other = sent.call.retry() if response.status_code in RETRIED_STATUSES else None
                if other is None:
                    return response
                _discard(response, tried)
            attempt = other

    def close(self) -> None:
        for transport in self._inner.all():
            transport.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """Transport for httpx.AsyncClient, with asyncio or trio. Calls to lbd that wait are made in a thread."""

    def __init__(self, client: Client, make: Optional[Callable[[], httpx.AsyncBaseTransport]] = None) -> None:
        self._client = client
        self._inner = _Inner(client, make or (lambda: httpx.AsyncHTTPTransport(verify=_context())))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        place = self._client.place_of(request.url.host)
        if place is None:
            return await self._inner.of().handle_async_request(request)
        try:
            sent = _Request(self._client, place, request)
            first = await _call(sent.call, sent.call.first)
            assert first is not None
            attempt: Try = first
        except errors.LbdError as error:
            raise _of(error, request) from error
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error), request=request) from error
        inner = self._inner.of(request.url)
        while True:
            try:
                tried = sent.to(attempt, lambda sent: sent.trace_async)
                response = await inner.handle_async_request(tried)
            except BaseException as error:
                other = await _call(sent.call, sent.call.retry) if sent.failed(attempt, error) else None
                if other is None:
                    raise
            else:
                attempt.answered(response.status_code)
                response.extensions["lbd"] = attempt  # for lbd.choice
                response.stream = _AsyncStream(response.stream, attempt)
                if response.status_code not in RETRIED_STATUSES:
                    return response
                other = None
                try:
                    other = await _call(sent.call, sent.call.retry)
                    if other is None:
                        return response
                    if _is_short(response):
                        with anyio.move_on_after(DRAIN_TIME), contextlib.suppress(httpx.TransportError):
                            await response.aread()
                except BaseException:
                    if other is not None:
                        other.finish()
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
                    raise
                await response.aclose()
            attempt = other

    async def aclose(self) -> None:
        for transport in self._inner.all():
            await transport.aclose()


async def _call(call: Call, function: Callable[[], Optional[Try]]) -> Optional[Try]:
    """The result of function, which a thread runs if it may wait for lbd. Raises TimeoutError."""
    if not call.waits():
        return function()
    lock = threading.Lock()
    taken: list[Optional[Try]] = []

    def take() -> None:
        attempt = function()
        with lock:
            taken.append(attempt)
            late = call.given_up
        if late and attempt is not None:
            attempt.finish()

    try:
        limiter = _calls.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(CALLS_MAX)
        _calls.set(limiter)
    # A call ends 1 s after the deadline at the latest, but it may have to wait for a thread.
    left = call.deadline.left()
    try:
        with anyio.fail_after(None if left is None else left + 1.5):
            await anyio.to_thread.run_sync(take, abandon_on_cancel=True, limiter=limiter)
    except BaseException:
        with lock:
            call.given_up = True
        for attempt in taken:
            if attempt is not None:
                attempt.finish()
        raise
    return taken[0]


def _is_short(response: httpx.Response) -> bool:
    length = response.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= DRAIN_MAX


def _discard(response: httpx.Response, request: httpx.Request) -> None:
    """Closes a response; before, reads the rest of it if it is short and there, to keep the connection."""
    if _is_short(response):
        request.extensions["timeout"]["read"] = DRAIN_TIME
        end = time.monotonic() + DRAIN_TIME
        with contextlib.suppress(httpx.TransportError):
            for _ in response.iter_raw():
                if time.monotonic() > end:
                    break
    response.close()


class _Stream(httpx.SyncByteStream):
    def __init__(self, stream: Any, attempt: Try) -> None:
        self._stream = stream
        self._attempt = attempt

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._attempt.finish()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, stream: Any, attempt: Try) -> None:
        self._stream = stream
        self._attempt = attempt

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._attempt.finish()


def _of(error: errors.LbdError, request: httpx.Request) -> errors.LbdError:
    for kind in _KINDS:
        if isinstance(error, kind.__mro__[1]):
            like = kind(*error.args)
            like.__dict__.update(error.__dict__)
            like.request = request  # type: ignore[attr-defined]
            return like
    return error
