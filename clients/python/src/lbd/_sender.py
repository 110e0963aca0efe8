"""The thread that sends reports, and ends and renews leases."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Optional

from . import errors
from ._api import CALL_TIMEOUT, Api, Unreachable, duration
from ._cluster import Cluster
from ._connection import TIMEOUT_MAX, Deadline
from ._counts import REPORT_ENDPOINTS

LEASES_AT_ONCE = 1000
"""Leases that one call ends, at most."""

LEASES_WAITING = 100_000
"""Ends of leases that wait for lbd, at most. The others expire."""

TELL_PAUSE = 0.05
"""Seconds for which connects that failed are collected."""

EARLY_ERRORS, EARLY_INTERVAL = 5, 1.0
"""A cluster with so many errors is reported after so many seconds already."""

RETRY_PAUSE = 0.5
"""Seconds after a call that ended no lease."""


class Lease:
    """A lease of a request in flight."""

    __slots__ = ("id", "outcome", "renew_at", "ttl")

    def __init__(self, lease_id: str, ttl: float) -> None:
        self.id = lease_id
        self.ttl = ttl
        self.outcome = "cancelled"
        self.renew_at = time.monotonic() + ttl / 2

    def ended(self) -> dict:
        return {"id": self.id, "outcome": self.outcome}


class Sender:
    """Sends what a client tells lbd, in the background. Safe for threads."""

    def __init__(self, api: Api, clusters: Callable[[], list[Cluster]], process: str, interval: float, counts: bool):
        self._api = api
        self._clusters = clusters
        self._interval = min(interval, TIMEOUT_MAX)
        self._pause = min(self._interval, EARLY_INTERVAL) if counts else self._interval
        self.after_fork(process)

    def after_fork(self, process: str) -> None:
        """Forgets the leases of the parent; the thread stayed there."""
        self.reporter = f"{process}/{os.urandom(4).hex()}"  # containers share names and process IDs
        self._leases: dict[str, Lease] = {}
        # Ends of leases and wake-ups. Its put is reentrant: the garbage collector may end a request at any point.
        self._ended: queue.SimpleQueue = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        self._failures: Optional[dict[tuple[str, str], int]] = None  # connects; None without a thread that reports them
        self._wake = math.inf  # when the thread looks for leases to renew, at the latest

    def start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed:
                    thread = threading.Thread(target=self._run, name="lbd reports", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # there are too many, or the interpreter ends: close sends what is left
                        return
                    self._thread = thread

    def hold(self, lease: Lease) -> bool:
        """Renews a lease until it is ended. If the client is closed, ends it and returns False."""
        with self._lock:
            if not self._closed:
                self._leases[lease.id] = lease
                if lease.renew_at < self._wake:
                    self._ended.put(None)
                self.start()
                return True
        self._send_ended([lease.ended()], Deadline(1.0))
        return False

    def end(self, lease: Lease) -> None:
        """Ends a lease in the background."""
        with self._lock:  # close sends all that has ended, and then all that is held
            if self._leases.pop(lease.id, None) is not None and self._ended.qsize() < LEASES_WAITING:
                self._ended.put(lease.ended())

    def end_failed(self, lease: Lease, deadline: Deadline) -> bool:
        """Ends the lease of a try that failed, and waits for it. end does so again: lbd answers both alike.

        Returns whether lbd has confirmed it: if not, it would not grant another lease, either.
        """
        try:
            until = Deadline(deadline.at_most(CALL_TIMEOUT))
            self._api.call(
                "POST", "/v1/leases/done", body={"leases": [lease.ended()]}, deadline=until, request=deadline
            )
        except (Unreachable, errors.LbdError):
            return False
        return True

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
        with self._lock:
            for lease in list(self._leases.values()):
                self._ended.put(lease.ended())
            self._leases = {}
        while True:
            batch = self._take_ended()
            if not batch or deadline.passed() or not self._send_ended(batch, deadline):
                break
        self._report(deadline)
        self._tell(deadline)

    def _run(self) -> None:
        next_report = time.monotonic() + self._interval
        next_look = next_report - self._interval + self._pause
        while not self._closed:
            now = time.monotonic()
            try:
                if now >= next_look:
                    least = EARLY_ERRORS if now < next_report else 0
                    if not least:
                        next_report = now + self._interval
                    next_look = min(next_report, now + self._pause)
                    self._report(None, least)
                self._wake = math.inf  # hold wakes the thread until the time is known
                self._renew()
                self._wake = min([next_look, *(lease.renew_at for lease in list(self._leases.values()))])
                first = self._ended.get(timeout=max(0.0, self._wake - time.monotonic()))
                if first is not None and not self._send_ended([first, *self._take_ended()], None):
                    time.sleep(RETRY_PAUSE)
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
        """Ends leases. If that fails, they are ended later; leases whose end is never sent expire."""
        try:
            self._api.call("POST", "/v1/leases/done", body={"leases": ended}, deadline=deadline)
        except (Unreachable, errors.LbdError) as error:
            if getattr(error, "code", "") == "invalid_argument":  # it would be the next answer, too
                return True
            for end in ended[: max(0, LEASES_WAITING - self._ended.qsize())]:
                self._ended.put(end)
            return False
        return True

    def _renew(self) -> None:
        """Renews the leases that have had half of their time, until lbd is unreachable."""
        now, reachable = time.monotonic(), True
        for lease in list(self._leases.values()):
            if now < lease.renew_at:
                continue
            lease.renew_at = now + min(1.0, lease.ttl / 4)
            if not reachable:
                continue
            try:
                path = f"/v1/leases/{urllib.parse.quote(lease.id, safe='')}/renew"
                self._api.call("POST", path, {"ttl": duration(lease.ttl)})
                lease.renew_at = now + lease.ttl / 2
            except errors.LbdError as error:
                if error.code == "unknown_lease":  # it has expired: the request goes on without it
                    self._leases.pop(lease.id, None)
            except Unreachable:
                reachable = False

    def unreachable(self, cluster: str, address: str) -> None:
        """Reports a connect that failed, together with others of the next 50 ms. What cannot be sent is forgotten."""
        with self._lock:
            if self._closed:
                return
            if self._failures is None:
                try:
                    threading.Thread(target=self._tell_all, name="lbd connect failures", daemon=True).start()
                except RuntimeError:  # there are too many, or the interpreter ends
                    return
                self._failures = {}
            key = cluster, address
            if key in self._failures or len(self._failures) < REPORT_ENDPOINTS:
                self._failures[key] = self._failures.get(key, 0) + 1

    def _tell_all(self) -> None:
        """Reports connects that failed, until there are no more."""
        told = True
        while told and not self._closed:
            time.sleep(TELL_PAUSE)
            told = not self._closed and self._tell(None)

    def _tell(self, deadline: Optional[Deadline]) -> bool:
        """Reports the connects that failed. Without any, the next one needs a new thread, and it returns False."""
        with self._lock:
            failures = self._failures
            self._failures = {} if failures else None
        if not failures:
            return False
        clusters: dict[str, list[dict]] = {}
        for (cluster, address), count in failures.items():
            clusters.setdefault(cluster, []).append({"address": address, "connect_failures": count})
        report = {
            "reporter": self.reporter,
            "clusters": [{"cluster": name, "endpoints": endpoints} for name, endpoints in clusters.items()],
        }
        with contextlib.suppress(Exception):  # what lbd does not hear now would come too late
            self._api.call("POST", "/v1/reports", body=report, deadline=deadline)
        return True

    def _report(self, deadline: Optional[Deadline], least: int = 0) -> None:
        """Reports the clusters that have at least so many errors."""
        reachable = True
        for cluster in self._clusters():
            if least and cluster.counts.errors() < least:
                continue
            begin, endpoints = cluster.counts.take()
            interval = min(300.0, max(0.1, time.monotonic() - begin))
            for at in range(0, len(endpoints), REPORT_ENDPOINTS):
                part = endpoints[at : at + REPORT_ENDPOINTS]
                report = {
                    "reporter": self.reporter,
                    "interval": duration(interval),
                    "clusters": [{"cluster": cluster.name, "endpoints": part}],
                }
                try:
                    if reachable:
                        self._api.call("POST", "/v1/reports", body=report, deadline=deadline)
                        continue
                except errors.LbdError:
                    pass
                except Unreachable:
                    reachable = False
                if not self._closed:  # else lbd may have got it, and close would send it again
                    cluster.counts.give_back(begin, part)
