"""The batch of one cluster, and the thread that keeps it up to date."""

from __future__ import annotations

import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Optional, Union

from . import _batch, errors
from ._api import Api, Unreachable, duration
from ._aside import Asides, Connects
from ._batch import Batch, Endpoint, Refusal
from ._connection import Connection, Deadline
from ._counts import Budget, Counts
from .asking import TARGET, Asked, Call
from .hooks import Observer

BATCH_MIN, BATCH_FIRST, BATCH_MAX = 20, 100, 1000
BATCH_TIME = 2.0
"""Seconds whose requests a batch has picks for."""

BATCH_WAIT = 1.0
"""Seconds that a call for a batch waits until an endpoint is ready, at most."""

REFUSED_AGE = 1.0
"""Seconds after which a batch of nothing but refusals is fetched again."""

FOLLOW_PAUSE = 0.1
"""Seconds between two calls that follow a cluster, or get its batch, at least."""

FOLLOW_WAIT = 30.0
"""Seconds that a call waits for a change of a cluster, at most."""

OTHER_TIME, OTHER_PAUSE = 1.0, 0.2
"""Seconds that a request waits for other endpoints after none has answered, at most, and between two picks."""

BACKOFF_FIRST, BACKOFF_MAX, RETRY_AFTER_MAX = 0.1, 5.0, 60.0

TRIED_MAX = 100
"""Addresses that a request has tried, or that lbd excludes, at most."""

IDLE_TIME = 300.0
"""Seconds without a request after which a cluster is no longer followed."""


