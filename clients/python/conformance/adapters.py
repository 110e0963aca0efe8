"""The HTTP libraries that the runner sends requests with: with a client of lbd, or alone if client is None."""

import asyncio
import http.client
import os
import threading
import urllib.parse

import httpx
import requests

import lbd
import lbd.httpx
import lbd.requests

TIMEOUTS = (TimeoutError, requests.Timeout, httpx.TimeoutException)
CONNECT_TIMEOUTS = (requests.ConnectTimeout, httpx.ConnectTimeout)
TRUST = False  # alone, httpx sends no request with TLS: what it trusts by default takes 50 ms to read
CONNECTION = (requests.ConnectionError, httpx.TransportError)


def core(client):
    if client is not None:

        def send(method, url, body, headers, timeout):
            with client.request(method, url, body, headers, timeout=timeout or 30) as response:
                return response.status, response.read(), response

        return send

    local = threading.local()

    def alone(method, url, body, headers, timeout):
        parts = urllib.parse.urlsplit(url)
        if getattr(local, "host", None) != parts.netloc:
            local.host, local.connection = parts.netloc, http.client.HTTPConnection(parts.netloc, timeout=timeout)
        local.connection.request(method, parts.path or "/", body, headers)
        response = local.connection.getresponse()
        return response.status, response.read(), response

    return alone


def with_requests(client):
    session = requests.Session()
    session.trust_env = False
    if client is not None:
        lbd.requests.mount(session, client)

    def send(method, url, body, headers, timeout):
        response = session.request(method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False)
        return response.status_code, response.content, response

    return send


def with_httpx(client):
    session = httpx.Client(transport=lbd.httpx.Transport(client) if client else None, trust_env=False, verify=TRUST)

    def send(method, url, body, headers, timeout):
        response = session.request(method, url, content=body, headers=headers, timeout=timeout)
        return response.status_code, response.content, response

    return send


def with_httpx_async(client):
    state = {}

    def start():
        """A loop does not survive a fork: a child has its own."""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        transport = lbd.httpx.AsyncTransport(client) if client else None
        session = httpx.AsyncClient(transport=transport, trust_env=False, verify=TRUST)
        state.update(pid=os.getpid(), loop=loop, session=session)

    async def request(method, url, body, headers, timeout):
        response = await state["session"].request(method, url, content=body, headers=headers, timeout=timeout)
        return response.status_code, response.content, response

    def send(*arguments):
        if state["pid"] != os.getpid():
            start()
        return asyncio.run_coroutine_threadsafe(request(*arguments), state["loop"]).result()

    start()

    return send


ADAPTERS = {"core": core, "requests": with_requests, "httpx": with_httpx, "httpx-async": with_httpx_async}
