"""What requests ask of lbd beside their cluster, and what lbd has chosen for them."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Optional, Union

from ._batch import Batch
from .errors import LbdError

TARGET = "xds:///"
"""Begins the names that are targets, whose routes choose the cluster."""

ASKED_MAX = 1000
"""Batches of a cluster for what requests ask, at most."""

ASKED_BYTES = 4 << 20
"""Bytes of what these were asked for, at most."""

NAME_MAX, QUERY_MAX = 512, 24 << 10
"""Bytes of the name of a cluster, and of what a request asks, at most. lbd permits 512, and 32 KiB with all that a
retry excludes: it says nothing that a client understands to what is much longer."""

HASH_MAX = 1024
"""Bytes of a hash key, at most. What comes after them does not count."""

Headers = Callable[[], Iterable[tuple[Any, Any]]]

current: contextvars.ContextVar[Optional[tuple[str, str]]] = contextvars.ContextVar("lbd ask", default=None)
"""The hash key and the path that ask gives."""


@dataclass(frozen=True)
class Host:
    """What requests to a host are for.

    cluster  the cluster. Default: what is before .lbd in the host, unless target is set
    target   the name of a target instead: its routes choose the cluster by the path of the request, and by headers
    headers  names of the headers that the routes match, or that their hash policies need: others are not sent to lbd
    hash     where the hash key of a request is: header:NAME or cookie:NAME. Requests without it go to any endpoint

    Raises ValueError for a field that is not valid.
    """

    cluster: str = ""
    target: str = ""
    headers: Sequence[str] = ()
    hash: str = ""

    def __post_init__(self) -> None:
        kind, _, name = self.hash.partition(":")
        if self.hash and (kind not in ("header", "cookie") or not name):
            raise ValueError(f"hash: {self.hash!r} is not header:NAME or cookie:NAME")
        if self.cluster and self.target:
            raise ValueError("set either cluster or target, not both")
        if isinstance(self.headers, str):
            raise ValueError("headers: it is not a list of names")

    @property
    def name(self) -> str:
        """The cluster; a target with its prefix."""
        return TARGET + self.target.removeprefix(TARGET) if self.target else self.cluster


Place = Union[str, Host]


def place(host: str, value: Optional[Place]) -> Optional[Place]:
    """What the setting hosts says of a host."""
    if isinstance(value, str) and value.startswith(TARGET):
        return Host(target=value)
    if isinstance(value, Host) and value.cluster.startswith(TARGET):
        return replace(value, cluster="", target=value.cluster)
    if isinstance(value, Host) and not value.name:
        return replace(value, cluster=host.removesuffix(".lbd"))
    return value


@contextlib.contextmanager
def ask(*, hash: str = "", path: str = "") -> Iterator[None]:
    """Gives the requests within a hash key, instead of that of lbd.Host, or a path for the routes of a target.

    It holds for the thread or task, and for tasks that begin within.
    """
    old = current.get() or ("", "")
    token = current.set((hash or old[0], path or old[1]))
    try:
        yield
    finally:
        current.reset(token)


def asked(where: Place, path: str, headers: Optional[Headers]) -> tuple[str, str]:
    """The cluster or target of a request, and what lbd has to know of it beside, as a part of a query."""
    key, own_path = current.get() or ("", "")
    host = where if isinstance(where, Host) else Host(where)
    kind, _, name = host.hash.partition(":")
    if not key and kind == "header":
        key = next(_values(headers, name), "")
    elif not key and kind == "cookie":
        cookies = (part.strip().partition("=") for value in _values(headers, "cookie") for part in value.split(";"))
        key = next((value.strip('"') for own, _, value in cookies if own == name), "")
    parts: list[tuple[str, Any]] = [("hash", key.encode("utf-8", "replace")[:HASH_MAX])] if key else []
    if host.target:
        parts.append(("path", own_path or path or "/"))
        parts += [("header." + header, value) for header in host.headers for value in _values(headers, header)]
    return host.name, query(parts)


def query(parts: Iterable[tuple[str, Any]]) -> str:
    return "".join("&" + urllib.parse.urlencode([part], quote_via=urllib.parse.quote, safe="") for part in parts)


def _values(headers: Optional[Headers], wanted: str) -> Iterator[str]:
    for name, value in headers() if headers is not None else ():
        if _text(name).lower() == wanted.lower():
            yield _text(value)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class Call:
    """A call to lbd that all requests with a query wait for. After ended, it has a batch or an error."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.batch: Optional[Batch] = None
        self.error: Optional[LbdError] = None


class Asked:
    """The batches of a cluster for what requests ask, all of one generation: those that were used last."""

    def __init__(self) -> None:
        self.last: Optional[str] = None
        """The query that lbd has answered last, before any answer the first one, without what it excludes."""
        self._generation: Optional[int] = None
        self._batches: collections.OrderedDict[str, Batch] = collections.OrderedDict()
        self._bytes = 0  # of their queries
        self.after_fork()

    def after_fork(self) -> None:
        self.lock = threading.RLock()
        self.calls: dict[str, Call] = {}

    def get(self, asks: str) -> Optional[Batch]:
        """The batch for a query; None if there is none."""
        with self.lock:
            batch = self._batches.get(asks)
            if batch is not None:
                self._batches.move_to_end(asks)
            if batch is not None or self.last is None:
                self._answered(asks)
            return batch

    def _answered(self, asks: str) -> None:
        if "&exclude=" not in asks:
            self.last = asks

    def put(self, batch: Batch, published: bool) -> None:
        """Adds a batch. One of a later generation replaces all others, and so does one that is published, which is of
        the generation that lbd has: one of an earlier generation comes too late."""
        with self.lock:
            self._answered(batch.query)
            new, old = batch.generation, self._generation
            if new is not None and (old is None or new > old or (published and new != old)):
                self._generation = new
                self._batches.clear()
                self._bytes = 0
            if new is None or new == self._generation:
                self._bytes += 0 if batch.query in self._batches else len(batch.query)
                self._batches[batch.query] = batch
                while len(self._batches) > ASKED_MAX or self._bytes > ASKED_BYTES:
                    self._bytes -= len(self._batches.popitem(last=False)[0])


class Locality(NamedTuple):
    """Where an endpoint is."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


class Choice(NamedTuple):
    """What lbd has chosen for a try: of a target, the cluster that its routes chose. attempt is 1 for the first try."""

    cluster: str
    address: str
    hostname: str = ""
    locality: Locality = Locality()
    priority: int = 0
    attempt: int = 1


def choice(result: object) -> Optional[Choice]:
    """What lbd has chosen for the last try of a request. result is its response, or its error, of any HTTP library.

    None if lbd has chosen nothing: the request is not for lbd, or it had no try.
    """
    extensions = getattr(result, "extensions", None)
    found: Any = extensions.get("lbd") if isinstance(extensions, dict) else getattr(result, "_lbd", None)
    return found if found is None or isinstance(found, Choice) else found.choice()
