"""Calls to lbd."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import stat
import urllib.parse
from typing import Any, Optional

from . import errors
from ._connection import Connection, Deadline, Pool
from .hooks import Observer

TOKEN = re.compile("[!-~]+")

SOCKETS = ("/run/lbd.sock", "/run/lbd/lbd.sock")
MAX_ANSWER = 16 << 20
"""Bytes of an answer of lbd, at most."""

CALL_TIMEOUT = 2.0
"""Seconds for a call that does not wait."""


class Unreachable(Exception):
    """A call failed: lbd is unreachable, or what came is not a complete answer."""


def default_address() -> str:
    for path in SOCKETS:
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return "unix:" + path
        except OSError:
            continue
    return "http://localhost:8080"


def duration(seconds: float) -> str:
    return f"{max(0, int(seconds * 1000))}ms"


class Api:
    """lbd's HTTP API at one address. Safe for threads."""

    def __init__(self, lbd: str, found: str, token: str, token_file: str, ca: str, observer: Observer) -> None:
        self._address, self._context, self._server_name, self._host = _parse(lbd, ca)
        if token and not TOKEN.fullmatch(token):
            raise ValueError("token: it has characters that a header cannot have")
        self._token = token
        self._token_file = token_file
        self._observer = observer
        self.at = f"{lbd} ({found})"
        self._pool = Pool()
        if token_file and not token:
            self._token = self._read_token()
            if not self._token:
                raise ValueError(f"token_file: {token_file} cannot be read, or has no token")

    def _read_token(self) -> str:
        """The token in the file; the last one while the file has none, because it is just replaced."""
        try:
            with open(self._token_file, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError):
            return self._token
        return token if TOKEN.fullmatch(token) else self._token

    def connect(self) -> Connection:
        """A connection that is not open yet."""
        return Connection(self._address, self._context, self._server_name)

    def call(
        self,
        method: str,
        path: str,
        parameters: Optional[dict] = None,
        body: Any = None,
        *,
        query: str = "",
        cluster: str = "",
        deadline: Optional[Deadline] = None,
        request: Optional[Deadline] = None,
        connection: Optional[Connection] = None,
    ) -> dict:
        """The answer to a call; raises Unreachable, or the LbdError for an answer that rejects.

        query is added to parameters. connection is used instead of one of the pool, and stays open after the call.
        After the deadline of its request, a failure says nothing of lbd.
        """
        target = path
        if parameters:
            target += "?" + urllib.parse.urlencode(parameters, doseq=True, quote_via=urllib.parse.quote) + query
        try:
            answer = self._call(method, target, body, cluster, deadline or Deadline(CALL_TIMEOUT), connection)
        except Unreachable as error:
            failure = Unreachable(f"{method} {path} at {self.at}: {error}")  # without the query
            if request is None or not request.passed():
                self._observer.called(failure)
            raise failure from error.__cause__
        except errors.LbdError:
            self._observer.called()
            raise
        self._observer.called()
        return answer

    def _call(
        self, method: str, path: str, body: Any, cluster: str, deadline: Deadline, connection: Optional[Connection]
    ) -> dict:
        data = None if body is None else json.dumps(body).encode()
        used = self._token
        status, headers, content = self._exchange(method, path, data, deadline, connection)
        if status == 401 and self._token_file:
            fresh = self._read_token()
            if fresh != used:
                self._token = fresh
                status, headers, content = self._exchange(method, path, data, deadline, connection)
        answer = _decode(content)
        if status in (200, 201):
            if answer is None:
                raise Unreachable("the answer is not JSON")
            if path.startswith("/v1/pick?") and not ("picks" in answer or "address" in answer):
                raise Unreachable("the answer has no picks")
            return answer
        if status not in (401, 403, 429) and not isinstance((answer or {}).get("code"), str):
            raise Unreachable(f"status {status} without a code of lbd")
        raise errors.of_answer(cluster, status, answer or {}, _seconds(headers.get("Retry-After")))

    def _exchange(
        self, method: str, path: str, data: Optional[bytes], deadline: Deadline, own: Optional[Connection]
    ) -> tuple[int, Any, bytes]:
        fresh = False
        while True:
            connection = own
            try:
                if connection is None:
                    connection = self._pool.get("", self.connect, deadline, fresh)
                elif connection.sock is None:
                    connection.reused = False
                    connection.open(deadline)
                else:
                    connection.reused = True
                    connection.expire(deadline)
                return self._once(connection, method, path, data, own is None)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reused = connection is not None and connection.reused
                if connection is not None:
                    connection.close()
                # The peer closes idle connections at times: then the call never reached it.
                if reused and not fresh and isinstance(error, (ConnectionError, http.client.BadStatusLine)):
                    fresh = True
                    continue
                raise Unreachable(f"{type(error).__name__}: {error}") from error
            except BaseException:
                if connection is not None:
                    connection.close()
                raise

    def _once(
        self, connection: Connection, method: str, path: str, data: Optional[bytes], pooled: bool
    ) -> tuple[int, Any, bytes]:
        headers = {"Host": self._host, "Accept": "application/json", "User-Agent": "lbd-client-python"}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        if data is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, data, headers)
        with connection.getresponse() as response:
            content = response.read(MAX_ANSWER + 1)
            if len(content) > MAX_ANSWER:
                raise ValueError(f"the answer has more than {MAX_ANSWER} bytes")
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
            response.read()  # the end of a chunked body
            reusable = not response.will_close
        if not reusable:
            connection.close()
        elif pooled:
            self._pool.put("", connection)
        return response.status, response.headers, content

    def close(self) -> None:
        self._pool.close()

    def after_fork(self) -> None:
        self._pool.abandon()
        self._pool = Pool()


def _parse(lbd: str, ca: str) -> tuple[str, Optional[ssl.SSLContext], str, str]:
    if lbd.startswith("unix:"):
        address = lbd.replace("unix://", "unix:", 1)
        if address == "unix:":
            raise ValueError("lbd: unix: has no path")
        return address, None, "", "localhost"
    parts = urllib.parse.urlsplit(lbd)
    if "@" in lbd:
        raise ValueError("lbd: the address has a user; use token or token_file")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError(f"lbd: {lbd!r} is not unix:PATH, http://HOST:PORT or https://HOST:PORT")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    try:
        context = ssl.create_default_context(cafile=ca or None) if parts.scheme == "https" else None
    except OSError as error:
        raise ValueError(f"ca: {ca}: {error}") from error
    return f"{host}:{port}", context, parts.hostname, f"{host}:{port}"


def _decode(content: bytes) -> Optional[dict]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _seconds(text: Optional[str]) -> float:
    return float(text) if text and text.isdecimal() and len(text) < 6 else 0.0
