"""Errors of requests that got no endpoint from lbd."""

from __future__ import annotations


class LbdError(Exception):
    """Base of all errors of lbd.

    cluster is the cluster of the request, code is the code of lbd's answer, or "" if lbd did not answer.
    """

    def __init__(self, message: str, *, cluster: str = "", code: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.cluster = cluster
        self.code = code
        self.retry_after = retry_after

    def __reduce__(self) -> tuple:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[LbdError], args: tuple, fields: dict) -> LbdError:
    error = kind(*args)
    error.__dict__.update(fields)
    return error


class Dropped(LbdError):
    """The drop policy of the cluster rejected the request. Do not retry it: the operator wants less load."""


class CircuitBroken(LbdError):
    """The circuit breaker of the cluster is full. Do not retry at once."""


class Unavailable(LbdError):
    """lbd has no endpoint, or is unreachable and the last batch is too old."""


class UnknownCluster(LbdError):
    """lbd does not know the cluster, or the target."""


class PermissionDenied(LbdError):
    """lbd rejected the token, or it does not permit picks from this cluster."""


_KINDS: dict[str, type[LbdError]] = {
    "dropped": Dropped,
    "circuit_broken": CircuitBroken,
    "unknown_cluster": UnknownCluster,
    "unknown_target": UnknownCluster,
    "permission_denied": PermissionDenied,
    "unauthenticated": PermissionDenied,
}


def of_answer(cluster: str, status: int, problem: dict, retry_after: float) -> LbdError:
    """The error for an answer of lbd that rejects; problem is its body (RFC 9457), or empty."""
    code = problem.get("code")
    code = code if isinstance(code, str) else ""
    kind = _KINDS.get(code)
    if kind is None:
        kind = PermissionDenied if status in (401, 403) else Unavailable
    detail = problem.get("detail") or problem.get("title") or f"status {status}"
    message = f"cluster {cluster}: {str(detail)[:500]}" + (f" ({code})" if code else "")
    if kind is Dropped and isinstance(problem.get("category"), str):
        message += f": drop category {problem['category']}"
    return kind(message, cluster=cluster, code=code or str(status), retry_after=retry_after)


def like(error: LbdError) -> LbdError:
    """A copy of an error, to be raised in another thread."""
    copy = type(error)(*error.args)
    copy.__dict__.update(error.__dict__)
    return copy
