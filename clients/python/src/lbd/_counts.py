"""What a client counts for each cluster: the budget of retries, and how requests ended."""

from __future__ import annotations

import threading
import time

REPORT_AGE = 60.0
"""Seconds after which counts that could not be sent are forgotten."""

REPORT_ENDPOINTS = 1000
"""Endpoints in one report, at most."""


class Budget:
    """Tokens for retries, as in gRFC A6."""

    def __init__(self, max_tokens: float) -> None:
        self._lock = threading.Lock()
        self._first = max_tokens
        self._max = max_tokens
        self._tokens = max_tokens

    def fit(self, batches: float) -> None:
        """Grows with the batch: batches says how many times as many picks it has as the first one."""
        with self._lock:
            old, self._max = self._max, self._first * max(1.0, batches)
            self._tokens += max(0.0, self._max - old)

    def failed(self) -> bool:
        """Takes a token, and says whether a retry is permitted."""
        with self._lock:
            self._tokens = max(0.0, self._tokens - 1)
            return self._tokens > self._max / 2

    def succeeded(self) -> None:
        if self._tokens < self._max:
            with self._lock:
                self._tokens = min(self._max, self._tokens + 0.1)

    def after_fork(self) -> None:
        self._lock = threading.Lock()


class Count:
    """What happened at one endpoint since the last report."""

    __slots__ = ("cancelled", "errors", "in_flight", "in_flight_seconds", "latency", "requests", "since")

    def __init__(self, now: float) -> None:
        self.requests = 0
        self.errors = 0
        self.cancelled = 0
        self.latency = 0.0
        self.in_flight_seconds = 0.0
        self.in_flight = 0
        self.since = now

    def advance(self, now: float) -> None:
        self.in_flight_seconds += self.in_flight * (now - self.since)
        self.since = now


class Counts:
    """The counts of one cluster."""

    def __init__(self) -> None:
        # The garbage collector may end a request while its thread holds the lock.
        self._lock = threading.RLock()
        self._endpoints: dict[str, Count] = {}
        self._begin = time.monotonic()

    def begin(self, address: str) -> float:
        """Counts a request as in flight, and returns the time."""
        with self._lock:
            now = time.monotonic()
            count = self._endpoints.get(address)
            if count is None:
                count = self._endpoints[address] = Count(now)
            count.advance(now)
            count.in_flight += 1
            return now

    def answered(self, address: str, outcome: str, begin: float) -> None:
        """Counts the outcome of a request."""
        with self._lock:
            count = self._endpoints.get(address)
            if count is None:
                return
            count.requests += 1
            count.latency += time.monotonic() - begin
            if outcome == "error":
                count.errors += 1
            elif outcome == "cancelled":
                count.cancelled += 1

    def end(self, address: str) -> None:
        """Counts a request as no longer in flight."""
        with self._lock:
            count = self._endpoints.get(address)
            if count is not None:
                count.advance(time.monotonic())
                count.in_flight -= 1

    def empty(self) -> bool:
        return not self._endpoints

    def errors(self) -> int:
        """How many requests ended so since the counts were taken last."""
        with self._lock:
            return sum(count.errors for count in self._endpoints.values())

    def take(self) -> tuple[float, list[dict]]:
        """The counts since they were taken last, in the form of a report, and the time when that was."""
        taken = []
        with self._lock:
            now = time.monotonic()
            begin, self._begin = self._begin, now
            for address, count in list(self._endpoints.items()):
                count.advance(now)
                if count.requests or count.in_flight_seconds > 0:
                    taken.append(
                        {
                            "address": address,
                            "requests": count.requests,
                            "errors": count.errors,
                            "cancelled": count.cancelled,
                            "in_flight_seconds": round(count.in_flight_seconds, 6),
                            "latency_seconds": round(count.latency, 6),
                        }
                    )
                if count.in_flight == 0:
                    del self._endpoints[address]
                else:
                    self._endpoints[address] = rest = Count(now)
                    rest.in_flight = count.in_flight
        return begin, taken

    def give_back(self, begin: float, taken: list[dict]) -> None:
        """Adds counts that could not be sent to the next report, unless they are too old."""
        with self._lock:
            now = time.monotonic()
            if now - begin > REPORT_AGE:
                return
            self._begin = min(self._begin, begin)
            for entry in taken:
                count = self._endpoints.get(entry["address"])
                if count is None:
                    count = self._endpoints[entry["address"]] = Count(now)
                count.requests += entry["requests"]
                count.errors += entry["errors"]
                count.cancelled += entry["cancelled"]
                count.in_flight_seconds += entry["in_flight_seconds"]
                count.latency += entry["latency_seconds"]

    def after_fork(self) -> None:
        """Forgets what the parent counted and has in flight."""
        self._lock = threading.RLock()
        self._endpoints = {}
        self._begin = time.monotonic()
