"""Formats of data sets: rows in memory-mapped files, IDX files of bytes as MNIST has them, and archives.

Of an archive, only known files of known sizes are written. The header of an IDX file is big-endian: two zeros, 8 for
unsigned bytes, the number of dimensions, and 4 B for each of them.
"""

from __future__ import annotations

import gzip
import io
import itertools
import math
import mmap
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from mldyno.datasets import BadFile
from mldyno.files import regular

CHUNK_B = 1 << 20  # held in memory at a time
MOST_BESIDE_B = 16 << 20  # of an archive, beside the files that are wanted
# What gzip and tarfile raise at content that they do not expect, such as thousands of headers that only name the next.
BROKEN_ERRORS = (EOFError, ValueError, RecursionError, zlib.error, gzip.BadGzipFile, tarfile.TarError)


@dataclass
class Rows:
    """The same bytes of each record, in files with equal numbers of records; lengths in B.

    It can be pickled for the worker processes of a loader: the copy maps the files anew.
    """

    files: Sequence[Path]
    header: int
    record: int
    each: int  # records in a file
    at: int  # where in its record a row begins
    length: int

    def __post_init__(self) -> None:
        self._maps = [self._mapped(file) for file in self.files]
        self.count = self.each * len(self.files)

    def _mapped(self, path: Path) -> mmap.mmap:
        size = self.header + self.each * self.record
        with open(path, "rb", opener=regular) as file:
            length = os.fstat(file.fileno()).st_size
            if length != size:
                raise BadFile(path, f"has {length:,} B, not {size:,} B")
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < self.count:
            raise IndexError(f"no item {index}: there are {self.count}")
        number, place = divmod(index, self.each)
        begin = self.header + place * self.record + self.at
        return self._maps[number][begin : begin + self.length]

    def __reduce__(self) -> tuple[type[Rows], tuple[object, ...]]:
        return Rows, (self.files, self.header, self.record, self.each, self.at, self.length)


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Yield the content of a file, unpacked if it is a gzip file; raise `BadFile` where it is broken."""
    with open(path, "rb", opener=regular) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            if packed:
                with gzip.open(raw) as unpacked:
                    yield unpacked
            else:
                yield raw
        except BROKEN_ERRORS as error:
            raise BadFile(path, f"is broken or cut short ({error or type(error).__name__})") from None


class Bounded:
    """A stream of an archive that may hold so many B and no more: a few packed MB can be as many GB."""

    def __init__(self, archive: Path, stream: io.BufferedIOBase, size: int) -> None:
        self._archive, self._stream, self._left = archive, stream, size

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise BadFile(self._archive, "unpacks to far more than the files that it should hold")
        return chunk


def copy(source: io.BufferedIOBase | IO[bytes], target: BinaryIO, size: int, wrote: Callable[[int], None]) -> int:
    """Copy `size` B, or as many as there are; return how many were missing."""
    while size and (chunk := source.read(min(CHUNK_B, size))):
        target.write(chunk)
        wrote(len(chunk))
        size -= len(chunk)
    return size


def untar(
    archive: Path, members: Mapping[str, str], sizes: Mapping[str, int], folder: Path, wrote: Callable[[int], None]
) -> None:
    """Write the members of a tar file, under the names that they are given here, into a folder; sizes are exact."""
    missing = dict(members)
    with opened(archive) as content:
        stream = Bounded(archive, content, sum(sizes[name] for name in members.values()) + MOST_BESIDE_B)
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
            for member in tar:
                name = missing.pop(member.name, None)
                if not name:
                    continue
                source, size = tar.extractfile(member) if member.isreg() else None, sizes[name]
                if source is None or member.size != size:
                    raise BadFile(archive, f"{member.name} is no plain file of {size:,} B")
                with open(folder / name, "xb") as file:
                    if lacking := copy(source, file, size, wrote):
                        raise BadFile(archive, f"{member.name} lacks {lacking:,} B")
        while stream.read(CHUNK_B):
            pass  # only at its end does a gzip file show whether it is whole
    if missing:
        raise BadFile(archive, f"holds no {', '.join(missing)}")


def idx_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of a file of that shape, whose first number counts the items."""
    return bytes((0, 0, 8, len(shape))) + b"".join(size.to_bytes(4, "big") for size in shape)


def idx_size(shape: tuple[int, ...]) -> int:
    """Return the length in B of a file of that shape."""
    return len(idx_header(shape)) + math.prod(shape)


def idx_rows(path: Path, shape: tuple[int, ...]) -> Rows:
    """Return the items of a file that must have that shape."""
    expected = idx_header(shape)
    with open(path, "rb", opener=regular) as file:
        _check_idx(path, file.read(len(expected)), shape)
    length = math.prod(shape[1:])
    return Rows([path], header=len(expected), record=length, each=shape[0], at=0, length=length)


def unpack_idx(source: Path, target: Path, shape: tuple[int, ...], wrote: Callable[[int], None]) -> None:
    """Copy a file that must have that shape, packed by gzip or plain, to a plain one."""
    with opened(source) as stream, open(target, "xb") as file:
        start = stream.read(len(idx_header(shape)))
        _check_idx(source, start, shape)
        file.write(start)
        wrote(len(start))
        lacking = copy(stream, file, math.prod(shape), wrote)
        if lacking or stream.read(1):
            raise BadFile(source, f"lacks {lacking:,} B" if lacking else "goes on after its last item")


def write_idx(path: Path, shape: tuple[int, ...], chunks: Iterable[bytes], wrote: Callable[[int], None]) -> None:
    """Write a file of that shape from its bytes in pieces."""
    with open(path, "xb") as file:
        for chunk in itertools.chain([idx_header(shape)], chunks):
            file.write(chunk)
            wrote(len(chunk))


def _check_idx(path: Path, start: bytes, shape: tuple[int, ...]) -> None:
    expected = idx_header(shape)
    if start[:4] != expected[:4]:
        raise BadFile(path, f"begins with {start[:4].hex() or 'nothing'}, not {expected[:4].hex()}: no such IDX file")
    if start != expected:
        dimensions = [int.from_bytes(start[at : at + 4], "big") for at in range(4, len(start), 4)]
        raise BadFile(path, f"has the dimensions {_dimensions(dimensions)}, not {_dimensions(shape)}")


def _dimensions(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes)) or "none"
