"""A program that uses the types of the package; it is checked only."""

import lbd

client = lbd.Client(mode="lease", hosts={"shop": "eu/orders"})
status: int = client.request("GET", "http://orders.lbd/").status
lbd.Client(mode="turbo")  # type: ignore[arg-type]
