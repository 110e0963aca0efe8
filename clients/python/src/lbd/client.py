"""The client: picks addresses for requests, and tells lbd how they ended."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, get_args

from . import asking, errors
from ._api import Api, Unreachable, default_address, duration
from ._aside import HURRIED
from ._batch import Endpoint, Refusal, is_address
from ._cluster import OTHER_PAUSE, OTHER_TIME, TRIED_MAX, Cluster
from ._connection import Deadline
from ._counts import Counts
from ._sender import Lease, Sender
from .asking import Choice, Headers, Host, Locality, Place
from .hooks import Attempt, Observer, Outcome, State

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
Hosts = Union[Mapping[str, Place], Callable[[str], Optional[Place]]]


class Client:
    """Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. Safe for threads and for fork.

    lbd         address of lbd: unix:PATH, http://HOST:PORT or https://HOST:PORT. Default: environment LBD, else the
                first of unix:/run/lbd.sock and unix:/run/lbd/lbd.sock that is a socket, else http://localhost:8080
    mode        "batch"; "pick" for processes that live for one request; "lease" for exact circuit breaking
    token       token for lbd. Default: environment LBD_TOKEN
    token_file  file with the token, read again after a 401. Default: environment LBD_TOKEN_FILE
    ca          PEM file of the certificates that may sign lbd's. Default: environment LBD_CA, else the system's
    owner       name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID
    hosts       clusters of other hosts, or what requests to a host ask (Host): a mapping, or a function that returns
                None for a host that is not one
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
    on_attempt  is called with each try that has ended, before the next one. What it does takes the time of the request
    on_state    is called when lbd is unreachable, when the last batch is too old, and when lbd has answered again
    logger      gets changes of that state, and at the level DEBUG each try; no tokens, hash keys or queries

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
        on_attempt: Optional[Callable[[Attempt], object]] = None,
        on_state: Optional[Callable[[State], object]] = None,
        logger: Optional[logging.Logger] = None,
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
        self._hosts: Optional[Callable[[str], Optional[Place]]] = None
        if callable(hosts):
            self._hosts = lambda host: asking.place(host, hosts(host))
        elif hosts is not None:
            self._hosts = {k.lower(): asking.place(k.lower(), v) for k, v in hosts.items()}.get
        self._settings = {"max_age": max_age, "stale_for": stale_for, "max_tokens": max_tokens}
        self.observer = Observer(on_attempt, on_state, logger)
        found = "the setting lbd" if lbd else "environment LBD" if environ("LBD") else "default; set LBD"
        self._api = Api(
            lbd or environ("LBD") or default_address(),
            found,
            token or "",
            token_file or "",
            ca or environ("LBD_CA") or "",
            self.observer,
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
        """The cluster that a host names, or xds:///TARGET; None if requests to the host are not for lbd."""
        place = self.place_of(host)
        return place.name if isinstance(place, Host) else place

    def place_of(self, host: Optional[str]) -> Optional[Place]:
        """What requests to a host are for; None if not for lbd."""
        if not host:
            return None
        host = host.lower()
        if self._hosts is not None:
            place = self._hosts(host)
            if place:
                return place
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

    def call(
        self,
        place: Place,
        deadline: Deadline,
        repeatable: bool,
        path: str = "",
        headers: Optional[Headers] = None,
        request: Any = None,
    ) -> Call:
        """A request for an adapter of an HTTP library. repeatable permits retries; request is for hooks."""
        if isinstance(place, str) and asking.current.get() is None:
            name, query = place, ""
        else:
            name, query = asking.asked(place, path, headers)
        if len(name.encode(errors="replace")) > asking.NAME_MAX or len(query) > asking.QUERY_MAX:
            name = name[: asking.NAME_MAX]
            reason = "the name of the cluster has more than 512 bytes, or what the request asks more than 24 KiB"
            raise errors.Unavailable(f"cluster {name}: {reason}", cluster=name, code="invalid_argument")
        if self._closed:
            raise errors.Unavailable(f"cluster {name}: the client is closed", cluster=name)
        epoch = self.epoch()
        known = self._clusters.get(name)
        return Call(self, known or self.cluster(name), deadline, repeatable, query, request, epoch)

    def cluster(self, name: str) -> Cluster:
        """What the client knows of a cluster, or of a target."""
        with self._lock:
            known = self._clusters.get(name)
            if known is None:
                if len(self._clusters) >= CLUSTERS_MAX:
                    others = list(self._clusters.values())
                    idle = [other for other in others if other.idle()]
                    for other in idle if self.mode == "batch" else [min(others, key=lambda other: other.picked)]:
                        del self._clusters[other.name]
                        other.forgotten.set()
                if len(self._clusters) >= CLUSTERS_MAX:
                    raise errors.Unavailable(f"cluster {name}: the client has {CLUSTERS_MAX} clusters", cluster=name)
                known = self._clusters[name] = Cluster(name, self._api, self.observer, **self._settings)
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
            self._closed = self.observer.closed = True
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
        self.observer.after_fork()
        for cluster in list(self._clusters.values()):
            cluster.after_fork()
        self._sender.after_fork(self._process())
        if self._upstreams is not None:
            self._upstreams.after_fork()
        self._pid = os.getpid()


class Try:
    """One try of a request, at one address. Adapters call answered, failed or unsent, then finish."""

    __slots__ = (
        "_begin", "_call", "_counts", "_endpoint", "_epoch", "_lease", "_number", "_outcome", "address",
        "connect_timeout",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        endpoint: Endpoint,
        lease: Optional[Lease],
        counts: Optional[Counts],
        number: int,
        hurries: bool,
    ) -> None:
        self.address = endpoint.address
        self.connect_timeout = call.client.connect_timeout
        if hurries:
            self.connect_timeout = min(self.connect_timeout, call.cluster.connects.limit)
        self._call = call
        self._endpoint = endpoint
        self._lease = lease
        self._number = number
        self._outcome = ""
        self._epoch = call.epoch
        self._counts = counts
        self._begin = counts.begin(self.address) if counts is not None else time.monotonic()

    def choice(self) -> Choice:
        """What lbd has chosen."""
        pick = self._endpoint.pick
        place = pick.get("locality") or {}
        locality = Locality(*(place.get(field) or "" for field in Locality._fields))
        hostname, priority = pick.get("hostname") or "", pick.get("priority") or 0
        return Choice(self._endpoint.cluster, self.address, hostname, locality, priority, self._number)

    def answered(self, status: int) -> None:
        """The status and the headers of the response are there; the request is in flight until finish."""
        self._ended("error" if status >= 500 else "success", status)
        if status not in RETRIED_STATUSES:
            self._call.cluster.budget.succeeded()
        self._call.cluster.asides.answered(self.address)

    def failed(self, error: BaseException) -> None:
        """The connection failed after it was made, or the deadline passed then."""
        self._fails("error", error)

    def unsent(self, error: BaseException, timed_out: bool) -> None:
        """There was no connection. timed_out says whether it took longer than connect_timeout, or than the deadline."""
        call, counts = self._call, self._counts
        if call is not None and timed_out and call.deadline.passed():  # lbd hears nothing of it
            if counts is not None:
                counts.end(self.address)
            self._counts = None
            self._fails("cancelled", error)
            return
        if call is not None and timed_out and self.connect_timeout < call.client.connect_timeout:
            call.cut = True
        self._fails("unreachable", error)

    def _fails(self, outcome: Outcome, error: BaseException) -> None:
        call = self._call
        if call is not None and not self._outcome and self._epoch == call.client.epoch():
            self._ended(outcome, None, error)
            call.failed(self._endpoint, outcome == "unreachable")
        self.finish(error)

    def finish(self, error: Optional[BaseException] = None) -> None:
        """The request is no longer in flight. Without an outcome, its caller has given it up."""
        if error is not None:
            error._lbd = self.choice()  # type: ignore[attr-defined]
        call, self._call = self._call, None  # type: ignore[assignment]
        if call is None or self._epoch != call.client.epoch():
            return
        if not self._outcome:
            self._ended_of(call, "cancelled", None, error)
        if self._counts is not None:
            self._counts.end(self.address)
        if self._lease is not None:
            call.client._sender.end(self._lease)

    def __del__(self) -> None:
        """Ends a request that was given up in any way: its task was cancelled, or nobody read the response."""
        if getattr(self, "_call", None) is not None:
            self.finish()

    def _ended(self, outcome: Outcome, status: Optional[int], error: Optional[BaseException] = None) -> None:
        if self._call is not None and not self._outcome:
            self._ended_of(self._call, outcome, status, error)

    def _ended_of(self, call: Call, outcome: Outcome, status: Optional[int], error: Optional[BaseException]) -> None:
        self._outcome = outcome
        if self._lease is not None:
            self._lease.outcome = outcome
        if self._counts is not None and outcome != "unreachable" and self._epoch == call.client.epoch():
            self._counts.answered(self.address, outcome, self._begin)
        observer = call.client.observer
        if observer.wants_attempts:
            took = time.monotonic() - self._begin
            observer.attempted(Attempt(self.choice(), outcome, took, call.request, status, error))


class Call:
    """One request to a cluster, with all of its tries."""

    __slots__ = (
        "_again", "_fallback", "_lease", "_lost", "_moves", "_query", "_repeatable", "_tried", "_unsent",
        "client", "cluster", "cut", "deadline", "epoch", "given_up", "request",
    )  # fmt: skip

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        deadline: Deadline,
        repeatable: bool,
        query: str,
        request: Any,
        epoch: int,
    ) -> None:
        self.client = client
        self.cluster = cluster
        self.deadline = deadline
        self.request = request
        self._query = query  # what it asks beside its cluster
        self._repeatable = repeatable
        self._tried: list[str] = []
        self._moves = 0  # tries that were not sent
        self._unsent = False  # the last try was not
        self._lost = False  # it got no answer, and may be sent again
        self._fallback = False  # its address is not from lbd
        self._again = False  # its address is one that was tried
        self.cut = False  # a try was not sent for want of time to connect, and its address was not tried again
        self._lease: Optional[Lease] = None  # of the last try
        self.epoch = epoch
        self.given_up = False  # its caller does not want the response any more

    def waits(self) -> bool:
        """Whether first, or retry, waits for lbd: then tasks of an event loop call it in another thread."""
        if self.client.mode != "batch" or not self.cluster.ready():
            return True
        if not self._draws():
            return bool(self._tried or self.cluster.asides.avoided()) or not self.cluster.fresh(self._query)
        return self._lost and not self.cut and self.cluster.draw(lambda a: a not in self._tried) is None

    def _draws(self) -> bool:
        """Whether its tries are elements of the batch: those of a request that asks something are other picks."""
        batch = self.cluster.batch
        return self.client.mode == "batch" and not self._query and (batch is None or not batch.query)

    def first(self) -> Try:
        """The first try. Raises an LbdError if there is no endpoint for it, and TimeoutError at the deadline."""
        try:
            return self._take()
        except errors.Unavailable as error:
            fallback = self.client.fallback
            if fallback is None or error.code:  # with a code, lbd has answered
                raise
            self._fallback = True
            return Try(self, Endpoint(self.cluster.name, {"address": fallback}), None, None, 1, False)

    def failed(self, endpoint: Endpoint, unsent: bool) -> None:
        """Remembers that a try failed. If nothing was sent, lbd is told at once."""
        self._unsent, self._lost = unsent, unsent or self._repeatable
        if self._fallback:
            return
        self.cluster.failed(endpoint.address, not unsent)
        if unsent and self._lease is None:
            self.client._sender.unreachable(endpoint.cluster, endpoint.address)

    def retry(self) -> Optional[Try]:
        """The next try after one that failed; None if the result of that one is the result of the request.

        A try fails if it is not sent, if its connection ends before the status line, or with the status 502, 503 or
        504. One that was not sent may be any request, and is no retry for the limits.
        """
        unsent = self._unsent
        self._moves += unsent
        retries = len(self._tried) - self._moves
        if not unsent and not (self.cluster.budget.failed() and self._repeatable and retries <= self.client.retries):
            return None
        if self._fallback or len(self._tried) >= TRIED_MAX or self._over():
            return None
        try:
            # lbd hears now of connects that failed, and may choose another priority.
            end = Deadline(self.deadline.at_most(OTHER_TIME if self._lost else 0))
            return self._other(end) if self._draws() else self._pick_other(end)
        except (errors.LbdError, TimeoutError):
            return None

    def _other(self, end: Deadline) -> Optional[Try]:
        """A try at an address of the batch that was not tried; the last resort is one that had too little time."""
        cluster, tried = self.cluster, self._tried
        avoids, draw = cluster.asides.avoids, cluster.draw
        while not self._over():
            batch = cluster.batch
            endpoint = draw(lambda a: a not in tried and not avoids(a)) or draw(lambda a: a not in tried)
            if endpoint is None and self.cut:
                endpoint, self.cut, self._again = draw(tried.__contains__), False, True
            if endpoint is not None:
                return self._at(endpoint)
            if not cluster.other(batch, end):
                break
        return None

    def _pick_other(self, end: Deadline) -> Optional[Try]:
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
        return self.given_up or self.deadline.passed() or client._closed or self.epoch != client.epoch()

    def _take(self) -> Try:
        if self._query or self.client.mode != "batch":
            return self._get([])
        return self._element("")

    def _element(self, query: str) -> Try:
        """A try at the next element of the batch for a query."""
        element = self.cluster.take(self.deadline, query, not self._tried)
        if isinstance(element, Refusal):
            raise errors.like(element.error)
        self._check_deadline()
        self.client._sender.start()
        return self._at(element)

    def _check_deadline(self) -> None:
        if self.deadline.passed():
            raise TimeoutError(f"cluster {self.cluster.name}: the deadline of the request has passed")

    def _at(self, endpoint: Endpoint, lease: Optional[Lease] = None) -> Try:
        counts, cluster = None, self.cluster
        if self.client.mode != "batch":
            cluster.asides.avoids(endpoint.address)  # this may be the trial
        else:
            counts = (self.client.cluster(endpoint.cluster) if cluster.target else cluster).counts
        self._tried.append(endpoint.address)
        self._lease, self._unsent, self._lost = lease, False, False
        hurries = self._moves < HURRIED and not self._again
        return Try(self, endpoint, lease, counts, len(self._tried), hurries)

    def _get(self, tried: list[str]) -> Try:
        """A try at an address that lbd picks: none of tried, and none that is set aside if there is another."""
        excluded = list(dict.fromkeys([*tried, *sorted(self.cluster.asides.avoided())]))[:TRIED_MAX]
        try:
            return self._pick(excluded)
        except errors.Unavailable as error:
            if error.code != "all_excluded" or set(excluded) <= set(tried):
                raise
            return self._pick(tried)

    def _pick(self, excluded: list[str]) -> Try:
        """A try at an address that lbd picks: none of excluded."""
        client, name = self.client, self.cluster.name
        if client.mode == "batch":
            return self._element(self._query + asking.query(("exclude", address) for address in excluded))
        wait = self.deadline.at_most(WAIT_MAX)
        parameters: dict[str, Any] = {**self.cluster.parameter, "wait": duration(wait), "exclude": excluded}
        ttl, method = 0.0, "GET"
        if client.mode == "lease":
            left = self.deadline.left()
            ttl, method = min(client.ttl if left is None else left + LEASE_GRACE, LEASE_MAX), "POST"
            parameters.update(ttl=duration(ttl), owner=client.owner())
        try:
            answer = client._api.call(
                method,
                "/v1/pick",
                parameters,
                query=self._query,
                cluster=name,
                deadline=Deadline(wait + 1.0),
                request=self.deadline,
            )
            lease = Lease(str(answer["lease"]["id"]), ttl) if ttl else None
            endpoint = Endpoint(name, answer)
        except (Unreachable, KeyError, TypeError, ValueError) as error:
            reason = (
                error if isinstance(error, Unreachable) else f"{client._api.at}: the answer is not a pick: {error!r}"
            )
            raise errors.Unavailable(f"cluster {name}: lbd is unreachable: {reason}", cluster=name) from error
        if lease is not None and not client._sender.hold(lease):
            raise errors.Unavailable(f"cluster {name}: the client is closed", cluster=name, code="closed")
        self.cluster.picked = time.monotonic()
        if self.deadline.passed() and lease is not None:
            client._sender.end(lease)
        self._check_deadline()
        return self._at(endpoint, lease)


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
