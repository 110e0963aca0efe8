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
from ._batch import Batch, Refusal
from ._connection import Connection, Deadline
from ._counts import Budget, Counts

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
"""Seconds that a request waits for other endpoints after the last one was not sent, at most, and between two picks."""

BACKOFF_FIRST, BACKOFF_MAX, RETRY_AFTER_MAX = 0.1, 5.0, 60.0

TRIED_MAX = 100
"""Addresses that a request has tried, or that lbd excludes, at most."""

IDLE_TIME = 300.0
"""Seconds without a request after which a cluster is no longer followed."""


class Cluster:
    """What a client knows of one cluster. Safe for threads."""

    def __init__(self, name: str, api: Api, *, max_age: float, stale_for: float, max_tokens: float) -> None:
        self.name = name
        self.counts = Counts()
        self.budget = Budget(max_tokens)
        self.asides = Asides()
        self.connects = Connects()
        self._api = api
        self._max_age = max_age
        self._stale_for = stale_for
        self.batch: Optional[Batch] = None
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._connection: Optional[Connection] = None
        self._stopped = threading.Event()
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
        if connection is not None:
            connection.close()

    def idle(self) -> bool:
        """Whether there was no request for long, so that it can be forgotten."""
        return self._thread is None and self.counts.empty()

    def ready(self) -> bool:
        """Whether take answers without waiting for lbd."""
        return self._thread is not None and self._usable()

    def take(self, deadline: Deadline) -> Union[str, Refusal]:
        """The next element of the batch. Raises an LbdError if there is none in time."""
        self._used = True
        batch = self.batch
        if batch is None or not self.ready():
            batch = self._wait(deadline)
        return batch.take(self.asides.avoids)

    def draw(self, accept: Callable[[str], bool]) -> Optional[str]:
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
        batch = self.batch
        self.asides.failed(address, sent, TRIED_MAX if batch is None else len(batch.addresses) // 2)

    def _wait(self, deadline: Deadline) -> Batch:
        """Starts the thread if there is none, and waits for a batch, or for the first try to get one."""
        with self._changed:
            while not self._stopped.is_set():
                if self._thread is None:  # at first, and after it ended because there were no requests
                    self._start()
                if self._usable() or self._tries > 0 or deadline.passed():
                    break
                if not self._changed.wait(deadline.left()):
                    break
            batch, error = self.batch, self._error
            if batch is not None and self._usable():
                return batch
        if error is not None:
            raise errors.like(error)
        reason = "the client is closed" if self._stopped.is_set() else "lbd did not answer in time"
        raise errors.Unavailable(f"cluster {self.name}: {reason}", cluster=self.name)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"lbd {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the interpreter ends
            raise errors.Unavailable(f"cluster {self.name}: {error}", cluster=self.name) from error
        self._thread = thread

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
                try:
                    batch = self._fetch(connection, n)
                    self._publish(batch, None)
                    self._follow(connection, batch)
                    age = time.monotonic() - batch.made
                    if age >= FOLLOW_PAUSE:
                        n = min(max(int(batch.taken() * BATCH_TIME / age), BATCH_MIN), most)
                        self.budget.fit(n / BATCH_FIRST)
                    backoff = BACKOFF_FIRST
                    pause = max(0.0, began + FOLLOW_PAUSE - time.monotonic())
                except Exception as error:  # the thread has to survive whatever comes
                    if n > BATCH_FIRST and getattr(error, "code", "") == "invalid_argument":
                        n = most = BATCH_FIRST  # the quota of the caller does not permit more
                        continue
                    wanted = self._note(error)
                    pause = max(backoff * random.uniform(0.8, 1.2), min(wanted, RETRY_AFTER_MAX))
                    backoff = min(2 * backoff, BACKOFF_MAX)
                    connection.close()
                now = time.monotonic()
                if self._used:
                    self._used, used = False, now
                elif now - used > IDLE_TIME:
                    break
                if pause:
                    stopped.wait(pause)
        finally:
            connection.close()
            with self._changed:
                if not stopped.is_set():
                    self.batch, self._thread, self._tries = None, None, 0
                    self._changed.notify_all()

    def _note(self, error: Exception) -> float:
        """Publishes why there is no new batch, and returns the seconds that lbd asks to wait."""
        if not isinstance(error, errors.LbdError):
            error = errors.Unavailable(f"cluster {self.name}: lbd is unreachable: {error}", cluster=self.name)
        self._publish(None, error)
        return error.retry_after

    def _publish(self, batch: Optional[Batch], error: Optional[errors.LbdError]) -> None:
        if batch is not None and batch.generation is not None:
            self.asides.keep(batch.addresses)
        with self._changed:
            self.batch, self._error = batch or self.batch, error
            self._tries += 1
            self._changed.notify_all()

    def _fetch(self, connection: Connection, n: int) -> Batch:
        try:
            answer = self._api.call(
                "GET",
                "/v1/pick",
                {"cluster": self.name, "n": n, "reports": "true", "wait": duration(BATCH_WAIT)},
                cluster=self.name,
                deadline=Deadline(BATCH_WAIT + 1.0),
                connection=connection,
            )
        except (errors.Dropped, errors.CircuitBroken) as error:
            return _batch.of_refusal(error)
        try:
            return _batch.of_answer(self.name, answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unreachable(f"the answer is not a batch: {error!r}") from error

    def _follow(self, connection: Connection, batch: Batch) -> None:
        """Returns when it is time for a new batch."""
        if batch.generation is None:
            self._stopped.wait(min(REFUSED_AGE, self._max_age))
            return
        end = time.monotonic() + self._max_age * random.uniform(0.8, 1)
        # v1/clusters/watch is the stream of all clusters.
        name = "%77atch" if self.name == "watch" else urllib.parse.quote(self.name, safe="")
        while not self._stopped.is_set():
            left = end - time.monotonic()
            if left <= 0:
                return
            began, wait = time.monotonic(), min(left, FOLLOW_WAIT)
            answer = self._api.call(
                "GET",
                "/v1/clusters/" + name,
                {"endpoints": "false", "index": batch.generation, "wait": duration(wait)},
                cluster=self.name,
                deadline=Deadline(wait + 1.0),
                connection=connection,
            )
            if answer.get("generation") != batch.generation:
                return
            self._stopped.wait(max(0.0, min(FOLLOW_PAUSE - (time.monotonic() - began), left)))
