"""An adapter for requests.

session = requests.Session()
lbd.requests.mount(session, client)
session.get("http://orders.lbd/items/7")
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any, Optional

import requests
from requests.adapters import HTTPAdapter

from . import errors
from ._connection import Deadline
from .client import IDEMPOTENT, RETRIED_STATUSES, Attempt, Client, shortage


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


class Adapter(HTTPAdapter):
    """Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and the others as HTTPAdapter does.

    The deadline of a request is the read timeout that requests passes, else the timeout of the client. Arguments after
    client are those of HTTPAdapter.
    """

    def __init__(self, client: Client, **arguments: Any) -> None:
        self._client = client
        super().__init__(**arguments)

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
        parts = urllib.parse.urlsplit(request.url or "")
        cluster = self._client.cluster_of(parts.hostname)
        if cluster is None:
            return super().send(request, stream, timeout, verify, cert, proxies)
        connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        if not isinstance(read, (int, float, type(None))):  # a urllib3.Timeout
            connect, read = read.connect_timeout, read.read_timeout
        deadline = Deadline(self._client.timeout if read is None else read)
        method = (request.method or "GET").upper()
        idempotent = method in IDEMPOTENT or "Idempotency-Key" in request.headers
        repeatable = idempotent and (request.body is None or isinstance(request.body, (bytes, str)))
        try:
            call = self._client.call(cluster, deadline, repeatable)
            attempt = call.first()
        except errors.LbdError as error:
            raise _of(error, request) from error
        while True:
            try:
                left = deadline.left()
                limits: Any = (_least(connect, left), left)
                sent = _copy(request, parts, attempt.address)
                response = super().send(sent, stream, limits, verify, cert, {})
            except requests.ConnectionError as error:
                if shortage(error):
                    attempt.finish()
                    raise
                attempt.failed()
                timed_out = isinstance(error, requests.Timeout) and deadline.passed()
                other = None if timed_out else call.retry()
                if other is None:
                    error.request = request
                    raise
            except requests.Timeout:
                attempt.failed()
                raise
            except BaseException:
                attempt.finish()
                raise
            else:
                attempt.answered(response.status_code)
                other = call.retry() if response.status_code in RETRIED_STATUSES else None
                _finish_with(response.raw, attempt)
                if other is None:
                    response.url, response.request = request.url or "", request
                    return response
                response.close()
            attempt = other


def mount(session: requests.Session, client: Client, **arguments: Any) -> requests.Session:
    """Mounts an Adapter for http and https on a session, and returns the session."""
    adapter = Adapter(client, **arguments)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def _least(first: Optional[float], second: Optional[float]) -> Optional[float]:
    return second if first is None else first if second is None else min(first, second)


def _copy(request: requests.PreparedRequest, parts: urllib.parse.SplitResult, address: str) -> Any:
    copy = request.copy()
    copy.url = urllib.parse.urlunsplit((parts.scheme, address, parts.path, parts.query, ""))
    if "Host" not in copy.headers:
        copy.headers["Host"] = parts.netloc.rpartition("@")[2]
    copy._lbd_host = parts.hostname  # type: ignore[attr-defined]
    return copy


def _finish_with(raw: Any, attempt: Attempt) -> None:
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
