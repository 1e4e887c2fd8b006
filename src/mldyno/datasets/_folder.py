"""Files that come into being whole or not at all, one process at a time, and what is said where that fails.

Rules: whatever is written lies beside its place until it is complete and on the disk; what another process or an
earlier mldyno left is never mixed with it; an error of the disk is one line that names the folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mldyno.errors import MldynoError
from mldyno.files import regular
from mldyno.units import show_bytes

Progress = Callable[[str, int, "int | None"], None]
"""Told now and then what is done, how many B of it, and how many there are if that is known."""

PROGRESS_PERIOD_S = 0.2  # between two reports of progress
LOCK_RETRY_S = 0.1  # between two tries to get a lock
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OR_ELSEWHERE = "or name another folder with MLDYNO_DATA"


class BadFile(MldynoError):
    """A file is not what it should be."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path}: {fault}")


class Tally:
    """Counts the B of one job, and reports it a few times a second."""

    def __init__(self, progress: Progress, what: str, total: int | None) -> None:
        self._progress, self._what, self._total, self.done = progress, what, total, 0
        self._reported = float("-inf")

    def add(self, count: int) -> None:
        """So many B more are done."""
        self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """So many B are done in all."""
        self.done = done
        now = time.monotonic()
        if now - self._reported >= PROGRESS_PERIOD_S or self.done == self._total:
            self._reported = now
            self._progress(self._what, self.done, self._total)


@contextmanager
def in_one_line(title: str, folder: Path, needed: int) -> Iterator[None]:
    """Turn what the disk refuses into one line; `needed` is what the data set takes in B."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
            raise MldynoError(
                f"no room left in {folder}: {title} takes {show_bytes(needed)} there; free some, {OR_ELSEWHERE}."
            ) from None
        raise MldynoError(
            f"{error.filename or folder}: {error.strerror or error}; mend that, {OR_ELSEWHERE}."
        ) from None


def check_room(title: str, folder: Path, needed: int) -> None:
    """Raise unless the folder's disk has so many B free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MldynoError(
            f"no room in {folder}: {title} needs {show_bytes(needed)}, and {show_bytes(free)} are free; "
            f"free some, {OR_ELSEWHERE}."
        )


@contextmanager
def locked(path: Path, waiting: Tally) -> Iterator[None]:
    """Hold the lock of a file, which the kernel takes back when its owner dies; meanwhile say that we wait."""
    with open(path, "ab", opener=regular) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting.add(0)
                time.sleep(LOCK_RETRY_S)
        yield


def put_in_place(place: Path, origin: str, content: str, fill: Callable[[Path], None]) -> None:
    """Let a folder be filled beside its place, and move its files there when they are on the disk.

    The file `origin` goes first and comes last: without it the folder counts as empty.
    """
    beside = place.with_name(f".{place.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir()
        fill(beside)
        names = sorted(file.name for file in beside.iterdir())
        (beside / origin).write_text(content, encoding="utf-8")
        for name in [*names, origin]:
            sync(beside / name)
        place.mkdir(exist_ok=True)
        (place / origin).unlink(missing_ok=True)
        sync(place)
        for name in names:
            os.replace(beside / name, place / name)
        sync(place)
        os.replace(beside / origin, place / origin)
        sync(place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
