"""The client: picks addresses for requests, and tells lbd how they ended."""

from __future__ import annotations

import atexit
import errno
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, get_args

from . import errors
from ._api import Api, Unreachable, default_address, duration
from ._aside import HURRIED
from ._batch import Refusal, is_address
from ._cluster import OTHER_PAUSE, OTHER_TIME, TRIED_MAX, Cluster
from ._connection import Deadline
from ._sender import Lease, Sender

if TYPE_CHECKING:
    from .upstream import Response

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
RETRIED_STATUSES = frozenset({502, 503, 504})
WAIT_MAX = 5.0
CLUSTERS_MAX = 1000
DRAIN_MAX = 16 << 10
"""Bytes that are read of a response that is retried, at most: then its connection can be used again."""
DRAIN_TIME = 0.05
"""Seconds for that, at most."""
LEASE_GRACE = 5.0
LEASE_MAX = 600.0  # lbd's default of --max-ttl

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})

Mode = Literal["batch", "pick", "lease"]
Hosts = Union[Mapping[str, str], Callable[[str], Optional[str]]]


class Client:
    """Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. Safe for threads and for fork.

    lbd         address of lbd: unix:PATH, http://HOST:PORT or https://HOST:PORT. Default: environment LBD, else the
                first of unix:/run/lbd.sock and unix:/run/lbd/lbd.sock that is a socket, else http://localhost:8080
    mode        "batch"; "pick" for processes that live for one request; "lease" for exact circuit breaking
    token       token for lbd. Default: environment LBD_TOKEN
    token_file  file with the token, read again after a 401. Default: environment LBD_TOKEN_FILE
    ca          PEM file of the certificates that may sign lbd's. Default: environment LBD_CA, else the system's
    owner       name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID
    hosts       clusters of other hosts: a mapping, or a function that returns None for a host that is not one
    fallback    HOST:PORT for requests while lbd is unreachable and the last batch is too old
    timeout     default deadline of a request, in seconds; None for none
    connect_timeout  seconds after which an endpoint counts as not reachable, if the request has more time. While there
                are other endpoints, a connect has 3 times what is usual, at least 0.25 s
    stale_for   seconds for which the last batch is used while lbd is unreachable
    max_age     seconds after which a batch is replaced in any case
    retries     retries of a request, at most
    max_tokens  size of the budget of retries of a cluster (gRFC A6)
    ttl         seconds of a lease of a request without a deadline
    report_interval  seconds between two reports of how requests ended

    Raises ValueError for a setting that is not valid.
    """

    def __init__(
        self,
        lbd: Optional[str] = None,
        *,
        mode: Mode = "batch",
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca: Optional[str] = None,
        owner: Optional[str] = None,
        hosts: Optional[Hosts] = None,
        fallback: Optional[str] = None,
        timeout: Optional[float] = 30.0,
        connect_timeout: float = 5.0,
        stale_for: float = 60.0,
        max_age: float = 10.0,
        retries: int = 2,
        max_tokens: float = 100,
        ttl: float = 30.0,
        report_interval: float = 5.0,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode: {mode!r} is not batch, pick or lease")
        if fallback is not None and not is_address(fallback):
            raise ValueError(f"fallback: {fallback!r} is not HOST:PORT")
        above_0 = {"connect_timeout": connect_timeout, "max_age": max_age, "ttl": ttl}
        for name, value in (above_0 | {"report_interval": report_interval}).items():
            if not value > 0:
                raise ValueError(f"{name}: {value!r} is not above 0")
        for name, value in {"stale_for": stale_for, "retries": retries, "max_tokens": max_tokens}.items():
            if not value >= 0:
                raise ValueError(f"{name}: {value!r} is not 0 or more")
        environ = os.environ.get
        if not token and not token_file:
            token, token_file = environ("LBD_TOKEN"), environ("LBD_TOKEN_FILE")
        self.mode = mode
        self.timeout = timeout
        self.connect_timeout = connect_timeout
        self.retries = retries
        self.ttl = ttl
        self.fallback = fallback
        self._epoch, self._pid = 0, os.getpid()
        self._owner = owner or environ("LBD_OWNER")
        self._hosts = hosts if hosts is None or callable(hosts) else {k.lower(): v for k, v in hosts.items()}
        self._settings = {"max_age": max_age, "stale_for": stale_for, "max_tokens": max_tokens}
        self._api = Api(
            lbd or environ("LBD") or default_address(),
            token or "",
            token_file or "",
            ca or environ("LBD_CA") or "",
        )
        self._clusters: dict[str, Cluster] = {}
        self._lock = threading.RLock()  # a handler of a signal may call close
        self._closed = False
        self._sender = Sender(
            self._api, lambda: list(self._clusters.values()), self._process(), report_interval, mode == "batch"
        )
        self._upstreams: Any = None
        _clients.add(self)

    def cluster_of(self, host: Optional[str]) -> Optional[str]:
        """The cluster that a host names; None if requests to the host are not for lbd."""
        if not host:
            return None
        host = host.lower()
        if self._hosts is not None:
            name = self._hosts(host) if callable(self._hosts) else self._hosts.get(host)
            if name:
                return name
        return host[: -len(".lbd")] if host.endswith(".lbd") and len(host) > len(".lbd") else None

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        *,
        timeout: Union[float, None, str] = "default",
        idempotent: Optional[bool] = None,
    ) -> Response:
        """Sends a request, and returns the http.client.HTTPResponse: read it to its end, or close it.

        url is http://CLUSTER.lbd/PATH, with https for upstreams with TLS. body is bytes or str, or else a file or an
        iterable of bytes, which is not sent again. idempotent permits retries of a POST or PATCH; so does a header
        Idempotency-Key. Raises an LbdError without an endpoint, TimeoutError at the deadline, and otherwise OSError or
        http.client.HTTPException, as http.client does.
        """
        if self._upstreams is None:
            from .upstream import Upstreams

            self._upstreams = Upstreams(self)
        limit = self.timeout if isinstance(timeout, str) else timeout
        return self._upstreams.request(method, url, body, headers, Deadline(limit), idempotent)

    def call(self, cluster: str, deadline: Deadline, repeatable: bool) -> Call:
        """A request to a cluster, for an adapter of an HTTP library. repeatable permits retries."""
        if self._closed:
            raise errors.Unavailable(f"cluster {cluster}: the client is closed", cluster=cluster)
        self.epoch()
        known = self._clusters.get(cluster)
        return Call(self, known or self._add(cluster), deadline, repeatable)

    def _add(self, name: str) -> Cluster:
        with self._lock:
            known = self._clusters.get(name)
            if known is None:
                if len(self._clusters) >= CLUSTERS_MAX:
                    for other in [other for other in self._clusters.values() if other.idle()]:
                        del self._clusters[other.name]
                if len(self._clusters) >= CLUSTERS_MAX:
                    raise errors.Unavailable(f"cluster {name}: the client has {CLUSTERS_MAX} clusters", cluster=name)
                known = self._clusters[name] = Cluster(name, self._api, **self._settings)
            return known

    def owner(self) -> str:
        return self._owner or self._process()

    @staticmethod
    def _process() -> str:
        return f"{socket.gethostname()[:100]}/{os.getpid()}"

    def close(self, timeout: float = 1.0) -> None:
        """Sends the last report, ends the leases, and stops the threads, for at most timeout seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _clients.discard(self)
        for cluster in list(self._clusters.values()):
            cluster.stop()
        self._sender.close(timeout)
        self._api.close()
        if self._upstreams is not None:
            self._upstreams.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def epoch(self) -> int:
        """The number of forks before this process. A server that forks in C, as uWSGI, does not call _after_fork."""
        if self._pid != os.getpid():
            with _forked:
                if self._pid != os.getpid():
                    self._after_fork()
        return self._epoch

    def _after_fork(self) -> None:
        self._epoch += 1
        self._lock = threading.RLock()
        self._api.after_fork()
        for cluster in list(self._clusters.values()):
            cluster.after_fork()
        self._sender.after_fork(self._process())
        if self._upstreams is not None:
            self._upstreams.after_fork()
        self._pid = os.getpid()


class Attempt:
    """One try of a request, at one address. Adapters call answered, failed or unsent, then finish."""

    __slots__ = ("_begin", "_call", "_counted", "_epoch", "_lease", "_outcome", "address", "connect_timeout")

    def __init__(self, call: Call, address: str, lease: Optional[Lease], counted: bool, hurries: bool) -> None:
        self.address = address
        self.connect_timeout = call.client.connect_timeout
        if hurries:
            self.connect_timeout = min(self.connect_timeout, call.cluster.connects.limit)
        self._call = call
        self._lease = lease
        self._outcome = ""
        self._epoch = call.client.epoch()
        self._counted = counted
        self._begin = call.cluster.counts.begin(address) if counted else 0.0

    def answered(self, status: int) -> None:
        """The status and the headers of the response are there; the request is in flight until finish."""
        self._ended("error" if status >= 500 else "success")
        if status not in RETRIED_STATUSES:
            self._call.cluster.budget.succeeded()
        self._call.cluster.asides.answered(self.address)

    def failed(self) -> None:
        """The connection failed after it was made, or the deadline passed."""
        self._fails("error")

    def unsent(self, timed_out: bool) -> None:
        """There was no connection. timed_out says whether it took longer than connect_timeout."""
        if self._call is not None and timed_out and self.connect_timeout < self._call.client.connect_timeout:
            self._call.cut = True
        self._fails("unreachable")

    def _fails(self, outcome: str) -> None:
        call = self._call
        if call is not None and not self._outcome and self._epoch == call.client.epoch():
            self._ended(outcome)
            call.failed(self.address, outcome == "unreachable")
        self.finish()

    def finish(self) -> None:
        """The request is no longer in flight. Without an outcome, its caller has given it up."""
        call, self._call = self._call, None  # type: ignore[assignment]
        if call is None or self._epoch != call.client.epoch():
            return
        if not self._outcome:
            self._ended_of(call, "cancelled")
        if self._counted:
            call.cluster.counts.end(self.address)
        if self._lease is not None:
            call.client._sender.end(self._lease)

    def __del__(self) -> None:
        """Ends a request that was given up in any way: its task was cancelled, or nobody read the response."""
        if getattr(self, "_call", None) is not None:
            self.finish()

    def _ended(self, outcome: str) -> None:
        if self._call is not None and not self._outcome:
            self._ended_of(self._call, outcome)

    def _ended_of(self, call: Call, outcome: str) -> None:
        self._outcome = outcome
        if self._lease is not None:
            self._lease.outcome = outcome
        if self._counted and outcome != "unreachable" and self._epoch == call.client.epoch():
            call.cluster.counts.answered(self.address, outcome, self._begin)


class Call:
    """One request to a cluster, with all of its tries."""

    __slots__ = (
        "_again", "_epoch", "_fallback", "_lease", "_moves", "_repeatable", "_tried", "_unsent",
        "client", "cluster", "cut", "deadline", "given_up",
    )  # fmt: skip

    def __init__(self, client: Client, cluster: Cluster, deadline: Deadline, repeatable: bool) -> None:
        self.client = client
        self.cluster = cluster
        self.deadline = deadline
        self._repeatable = repeatable
        self._tried: list[str] = []
        self._moves = 0  # tries that were not sent
        self._unsent = False  # the last try was not
        self._fallback = False  # its address is not from lbd
        self._again = False  # its address is one that was tried
        self.cut = False  # a try was not sent for want of time to connect, and its address was not tried again
        self._lease: Optional[Lease] = None  # of the last try
        self._epoch = client.epoch()
        self.given_up = False  # its caller does not want the response any more

    def waits(self) -> bool:
        """Whether first, or retry, waits for lbd: then tasks of an event loop call it in another thread."""
        if self.client.mode != "batch" or not self.cluster.ready():
            return True
        return self._unsent and not self.cut and self.cluster.draw(lambda a: a not in self._tried) is None

    def first(self) -> Attempt:
        """The first try. Raises an LbdError if there is no endpoint for it, and TimeoutError at the deadline."""
        try:
            return self._take()
        except errors.Unavailable as error:
            fallback = self.client.fallback
            if fallback is None or error.code:  # with a code, lbd has answered
                raise
            self._fallback = True
            return Attempt(self, fallback, None, False, False)

    def failed(self, address: str, unsent: bool) -> None:
        """Remembers that a try failed. If nothing was sent, lbd is told at once."""
        self._unsent = unsent
        if self._fallback:
            return
        self.cluster.failed(address, not unsent)
        if unsent and self._lease is None:
            self.client._sender.unreachable(self.cluster.name, address)

    def retry(self) -> Optional[Attempt]:
        """The next try after one that failed; None if the result of that one is the result of the request.

        A try fails if it is not sent, if its connection ends before the status line, or with the status 502, 503 or
        504. One that was not sent may be any request, and is no retry for the limits.
        """
        unsent, self._unsent = self._unsent, False
        self._moves += unsent
        retries = len(self._tried) - self._moves
        if not unsent and not (self.cluster.budget.failed() and self._repeatable and retries <= self.client.retries):
            return None
        if self._fallback or len(self._tried) >= TRIED_MAX or self._over():
            return None
        try:
            # lbd hears now of a try that was not sent, and may choose another priority.
            end = Deadline(self.deadline.at_most(OTHER_TIME if unsent else 0))
            return self._other(end) if self.client.mode == "batch" else self._pick_other(end)
        except (errors.LbdError, TimeoutError):
            return None

    def _other(self, end: Deadline) -> Optional[Attempt]:
        """A try at an address of the batch that was not tried; the last resort is one that had too little time."""
        cluster, tried = self.cluster, self._tried
        avoids, draw = cluster.asides.avoids, cluster.draw
        while not self._over():
            batch = cluster.batch
            address = draw(lambda a: a not in tried and not avoids(a)) or draw(lambda a: a not in tried)
            if address is None and self.cut:
                address, self.cut, self._again = draw(tried.__contains__), False, True
            if address is not None:
                return self._at(address)
            if not cluster.other(batch, end):
                break
        return None

    def _pick_other(self, end: Deadline) -> Optional[Attempt]:
        # lbd may need the place of the lease in the circuit breaker.
        if self._lease is not None and not self.client._sender.end_failed(self._lease, self.deadline):
            return None
        while not self._over():
            try:
                return self._get(self._tried)
            except errors.Unavailable as error:
                if error.code != "all_excluded":
                    raise
            if self.cut:
                self.cut, self._again = False, True
                return self._get([])
            if end.passed():
                break
            time.sleep(OTHER_PAUSE)
        return None

    def _over(self) -> bool:
        """Whether there is to be no other try. A child of fork does not go on with a request of its parent."""
        client = self.client
        return self.given_up or self.deadline.passed() or client._closed or self._epoch != client.epoch()

    def _take(self) -> Attempt:
        if self.client.mode != "batch":
            return self._get([])
        element = self.cluster.take(self.deadline)
        if isinstance(element, Refusal):
            raise errors.like(element.error)
        self._check_deadline()
        self.client._sender.start()
        return self._at(element)

    def _check_deadline(self) -> None:
        if self.deadline.passed():
            raise TimeoutError(f"cluster {self.cluster.name}: the deadline of the request has passed")

    def _at(self, address: str, lease: Optional[Lease] = None) -> Attempt:
        self._tried.append(address)
        self._lease = lease
        batch = self.client.mode == "batch"
        if not batch:
            self.cluster.asides.avoids(address)  # this may be the trial
        hurries = self._moves < HURRIED and not self._again
        return Attempt(self, address, lease, batch, hurries)

    def _get(self, tried: list[str]) -> Attempt:
        """A try at an address that lbd picks: none of tried, and none that is set aside if there is another."""
        excluded = list(dict.fromkeys([*tried, *self.cluster.asides.avoided()]))[:TRIED_MAX]
        try:
            return self._pick(excluded)
        except errors.Unavailable as error:
            if error.code != "all_excluded" or len(excluded) == len(tried):
                raise
            return self._pick(tried)

    def _pick(self, excluded: list[str]) -> Attempt:
        """A try at an address that lbd picks: none of excluded."""
        client, name = self.client, self.cluster.name
        wait = self.deadline.at_most(WAIT_MAX)
        parameters: dict[str, Any] = {"cluster": name, "wait": duration(wait), "exclude": excluded}
        ttl, method = 0.0, "GET"
        if client.mode == "lease":
            left = self.deadline.left()
            ttl, method = min(client.ttl if left is None else left + LEASE_GRACE, LEASE_MAX), "POST"
            parameters.update(ttl=duration(ttl), owner=client.owner())
        try:
            answer = client._api.call(method, "/v1/pick", parameters, cluster=name, deadline=Deadline(wait + 1.0))
            lease = Lease(str(answer["lease"]["id"]), ttl) if ttl else None
            if not is_address(address := answer["address"]):
                raise TypeError(f"{address!r} is not an address")
        except (Unreachable, KeyError, TypeError) as error:
            raise errors.Unavailable(f"cluster {name}: lbd is unreachable: {error}", cluster=name) from error
        if lease is not None and not client._sender.hold(lease):
            raise errors.Unavailable(f"cluster {name}: the client is closed", cluster=name, code="closed")
        if self.deadline.passed() and lease is not None:
            client._sender.end(lease)
        self._check_deadline()
        return self._at(address, lease)


def shortage(error: Optional[BaseException]) -> bool:
    """Whether an error, or one that caused it, is a shortage of this machine: no endpoint is to blame."""
    for _ in range(10):
        if error is None:
            return False
        if isinstance(error, OSError) and error.errno in _SHORTAGES:
            return True
        error = error.__cause__ or error.__context__
    return False


class _Clients(weakref.WeakSet):
    """The clients of this process that are not closed."""

    def close_at_exit(self) -> None:
        util.Finalize(None, self.close, exitpriority=10)

    def close(self) -> None:
        """Closes all, within 1 s in all."""
        end, clients = time.monotonic() + 1.0, list(self)
        for at, client in enumerate(clients):
            client.close(max(0.0, end - time.monotonic()) / (len(clients) - at))

    def after_fork(self) -> None:
        for client in list(self):
            client._after_fork()


_clients = _Clients()
_forked = threading.Lock()

atexit.register(_clients.close)
# Processes of multiprocessing end without atexit, and forget the finalizers of their parent.
_clients.close_at_exit()
util.register_after_fork(_clients, _Clients.close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clients.after_fork)
