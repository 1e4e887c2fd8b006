"""IDX files of bytes, as MNIST has them: a magic number, the dimensions, and then the bytes, no more and no fewer.

The header is big-endian: two zeros, 8 for unsigned bytes, the number of dimensions, and 4 B for each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from mldyno.datasets._archives import copy, opened
from mldyno.datasets._folder import BadFile
from mldyno.datasets._rows import Rows
from mldyno.files import regular


def header(shape: tuple[int, ...]) -> bytes:
    """The header of a file of that shape, whose first number counts the items."""
    return bytes((0, 0, 8, len(shape))) + b"".join(size.to_bytes(4, "big") for size in shape)


def size(shape: tuple[int, ...]) -> int:
    """Length in B of a file of that shape."""
    return len(header(shape)) + math.prod(shape)


def rows(path: Path, shape: tuple[int, ...]) -> Rows:
    """The items of a file that must have that shape."""
    expected = header(shape)
    with open(path, "rb", opener=regular) as file:
        _check(path, file.read(len(expected)), shape)
    length = math.prod(shape[1:])
    return Rows([path], header=len(expected), record=length, each=shape[0], at=0, length=length)


def unpack(source: Path, target: Path, shape: tuple[int, ...], wrote: Callable[[int], None]) -> None:
    """Copy a file that must have that shape, packed by gzip or plain, to a plain one."""
    with opened(source) as stream, open(target, "xb") as file:
        start = stream.read(len(header(shape)))
        _check(source, start, shape)
        file.write(start)
        wrote(len(start))
        lacking = copy(stream, file, math.prod(shape), wrote)
        if lacking or stream.read(1):
            raise BadFile(source, f"lacks {lacking:,} B" if lacking else "goes on after its last item")


def write(path: Path, shape: tuple[int, ...], chunks: Iterable[bytes], wrote: Callable[[int], None]) -> None:
    """Write a file of that shape from its bytes in pieces."""
    with open(path, "xb") as file:
        for chunk in itertools.chain([header(shape)], chunks):
            file.write(chunk)
            wrote(len(chunk))


def _check(path: Path, start: bytes, shape: tuple[int, ...]) -> None:
    expected = header(shape)
    if start[:4] != expected[:4]:
        raise BadFile(path, f"begins with {start[:4].hex() or 'nothing'}, not {expected[:4].hex()}: no such IDX file")
    if start != expected:
        dimensions = [int.from_bytes(start[at : at + 4], "big") for at in range(4, len(start), 4)]
        raise BadFile(path, f"has the dimensions {_dimensions(dimensions)}, not {_dimensions(shape)}")


def _dimensions(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes)) or "none"
