"""A client of lbd: HTTP requests to hosts CLUSTER.lbd go to the endpoints that lbd picks.

    client = lbd.Client()
    with client.request("GET", "http://orders.lbd/items/7") as response:
        print(response.status, response.read())

lbd.opener is for urllib, lbd.requests for requests, lbd.httpx for httpx.
"""

from .asking import Choice, Host, Locality, ask, choice
from .client import Client
from .errors import CircuitBroken, Dropped, LbdError, PermissionDenied, Unavailable, UnknownCluster
from .hooks import Attempt
from .upstream import Handler, opener

__all__ = [
    "Attempt",
    "Choice",
    "CircuitBroken",
    "Client",
    "Dropped",
    "Handler",
    "Host",
    "LbdError",
    "Locality",
    "PermissionDenied",
    "Unavailable",
    "UnknownCluster",
    "ask",
    "choice",
    "opener",
]
__version__ = "0.1.0"
