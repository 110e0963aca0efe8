"""The thread that sends reports, and ends and renews leases."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Optional

from . import errors
from ._api import Api, Unreachable, duration
from ._cluster import Cluster
from ._connection import Deadline
from ._counts import REPORT_ENDPOINTS

LEASES_AT_ONCE = 1000
"""Leases that one call ends, at most."""

LEASES_WAITING = 100_000
"""Ends of leases that wait for lbd, at most. The others expire."""


class Lease:
    """A lease of a request in flight."""

    __slots__ = ("id", "renew_at", "ttl")

    def __init__(self, lease_id: str, ttl: float) -> None:
        self.id = lease_id
        self.ttl = ttl
        self.renew_at = time.monotonic() + ttl / 2


class Sender:
    """Sends what a client tells lbd, in the background. Safe for threads."""

    def __init__(self, api: Api, clusters: Callable[[], list[Cluster]], reporter: Callable[[], str], interval: float):
        self._api = api
        self._clusters = clusters
        self._reporter = reporter
        self._interval = interval
        self._leases: dict[str, Lease] = {}
        self.after_fork()

    def after_fork(self) -> None:
        """Forgets the leases of the parent; the thread stayed there."""
        self._leases = {}
        # Ends of leases and wake-ups. Its put is reentrant: the garbage collector may end a request at any point.
        self._ended: queue.SimpleQueue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        self._wake = math.inf  # when the thread looks for leases to renew, at the latest

    def start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed:
                    thread = threading.Thread(target=self._run, name="lbd reports", daemon=True)
                    thread.start()
                    self._thread = thread

    def hold(self, lease: Lease) -> None:
        """Renews a lease until it is ended."""
        self._leases[lease.id] = lease
        if lease.renew_at < self._wake:
            self._ended.put(None)
        self.start()

    def end(self, lease: Lease, outcome: str) -> None:
        """Ends a lease in the background."""
        if self._leases.pop(lease.id, None) is not None and self._ended.qsize() < LEASES_WAITING:
            self._ended.put({"id": lease.id, "outcome": outcome})

    def close(self, timeout: float) -> None:
        """Ends the thread, the leases and the last interval. Waits for timeout seconds at most."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
        deadline = Deadline(timeout)
        if thread is not None:
            self._ended.put(None)
            thread.join(deadline.at_most(timeout / 2))
        ended = [{"id": lease_id, "outcome": "cancelled"} for lease_id in list(self._leases)]
        self._leases = {}
        for end in ended:
            self._ended.put(end)
        while True:
            batch = self._take_ended()
            if not batch or deadline.passed() or not self._send_ended(batch, deadline):
                break
        self._report(deadline)

    def _run(self) -> None:
        next_report = time.monotonic() + self._interval
        while not self._closed:
            now = time.monotonic()
            try:
                if now >= next_report:
                    next_report = now + self._interval
                    self._report(None)
                self._wake = math.inf  # hold wakes the thread until the time is known
                self._renew()
                self._wake = min([next_report, *(lease.renew_at for lease in list(self._leases.values()))])
                first = self._ended.get(timeout=max(0.0, self._wake - time.monotonic()))
                if first is not None:
                    self._send_ended([first, *self._take_ended()], None)
            except queue.Empty:
                continue
            except Exception:  # the thread has to survive whatever comes
                time.sleep(0.1)

    def _take_ended(self) -> list[dict]:
        ended: list[dict] = []
        while len(ended) < LEASES_AT_ONCE - 1:
            try:
                end = self._ended.get_nowait()
            except queue.Empty:
                break
            if end is not None:
                ended.append(end)
        return ended

    def _send_ended(self, ended: list[dict], deadline: Optional[Deadline]) -> bool:
        """Ends leases; if lbd is unreachable, later. Leases whose end is never sent expire."""
        try:
            self._api.call("POST", "/v1/leases/done", body={"leases": ended}, deadline=deadline)
            return True
        except errors.LbdError:
            return True
        except Unreachable:
            if self._ended.qsize() < LEASES_WAITING:
                for end in ended:
                    self._ended.put(end)
            if deadline is None:
                time.sleep(0.5)
            return False

    def _renew(self) -> None:
        now = time.monotonic()
        for lease in list(self._leases.values()):
            if now >= lease.renew_at:
                lease.renew_at = now + lease.ttl / 2
                try:
                    self._api.call("POST", f"/v1/leases/{lease.id}/renew", {"ttl": duration(lease.ttl)})
                except errors.LbdError:
                    self._leases.pop(lease.id, None)  # it has expired: the request goes on without it
                except Unreachable:
                    lease.renew_at = now + min(1.0, lease.ttl / 4)

    def _report(self, deadline: Optional[Deadline]) -> None:
        for cluster in self._clusters():
            begin, endpoints = cluster.counts.take()
            interval = min(300.0, max(0.1, time.monotonic() - begin))
            for at in range(0, len(endpoints), REPORT_ENDPOINTS):
                part = endpoints[at : at + REPORT_ENDPOINTS]
                report = {
                    "reporter": self._reporter(),
                    "interval": duration(interval),
                    "clusters": [{"cluster": cluster.name, "endpoints": part}],
                }
                try:
                    self._api.call("POST", "/v1/reports", body=report, deadline=deadline)
                except (Unreachable, errors.LbdError):
                    cluster.counts.give_back(begin, part)
