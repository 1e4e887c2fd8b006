"""Rows of one length in memory-mapped files: nothing is read before it is asked for, and nothing is read twice."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mldyno.datasets._folder import BadFile
from mldyno.files import regular


@dataclass
class Rows:
    """The same stretch of every record of some files that hold equally many records each; lengths in B.

    It can be pickled, as loaders with processes of their own do: the copy maps the files anew.
    """

    files: Sequence[Path]
    header: int
    record: int
    each: int
    """Records in a file."""
    at: int
    """Where in its record a row begins."""
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
