"""Takes known files of known sizes out of archives; whatever else an archive holds is never written anywhere."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from mldyno.datasets._folder import BadFile
from mldyno.files import regular

CHUNK_B = 1 << 20  # held in memory at a time


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """What a file holds, unpacked if it is a gzip file; a broken one raises `BadFile`."""
    with open(path, "rb", opener=regular) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            if packed:
                with gzip.open(raw) as unpacked:
                    yield unpacked
            else:
                yield raw
        except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
            raise BadFile(path, f"is broken or cut short ({error or type(error).__name__})") from None


def copy(source: io.BufferedIOBase | IO[bytes], target: BinaryIO, size: int, wrote: Callable[[int], None]) -> int:
    """Copy so many B, or as many as there are, and give how many were missing."""
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
    with opened(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                if name := missing.pop(member.name, None):
                    _take(archive, tar, member, folder / name, sizes[name], wrote)
        while stream.read(CHUNK_B):
            pass  # only at its end does a gzip file show whether it is whole
    if missing:
        raise BadFile(archive, f"holds no {', '.join(missing)}")


def _take(
    archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, size: int, wrote: Callable[[int], None]
) -> None:
    source = tar.extractfile(member) if member.isreg() else None
    if source is None or member.size != size:
        raise BadFile(archive, f"{member.name} is no plain file of {size:,} B")
    with open(target, "xb") as file:
        if lacking := copy(source, file, size, wrote):
            raise BadFile(archive, f"{member.name} lacks {lacking:,} B")
