"""Takes known files of known sizes out of archives; whatever else an archive holds is never written anywhere."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from mldyno.datasets._folder import BadFile

PIECE = 1 << 20  # B held in memory at a time


class Stream(Protocol):
    """Whatever bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """So many B, or fewer at the end."""


@contextmanager
def opened(path: Path) -> Iterator[Stream]:
    """What a file holds, unpacked if it is a gzip file; a broken one raises `BadFile`."""
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with broken(path):
            if packed:
                with gzip.open(raw) as unpacked:
                    yield unpacked
            else:
                yield raw


@contextmanager
def broken(path: Path) -> Iterator[None]:
    """Turn what the unpacking libraries raise into `BadFile`; what the disk raises is left alone."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise BadFile(path, f"is broken or cut short ({error or type(error).__name__})") from None


def copy(source: Stream, target: BinaryIO, size: int, wrote: Callable[[int], None]) -> int:
    """Copy so many B, or as many as there are, and give how many were missing."""
    while size and (piece := source.read(min(PIECE, size))):
        target.write(piece)
        wrote(len(piece))
        size -= len(piece)
    return size


def untar(archive: Path, members: Mapping[str, str], sizes: Mapping[str, int], folder: Path,
          wrote: Callable[[int], None]) -> None:  # fmt: skip
    """Write the members of a tar file, under the names that they are given here, into a folder; sizes are exact."""
    missing = dict(members)
    with open(archive, "rb") as raw, broken(archive), tarfile.open(fileobj=raw, mode="r:gz") as tar:
        for member in tar:
            name = missing.pop(member.name, None)
            if name is None:
                continue
            source = tar.extractfile(member) if member.isreg() else None
            if source is None or member.size != sizes[name]:
                raise BadFile(archive, f"{member.name} is no plain file of {sizes[name]:,} B")
            with open(folder / name, "xb") as target:
                lacking = copy(source, target, member.size, wrote)
            if lacking:
                raise BadFile(archive, f"{member.name} lacks {lacking:,} B")
    if missing:
        raise BadFile(archive, f"holds no {', '.join(missing)}")
