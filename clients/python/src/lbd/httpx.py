"""Transports for httpx.

http = httpx.Client(transport=lbd.httpx.Transport(client))
http = httpx.AsyncClient(transport=lbd.httpx.AsyncTransport(client))
http.get("http://orders.lbd/items/7")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Optional

import anyio.to_thread
import httpx

from . import errors
from ._connection import Deadline
from .client import IDEMPOTENT, RETRIED_STATUSES, Attempt, Call, Client, shortage


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
_FAILED = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)

_UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=5.0)
"""For threads. At a limit, httpcore 1.0.9 closes connections that it counts as idle, while another thread that it gave
them to begins to use them: that request fails, or waits for its timeout. Each thread has one connection in use, which
limits them."""


class _Request:
    """What the transports have in common: one request of httpx to a cluster."""

    def __init__(self, client: Client, cluster: str, request: httpx.Request) -> None:
        timeouts = dict(request.extensions.get("timeout") or {})
        read = timeouts.get("read")
        idempotent = (
            request.method.upper() in IDEMPOTENT
            or "idempotency-key" in request.headers
            or request.extensions.get("idempotent") is True
        )
        repeatable = idempotent and isinstance(request.stream, httpx.ByteStream)
        self.deadline = Deadline(client.timeout if read is None else read)
        self.call: Call = client.call(cluster, self.deadline, repeatable)
        self._request = request
        self._timeouts = timeouts

    def to(self, address: str) -> httpx.Request:
        """The request to an address, with the time that is left."""
        request = self._request
        host, _, port = address.rpartition(":")
        left = self.deadline.left()
        timeouts = {
            name: left if value is None else value if left is None else min(value, left)
            for name, value in {"connect": None, "read": None, "write": None, "pool": None, **self._timeouts}.items()
        }
        return httpx.Request(
            request.method,
            request.url.copy_with(host=host.strip("[]"), port=int(port)),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "timeout": timeouts, "sni_hostname": request.url.host},
        )

    def failed(self, attempt: Attempt, error: BaseException) -> bool:
        """Ends an attempt that raised, and says whether it may be retried."""
        if shortage(error) or isinstance(error, httpx.PoolTimeout):
            attempt.finish()
            return False
        if isinstance(error, (httpx.NetworkError, httpx.ProtocolError, httpx.TimeoutException)):
            attempt.failed()
        attempt.finish()
        return isinstance(error, _FAILED) and not self.deadline.passed()


class Transport(httpx.BaseTransport):
    """Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and the others as inner does.

    The deadline of a request is its read timeout, else the timeout of the client. The extension idempotent=True, or a
    header Idempotency-Key, permits retries of a POST or PATCH.
    """

    def __init__(self, client: Client, inner: Optional[httpx.BaseTransport] = None) -> None:
        self._client = client
        self._inner = inner or httpx.HTTPTransport(limits=_UNLIMITED)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        cluster = self._client.cluster_of(request.url.host)
        if cluster is None:
            return self._inner.handle_request(request)
        try:
            sent = _Request(self._client, cluster, request)
            attempt = sent.call.first()
        except errors.LbdError as error:
            raise _of(error, request) from error
        while True:
            try:
                response = self._inner.handle_request(sent.to(attempt.address))
            except BaseException as error:
                other = sent.call.retry() if sent.failed(attempt, error) else None
                if other is None:
                    raise
            else:
                attempt.answered(response.status_code)
                other = sent.call.retry() if response.status_code in RETRIED_STATUSES else None
                response.stream = _Stream(response.stream, attempt)
                if other is None:
                    return response
                response.close()
            attempt = other

    def close(self) -> None:
        self._inner.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """Transport for httpx.AsyncClient. Calls to lbd that wait are made in a thread."""

    def __init__(self, client: Client, inner: Optional[httpx.AsyncBaseTransport] = None) -> None:
        self._client = client
        self._inner = inner or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        cluster = self._client.cluster_of(request.url.host)
        if cluster is None:
            return await self._inner.handle_async_request(request)
        try:
            sent = _Request(self._client, cluster, request)
            first = await _call(sent.call, sent.call.first)
            assert first is not None
            attempt: Attempt = first
        except errors.LbdError as error:
            raise _of(error, request) from error
        while True:
            try:
                response = await self._inner.handle_async_request(sent.to(attempt.address))
            except BaseException as error:
                other = await _call(sent.call, sent.call.retry) if sent.failed(attempt, error) else None
                if other is None:
                    raise
            else:
                attempt.answered(response.status_code)
                response.stream = _AsyncStream(response.stream, attempt)
                if response.status_code not in RETRIED_STATUSES:
                    return response
                other = await _call(sent.call, sent.call.retry)
                if other is None:
                    return response
                await response.aclose()
            attempt = other

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _call(call: Call, function: Callable[[], Optional[Attempt]]) -> Optional[Attempt]:
    """The result of function, which a thread runs if it may wait for lbd."""
    if not call.waits():
        return function()
    taken: list[Optional[Attempt]] = []
    try:
        await anyio.to_thread.run_sync(lambda: taken.append(function()), abandon_on_cancel=False)
    except BaseException:
        for attempt in taken:  # the task was cancelled while the thread took it
            if attempt is not None:
                attempt.finish()
        raise
    return taken[0]


class _Stream(httpx.SyncByteStream):
    def __init__(self, stream: Any, attempt: Attempt) -> None:
        self._stream = stream
        self._attempt = attempt

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._attempt.finish()

    def __del__(self) -> None:
        self._attempt.finish()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, stream: Any, attempt: Attempt) -> None:
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

    def __del__(self) -> None:
        self._attempt.finish()


def _of(error: errors.LbdError, request: httpx.Request) -> errors.LbdError:
    for kind in _KINDS:
        if isinstance(error, kind.__mro__[1]):
            like = kind(*error.args)
            like.__dict__.update(error.__dict__)
            like.request = request  # type: ignore[attr-defined]
            return like
    return error