class Cluster:
    """What a client knows of one cluster, or of a target. Safe for threads."""

    def __init__(
        self, name: str, api: Api, observer: Observer, *, max_age: float, stale_for: float, max_tokens: float
    ) -> None:
        self.name = name
        self.target = name.startswith(TARGET)
        self.parameter = {"target": name.removeprefix(TARGET)} if self.target else {"cluster": name}
        self.counts = Counts()
        self.budget = Budget(max_tokens)
        self.asides = Asides()
        self.connects = Connects()
        self._asked = Asked()
        self._api = api
        self._observer = observer
        self._max_age = max_age
        self._stale_for = stale_for
        self.batch: Optional[Batch] = None
        self.picked = 0.0  # when lbd gave it an endpoint last, in the modes without a batch
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._connection: Optional[Connection] = None
        self._stopped = threading.Event()
        self.forgotten = threading.Event()  # the thread ends after its next try
        self._refused = 0.0  # until when _error is the answer to requests, without a thread
        self._error: Optional[errors.LbdError] = None
        self._tries = 0
        self._used = True

    def after_fork(self) -> None:
        """Keeps the batch; the thread stayed in the parent."""
        connection = self._connection
        self._reset()
        self.counts.after_fork()
        self.budget.after_fork()
        self.asides.after_fork()
        self._asked.after_fork()
        if connection is not None:
            connection.close()

    def idle(self) -> bool:
        """Whether it has no batch, and nothing to report, so that it can be forgotten."""
        return self.batch is None and self.counts.empty()

    def ready(self) -> bool:
        """Whether take answers without waiting for lbd."""
        return self._thread is not None and self._usable()

    def take(self, deadline: Deadline, query: str, any_will_do: bool) -> Union[Endpoint, Refusal]:
        """The next element of the batch for what a request asks, or, if any will do without lbd, of the last one.

        Raises an LbdError if there is none in time.
        """
        self._used = True
        batch = self.batch
        if batch is None or batch.query != query or not self.ready():
            batch = self._wait(deadline, query, any_will_do)
        return batch.take(self.asides.avoids)

    def fresh(self, query: str) -> bool:
        """Whether take answers a query without a call to lbd."""
        batch, known = self.batch, self._asked.get(query)
        return (batch is not None and batch.query == query) or (known is not None and time.monotonic() < known.until)

    def draw(self, accept: Callable[[str], bool]) -> Optional[Endpoint]:
        batch = self.batch
        return None if batch is None else batch.draw(accept)

    def other(self, than: Optional[Batch], deadline: Deadline) -> bool:
        """Waits for another batch, and says whether there is one."""
        with self._changed:
            while self.batch is than and not self._stopped.is_set():
                if not self._changed.wait(deadline.left()):
                    return False
        return not self._stopped.is_set()

    def failed(self, address: str, sent: bool) -> None:
        """May set an address aside: a try was not sent, or got no answer."""
        batch = self.batch  # one for what requests ask does not have all addresses
        most = TRIED_MAX if batch is None or batch.query else len(batch.addresses) // 2
        self.asides.failed(address, sent, most)

    def _wait(self, deadline: Deadline, query: str, any_will_do: bool) -> Batch:
        """Starts the thread if there is none, and waits for a batch, or for the first try to get one."""
        self._asked.get(query)  # if it is the first one, the thread gets its batch
        with self._changed:
            while not self._stopped.is_set():
                if self._thread is None and time.monotonic() >= self._refused:  # at first, and after it has ended
                    self._thread, self._tries, self._error = self._start(self._run), 0, None
                if self._usable() or self._tries > 0 or deadline.passed():
                    break
                if not self._changed.wait(deadline.left()) or self._tries > 0:
                    break
            batch, error = self.batch, self._error
            usable = self._usable()
        if batch is not None and usable:
            return batch if batch.query == query else self._ask(deadline, query, batch if any_will_do else None)
        if error is not None:
            if error.code == "no_route" or (error.code == "invalid_argument" and self.target):  # of another request
                return self._ask(deadline, query, None)
            if batch is not None and not error.code:
                self._observer.stale(error)
            raise errors.like(error)
        raise self._no_answer()

    def _no_answer(self) -> errors.Unavailable:
        reason = "the client is closed" if self._stopped.is_set() else "lbd did not answer in time"
        return errors.Unavailable(f"cluster {self.name}: {reason}", cluster=self.name)

    def _ask(self, deadline: Deadline, query: str, last: Optional[Batch]) -> Batch:
        """The batch for what a request asks, unless it is old; else that of lbd, with one call for all requests that
        need it at the same time. If lbd is unreachable: an older one, or last."""
        asked, now = self._asked, time.monotonic()
        with asked.lock:
            known = asked.get(query)
            usable = known is not None and now - known.made < self._stale_for
            if known is not None and (now < known.until or (usable and self._error is not None)):
                return known
            call = asked.calls.get(query)
            if call is None:
                call = Call()
                self._start(self._answer, asked, query, call)
                asked.calls[query] = call
        call.ended.wait(deadline.left())
        if call.batch is not None:
            return call.batch
        error = call.error or self._no_answer()
        if call.error is None or error.code:
            raise errors.like(error)
        if known is not None and usable:
            return known
        if self.target or last is None or last.generation is None:
            raise errors.like(error)
        return last  # better another endpoint than none

    def _answer(self, asked: Asked, query: str, call: Call) -> None:
        try:
            call.batch = self._fetch(None, query, BATCH_MIN)
            asked.put(call.batch, False)
        except errors.LbdError as error:
            call.error = error
        except Exception as error:
            call.error = self._error = self._unreachable(error)
        finally:
            with asked.lock:
                del asked.calls[query]
            call.ended.set()

    def _start(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=arguments, name=f"lbd {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the interpreter ends
            raise errors.Unavailable(f"cluster {self.name}: {error}", cluster=self.name) from error
        return thread

    def _usable(self) -> bool:
        """Whether requests use the batch: it is not older than stale_for, or lbd has answered the last call."""
        batch = self.batch
        if batch is None:
            return False
        return time.monotonic() - batch.made < self._stale_for or (self._error is None and self._tries > 0)

    def stop(self) -> None:
        """Ends the thread; does not wait for it."""
        with self._changed:
            self._stopped.set()
            self.forgotten.set()
            self._changed.notify_all()
            connection = self._connection
        if connection is not None:
            connection.interrupt()

    def _run(self) -> None:
        with self._changed:
            stopped = self._stopped
            if stopped.is_set():
                return
            connection = self._connection = self._api.connect()
        backoff, used = BACKOFF_FIRST, time.monotonic()
        n, most = BATCH_FIRST, BATCH_MAX
        try:
            while not stopped.is_set():
                pause, began = 0.0, time.monotonic()
                query = self._asked.last or ""
                size = BATCH_MIN if query else n
                try:
                    batch = self._fetch(connection, query, size)
                    self._publish(batch, None)
                    self._follow(connection, batch)
                    age = time.monotonic() - batch.made
                    if age >= FOLLOW_PAUSE:
                        n = min(max(int(batch.taken() * BATCH_TIME / age), BATCH_MIN), most)
                        self.budget.fit(n / BATCH_FIRST)
                    backoff = BACKOFF_FIRST
                    pause = max(0.0, began + FOLLOW_PAUSE - time.monotonic())
                except Exception as error:  # the thread has to survive whatever comes
                    if size > BATCH_FIRST and getattr(error, "code", "") == "invalid_argument":
                        n = most = BATCH_FIRST  # the quota of the caller does not permit more
                        continue
                    wanted = self._note(error)
                    if self.batch is None and _is_final(error):  # names are often input
                        self._refused = time.monotonic() + REFUSED_AGE
                        break
                    pause = max(backoff * random.uniform(0.8, 1.2), min(wanted, RETRY_AFTER_MAX))
                    backoff = min(2 * backoff, BACKOFF_MAX)
                    connection.close()
                now = time.monotonic()
                if self._used:
                    self._used, used = False, now
                elif now - used > IDLE_TIME:
                    break
                if self.forgotten.wait(pause):
                    break
        finally:
            connection.close()
            with self._changed:
                if not stopped.is_set():
                    self.batch, self._thread, self._asked = None, None, Asked()
                    self._changed.notify_all()

    def _note(self, error: Exception) -> float:
        """Publishes why there is no new batch, and returns the seconds that lbd asks to wait."""
        if not isinstance(error, errors.LbdError):
            error = self._unreachable(error)
        self._publish(None, error)
        return error.retry_after

    def _unreachable(self, error: Exception) -> errors.Unavailable:
        return errors.Unavailable(f"cluster {self.name}: lbd is unreachable: {error}", cluster=self.name)

    def _publish(self, batch: Optional[Batch], error: Optional[errors.LbdError]) -> None:
        if batch is not None:
            self._asked.put(batch, True)
            if batch.generation is not None and not batch.query:
                self.asides.keep(batch.addresses)
        with self._changed:
            self.batch, self._error = batch or self.batch, error
            self._tries += 1
            self._changed.notify_all()

    def _fetch(self, connection: Optional[Connection], query: str, n: int) -> Batch:
        try:
            answer = self._api.call(
                "GET",
                "/v1/pick",
                {**self.parameter, "n": n, "reports": "true", "wait": duration(BATCH_WAIT)},
                query=query,
                cluster=self.name,
                deadline=Deadline(BATCH_WAIT + 1.0),
                connection=connection,
            )
            batch = _batch.of_answer(self.name, "" if self.target else self.name, answer)
            age = self._max_age * random.uniform(0.8, 1)
        except (errors.Dropped, errors.CircuitBroken) as error:
            batch, age = _batch.of_refusal(error), min(REFUSED_AGE, self._max_age)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unreachable(f"{self._api.at}: the answer is not a batch: {error!r}") from error
        batch.query, batch.until = query, batch.made + age
        return batch

    def _follow(self, connection: Connection, batch: Batch) -> None:
        """Returns when it is time for a new batch."""
        if batch.generation is None or not batch.cluster:
            self._stopped.wait(min(REFUSED_AGE, self._max_age))
            return
        # v1/clusters/watch is the stream of all clusters.
        name = "%77atch" if batch.cluster == "watch" else urllib.parse.quote(batch.cluster, safe="")
        parameters = self.parameter if self.target else {}
        while not self._stopped.is_set():
            left = batch.until - time.monotonic()
            if left <= 0:
                return
            began, wait = time.monotonic(), min(left, FOLLOW_WAIT)
            answer = self._api.call(
                "GET",
                "/v1/clusters/" + name,
                {**parameters, "endpoints": "false", "index": batch.generation, "wait": duration(wait)},
                cluster=self.name,
                deadline=Deadline(wait + 1.0),
                connection=connection,
            )
            if answer.get("generation") != batch.generation:
                return
            self._stopped.wait(max(0.0, min(FOLLOW_PAUSE - (time.monotonic() - began), left)))


def _is_final(error: Exception) -> bool:
    """Whether lbd rejects the name of the cluster, or the token: the same call would not help soon."""
    rejected = isinstance(error, (errors.UnknownCluster, errors.PermissionDenied))
    return rejected or getattr(error, "code", "") == "invalid_argument"
