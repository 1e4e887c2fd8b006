"""Items that can be learnt, the same bytes on every machine: looks of each class, and noise upon them.

Chance comes from SHAKE-128, which is a standard: no version of Python draws other numbers from it. A look gives each
pixel its least value and the bits of noise that are added to it; an item is one sum of two long integers.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

BLOCK = 1000  # items made at a time


class Look(NamedTuple):
    """A picture of a class, as two long integers with one byte a pixel."""

    least: int
    noise: int  # the bits of each pixel that chance may set above its least value; the two together are at most 255


def look(least: bytes, noise: bytes) -> Look:
    """Return a look from the least value and the bits of noise of every pixel."""
    return Look(int.from_bytes(least, "big"), int.from_bytes(noise, "big"))


def labels(seed: str, count: int, classes: int) -> bytes:
    """Return labels in a random order, equally many of each class."""
    keys = struct.unpack(f"<{count}Q", hashlib.shake_128(f"{seed} order".encode()).digest(8 * count))
    return bytes(index % classes for index in sorted(range(count), key=keys.__getitem__))


def items(seed: str, labels: bytes, looks: Sequence[Sequence[Look]], size: int) -> Iterator[list[bytes]]:
    """Yield the pixels of the items with these labels, in blocks; `size` is the B of an item."""
    for begin in range(0, len(labels), BLOCK):
        block = labels[begin : begin + BLOCK]
        chance = hashlib.shake_128(f"{seed} {begin}".encode()).digest(len(block) * (size + 2))
        choices = struct.unpack(f"<{len(block)}H", chance[: 2 * len(block)])
        made = []
        for place, (label, choice) in enumerate(zip(block, choices, strict=True)):
            least, noise = looks[label][choice % len(looks[label])]
            start = 2 * len(block) + place * size
            drawn = int.from_bytes(chance[start : start + size], "big")
            made.append((least + (drawn & noise)).to_bytes(size, "big"))
        yield made
