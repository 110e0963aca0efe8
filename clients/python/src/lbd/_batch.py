"""Batches of picks."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Callable
from typing import Optional, Union

from . import errors

REFUSALS_MAX = 1000
"""Refusals of one kind in an answer, at most: lbd never sends more than the picks that were asked for."""


_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})", re.ASCII)


def is_address(value: object) -> bool:
    """Whether a value is HOST:PORT or [IPV6]:PORT."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return match is not None and 0 < int(match[1]) < 1 << 16


class Refusal:
    """An element of a batch that rejects its request."""

    __slots__ = ("error",)

    def __init__(self, error: errors.LbdError) -> None:
        self.error = error


class Endpoint:
    """An endpoint that lbd picked, with what lbd says of it. Raises ValueError without an address or a cluster."""

    __slots__ = ("address", "cluster", "pick")

    def __init__(self, cluster: str, pick: dict) -> None:
        self.address = pick["address"]
        self.cluster = pick.get("cluster") or cluster
        self.pick = pick
        if not is_address(self.address) or not isinstance(self.cluster, str) or not self.cluster:
            raise ValueError("a pick without an address or a cluster")


class Batch:
    """The picks of one answer of lbd, shuffled. Requests take them in turn.

    generation is that of the cluster; None if lbd refused all picks, because then it does not say. query is what
    requests ask beside their cluster. After until, lbd is asked again.
    """

    __slots__ = ("_elements", "_turn", "addresses", "cluster", "generation", "made", "query", "until")

    def __init__(self, cluster: str, generation: Optional[int], elements: list[Union[Endpoint, Refusal]]) -> None:
        random.shuffle(elements)
        self.generation = generation
        self.made = self.until = time.monotonic()
        self.query = ""
        endpoints = [element for element in elements if isinstance(element, Endpoint)]
        self.addresses = frozenset(endpoint.address for endpoint in endpoints)
        self.cluster = endpoints[0].cluster if endpoints else cluster  # "" if it is not known
        self._elements = elements
        self._turn = itertools.count()  # next is atomic

    def take(self, avoids: Callable[[str], bool]) -> Union[Endpoint, Refusal]:
        """The next element whose address is not avoided: of the others, each keeps its share."""
        elements = self._elements
        for _ in range(2 * len(elements)):  # other requests take some
            element = elements[next(self._turn) % len(elements)]
            if isinstance(element, Refusal) or not avoids(element.address):
                break
        return element

    def taken(self) -> int:
        """How many elements were taken. One is lost."""
        return next(self._turn)

    def draw(self, accept: Callable[[str], bool]) -> Optional[Endpoint]:
        """An endpoint whose address accept permits, drawn so that each keeps its share; None if there is none."""
        elements = self._elements
        first = random.randrange(len(elements))
        for element in itertools.chain(random.choices(elements, k=8), elements[first:], elements[:first]):
            if isinstance(element, Endpoint) and accept(element.address):
                return element
        return None


def of_answer(name: str, cluster: str, answer: dict) -> Batch:
    """The batch in the answer to a pick with n; cluster is "" for a target. Raises ValueError if it is not one."""
    endpoints: dict[tuple[str, str], Endpoint] = {}
    elements: list[Union[Endpoint, Refusal]] = []
    for pick in answer["picks"]:
        endpoint = Endpoint(cluster, pick)
        elements.append(endpoints.setdefault((endpoint.cluster, endpoint.address), endpoint))
    for category, count in (answer.get("dropped") or {}).items():
        elements += [Refusal(dropped(name, category))] * _refusals(count)
    elements += [Refusal(circuit_broken(name))] * _refusals(answer.get("circuit_broken") or 0)
    if not elements:
        raise ValueError("a batch without picks")
    return Batch(cluster, int(answer["generation"]), elements)


def _refusals(count: object) -> int:
    if not isinstance(count, int) or not 0 <= count <= REFUSALS_MAX:
        raise ValueError(f"a count of refusals that is not 0 to {REFUSALS_MAX}")
    return count


def of_refusal(error: errors.LbdError) -> Batch:
    """A batch of nothing but a refusal: lbd refused each pick."""
    return Batch("", None, [Refusal(error)])


def dropped(cluster: str, category: str) -> errors.Dropped:
    return errors.Dropped(
        f"cluster {cluster}: drop category {category} dropped the request", cluster=cluster, code="dropped"
    )


def circuit_broken(cluster: str) -> errors.CircuitBroken:
    return errors.CircuitBroken(
        f"cluster {cluster}: the circuit breaker is full", cluster=cluster, code="circuit_broken"
    )
