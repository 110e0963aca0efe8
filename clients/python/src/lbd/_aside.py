"""The addresses of a cluster to which tries have failed, and how long its connects take."""

from __future__ import annotations

import collections
import random
import threading
import time
from collections.abc import Container

ASIDE_FIRST, ASIDE_MAX = 1.0, 10.0
"""Seconds for which an address is set aside."""

UNKNOWN_ENDS = 3
"""Tries in a row that were sent and got no answer, after which an address is set aside."""

FORGET_TIME = 300.0
"""Seconds after which an address is forgotten, in modes without a batch."""

HURRIED = 3
"""Connects of a request that have less time, at most."""

HURRY_MIN = 0.25
"""Seconds that they have, at least."""


class _Aside:
    """What is remembered of an address. It is set aside if pause is not 0."""

    __slots__ = ("pause", "trial", "unknown", "until")

    def __init__(self, now: float) -> None:
        self.unknown = 0  # ends in a row without an answer
        self.pause = 0.0
        self.until = now  # when the next request is a trial
        self.trial = False  # it is under way

    def avoided(self, now: float) -> bool:
        if self.pause == 0:
            return False
        if now < self.until:
            return True
        self.trial, self.until = True, now + ASIDE_MAX  # the next one if this never ends
        return False


class Asides:
    """The addresses of a cluster that are set aside, or that may be. Safe for threads."""

    def __init__(self) -> None:
        self._addresses: dict[str, _Aside] = {}
        self.after_fork()

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def avoids(self, address: str) -> bool:
        """Whether requests avoid an address. When its time is over, one request is permitted: the trial."""
        if not self._addresses:
            return False
        with self._lock:
            known = self._addresses.get(address)
            return known is not None and known.avoided(time.monotonic())

    def avoided(self) -> list[str]:
        """The addresses that requests avoid."""
        if not self._addresses:
            return []
        now = time.monotonic()
        with self._lock:  # the trial begins when lbd has picked the address
            for address in [a for a, known in self._addresses.items() if now > known.until + FORGET_TIME]:
                del self._addresses[address]
            return [address for address, known in self._addresses.items() if known.pause and now < known.until]

    def failed(self, address: str, sent: bool, most: int) -> None:
        """A try was not sent, or got no answer. most is the number of addresses that may be set aside."""
        with self._lock:
            now = time.monotonic()
            known = self._addresses.setdefault(address, _Aside(now))
            if sent:
                known.unknown += 1
                if known.unknown < UNKNOWN_ENDS:
                    if known.trial:  # it was connected
                        known.pause, known.trial = 0.0, False
                    return
            if known.pause == 0 and sum(other.pause > 0 for other in self._addresses.values()) < most:
                known.pause = ASIDE_FIRST
            elif known.trial:
                known.pause = min(2 * known.pause, ASIDE_MAX)
            else:  # there are too many, or the request began before
                return
            known.trial, known.until = False, now + known.pause * random.uniform(0.8, 1.2)

    def answered(self, address: str) -> None:
        if self._addresses:
            with self._lock:
                self._addresses.pop(address, None)

    def keep(self, addresses: Container[str]) -> None:
        """Forgets the other addresses."""
        if self._addresses:
            with self._lock:
                for address in [known for known in self._addresses if known not in addresses]:
                    del self._addresses[address]


class Connects:
    """The seconds that the last successful connects of a cluster took."""

    def __init__(self) -> None:
        self._took: collections.deque[float] = collections.deque(maxlen=16)
        self.limit = HURRY_MIN
        """Seconds that a connect has while there are other endpoints."""

    def add(self, took: float) -> None:
        self._took.append(took)
        self.limit = max(HURRY_MIN, 3 * max(tuple(self._took)))

    def learns(self) -> bool:
        """Whether another duration may change the limit."""
        return len(self._took) < 16 or self.limit > HURRY_MIN
