"""A program that uses the types of the package; it is checked only."""

import logging
from typing import Optional

import lbd
import lbd.otel

client = lbd.Client(mode="lease", hosts={"shop": "eu/orders"})
status: int = client.request("GET", "http://orders.lbd/").status
lbd.Client(mode="turbo")  # type: ignore[arg-type]


def attempted(attempt: lbd.Attempt) -> None:
    seconds: float = attempt.duration
    print(attempt.choice.locality.zone, attempt.outcome == "error", seconds)


lbd.Client(
    hosts={"shop.lbd": lbd.Host(target="shop", headers=["tenant"]), "old": "orders"},
    on_attempt=attempted,
    on_state=lambda state: print(state == "stale"),
    logger=logging.getLogger("lbd"),
)
lbd.Client(hosts=lambda host: lbd.Host("orders", hash="cookie:session") if host == "shop" else None)
lbd.Client(on_attempt=lbd.otel.on_attempt())
lbd.Client(hosts={"shop": 7})  # type: ignore[dict-item]
lbd.Client(on_state=attempted)  # type: ignore[arg-type]
with lbd.ask(hash="alice", path="/items"):
    choice: Optional[lbd.Choice] = lbd.choice(client.request("GET", "http://shop.lbd/"))
