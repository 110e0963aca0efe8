"""Spans of OpenTelemetry for the tries of requests.

client = lbd.Client(on_attempt=lbd.otel.on_attempt())
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable
from typing import Optional, Union

from opentelemetry import trace

from .hooks import Attempt


def on_attempt(provider: Optional[trace.TracerProvider] = None) -> Callable[[Attempt], None]:
    """A hook for lbd.Client, which makes a span of each try: a child of the current span. Default: the global provider.

    The span has ended by then, so headers do not name it: an instrumentation of the HTTP library adds those of its own.
    """
    tracer = trace.get_tracer("lbd.otel", tracer_provider=provider)

    def record(attempt: Attempt) -> None:
        end, method = time.time_ns(), attempt.request.method or "GET"
        begin = end - int(attempt.duration * 1e9)
        span = tracer.start_span(method, kind=trace.SpanKind.CLIENT, start_time=begin, attributes=_attributes(attempt))
        if attempt.status is None or attempt.status >= 400:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end)

    return record


def _attributes(attempt: Attempt) -> dict[str, Union[str, int]]:
    url = urllib.parse.urlsplit(str(attempt.request.url))
    host, _, port = attempt.choice.address.rpartition(":")
    attributes: dict[str, Union[str, int]] = {
        "http.request.method": attempt.request.method or "GET",
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "network.peer.address": host.strip("[]"),
        "network.peer.port": int(port),
        "lbd.cluster": attempt.choice.cluster,
    }
    if attempt.status is not None:
        attributes["http.response.status_code"] = attempt.status
    if attempt.status is None or attempt.status >= 400:
        attributes["error.type"] = str(attempt.status or attempt.outcome)
    if attempt.choice.attempt > 1:
        attributes["http.request.resend_count"] = attempt.choice.attempt - 1
    return attributes
