"""What a program can see of its client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Optional

from .asking import Choice

Outcome = Literal["success", "error", "cancelled", "unreachable"]
State = Literal["unreachable", "stale", "recovered"]


class Attempt(NamedTuple):
    """A try of a request that has ended. choice.attempt is its number.

    duration is the time in seconds until status and headers were there, or the try had failed. request is that of
    requests or httpx, or another object that has a method and a url. Without a status, error says why.
    """

    choice: Choice
    outcome: Outcome
    duration: float
    request: Any
    status: Optional[int]
    error: Optional[BaseException]


class Observer:
    """Calls the hooks of a client, and writes its log. Safe for threads."""

    def __init__(
        self,
        on_attempt: Optional[Callable[[Attempt], object]],
        on_state: Optional[Callable[[State], object]],
        logger: Optional[logging.Logger],
    ) -> None:
        self._on_attempt = on_attempt
        self._on_state = on_state
        self._logger = logger
        self._state: Optional[State] = None
        self.wants_attempts = on_attempt is not None or logger is not None
        self.closed = False
        self.after_fork()

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def attempted(self, attempt: Attempt) -> None:
        if self._logger is not None:
            cluster, address, *_, number = attempt.choice
            text = "cluster %s: try %d at %s: %s after %.3f s"
            self._logger.debug(text, cluster, number, address, attempt.outcome, attempt.duration)
        self._call(self._on_attempt, attempt)

    def called(self, failure: Optional[Exception] = None) -> None:
        """A call to lbd has ended: lbd has answered, or failure says why not."""
        away = self._state in ("unreachable", "stale")
        if away and failure is None:
            self._changed("recovered")
        elif failure is not None and not away:
            self._changed("unreachable", failure)

    def stale(self, failure: Exception) -> None:
        """A request has found that the last batch is too old."""
        if self._state == "unreachable":
            self._changed("stale", failure)

    def _changed(self, state: State, failure: Optional[Exception] = None) -> None:
        with self._lock:
            if self._state == state or self.closed:
                return
            self._state = state
        if self._logger is not None and failure is None:
            self._logger.info("lbd answers again")
        elif self._logger is not None:
            self._logger.warning("lbd does not answer (%s): %s", state, failure)
        self._call(self._on_state, state)

    def _call(self, hook: Optional[Callable[[Any], object]], argument: Any) -> None:
        try:
            if hook is not None:
                hook(argument)
        except Exception:
            if self._logger is not None:
                self._logger.error("a hook has failed", exc_info=True)
