"""Shows orders, all of which it gets at the same time, through lbd.

LBD=unix:/run/lbd.sock python orders.py 7 8 9
"""

import asyncio
import sys

import httpx

import lbd.httpx


async def show(http: httpx.AsyncClient, number: str) -> str:
    try:
        response = await http.get(f"http://orders.lbd/items/{number}")
        return f"{number}: {response.status_code} {response.text}"
    except httpx.TransportError as error:  # also those of lbd
        return f"{number}: {type(error).__name__}: {error}"


async def main(numbers: list[str]) -> None:
    with lbd.Client() as client:
        async with httpx.AsyncClient(mounts={"all://*.lbd": lbd.httpx.AsyncTransport(client)}, timeout=2) as http:
            for line in await asyncio.gather(*(show(http, number) for number in numbers)):
                print(line)


asyncio.run(main(sys.argv[1:]))
