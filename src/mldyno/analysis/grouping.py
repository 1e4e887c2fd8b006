"""Things in groups: what every question that is asked of several outcomes begins with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by what the key gives for each, all in the order in which they came."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups
