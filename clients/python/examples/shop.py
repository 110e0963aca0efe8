"""A shop whose pages come from the service orders, through lbd.

LBD=unix:/run/lbd.sock gunicorn --preload --workers 2 shop:app
"""

import http.client
import urllib.parse

import lbd

client = lbd.Client(timeout=2)


def app(environ, start_response):
    path = urllib.parse.quote(environ["PATH_INFO"])
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    try:
        with client.request("GET", f"http://orders.lbd{path}") as order:
            status, body = f"{order.status} {order.reason}", order.read()
    except (lbd.Dropped, lbd.CircuitBroken) as error:  # all callers together send too much: do not add to it
        status, body = "503 Service Unavailable", f"{error}\n".encode()
        headers.append(("Retry-After", "5"))
    except TimeoutError as error:
        status, body = "504 Gateway Timeout", f"orders: {error}\n".encode()
    except (lbd.LbdError, OSError, http.client.HTTPException) as error:
        status, body = "502 Bad Gateway", f"orders: {error}\n".encode()
    start_response(status, headers)
    return [body]
