"""The data sets: one file each, each holding one `DATASET`; they are fetched or generated once, and read from disk.

The docstring of a file begins with what the data set is; a list shows that line.
Rules: what is read is `real`, unpacked from archives with the right SHA-256, or `synthetic`, generated, the same
bytes on every machine. Both have the same files of the same sizes and are read by the same code; which of the two
it is goes with them. Nothing half is ever read: a folder counts only when `origin.txt` says whole what it was made
from, and that file is put there last, when all is on the disk. What another process or an earlier mldyno left is
never mixed with it. The caller says in which folder the data lie.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.files import regular
from mldyno.units import show_bytes

if TYPE_CHECKING:
    from mldyno.datasets._formats import Rows

Source = Literal["real", "synthetic"]
ORIGIN = "origin.txt"
WANTED = ("real", "synthetic", "auto")
Progress = Callable[[str, int, "int | None"], None]  # what is done, the B done so far, and the total if it is known

Wrote = Callable[[int], None]  # called with the B that were written
PROGRESS_PERIOD_S = 0.2  # between two reports of progress
LOCK_RETRY_S = 0.1  # between two tries to get a lock
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OR_ELSEWHERE = "or name another folder with MLDYNO_DATA"


class BadFile(MldynoError):
    """A file is not what it should be."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path}: {fault}")


class Split:
    """The items for training or for testing: pixels as bytes in the order of `shape`, and labels from 0."""

    def __init__(self, shape: tuple[int, ...], pixels: Rows, labels: Rows) -> None:
        self.count, self.shape = pixels.count, shape
        self._pixels, self._labels = pixels, labels

    def pixels(self, index: int) -> bytes:
        """Return the pixels of an item: channels, rows, columns."""
        return self._pixels[index]

    def label(self, index: int) -> int:
        return self._labels[index][0]


@dataclass(frozen=True)
class Archive:
    """A file as the mirrors have it, with its size in B."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class DataSet:
    """A data set: its archives, how they are read, and how synthetic items are generated."""

    name: str
    title: str  # its proper name, for messages
    archives: tuple[Archive, ...]
    mirrors: tuple[str, ...]  # addresses that hold the archives, in the order in which they are tried; each ends in /
    files: Mapping[str, int]  # the unpacked files and their sizes in B, the same for both sources
    classes: int
    mean: tuple[float, ...]  # mean of each channel over the real training items, of pixels in 0..1
    spread: tuple[float, ...]  # standard deviation of each channel, likewise
    unpack: Callable[[Path, Path, Wrote], None]  # unpacks the archives of a folder into another one
    generate: Callable[[Path, Wrote], None]  # writes the synthetic files into a folder
    generation: int  # version of what is generated: raised whenever one byte changes, since old files are not new ones
    read: Callable[[Path], tuple[Split, Split]]  # the items for training and for testing of a folder; raises `BadFile`


@dataclass
class Opened:
    """A data set that can be read, and which of the two it is."""

    name: str
    source: Source
    train: Split
    test: Split
    mean: tuple[float, ...]
    spread: tuple[float, ...]


def find(name: str) -> DataSet:
    """Return the data set of that name."""
    files = (file[:-3] for file in os.listdir(os.path.dirname(__file__)) if file.endswith(".py"))
    names = sorted(file.replace("_", "-") for file in files if not file.startswith("_"))
    if name not in names:
        raise unknown("data set", name, names)
    data_set: DataSet = import_module(f"mldyno.datasets.{name.replace('-', '_')}").DATASET
    return data_set


def prepare(name: str, wanted: str, folder: str | os.PathLike[str], progress: Progress) -> Source:
    """Prepare a data set in the folder, as `real`, `synthetic` or `auto`; return which it is."""
    return prepare_set(find(name), wanted, Path(folder), progress)


def prepare_set(data_set: DataSet, wanted: str, folder: Path, progress: Progress) -> Source:
    """Prepare a data set; `auto` is real where that can be had, else it reports why not and is synthetic."""
    if wanted not in WANTED:
        raise unknown("kind of data", wanted, WANTED)
    if wanted == "synthetic":
        return _prepared(data_set, "synthetic", folder, progress)
    try:
        return _prepared(data_set, "real", folder, progress)
    except UsageError:
        raise
    except MldynoError as reason:
        if wanted == "real":
            raise
        progress(f"no real {data_set.title}: {reason}", 0, None)
        return _prepared(data_set, "synthetic", folder, progress)


def open_set(name: str, source: str, folder: str | os.PathLike[str]) -> Opened:
    """Open a data set that was prepared in the folder."""
    data_set = find(name)
    kind: Source = "real" if source == "real" else "synthetic"
    place = _place(data_set, kind, Path(folder))
    try:
        train, test = _read(data_set, kind, place)
    except BadFile as error:
        raise MldynoError(f"no {source} {data_set.title} to read: {error}; let it be prepared again.") from None
    return Opened(name, kind, train, test, data_set.mean, data_set.spread)


def _place(data_set: DataSet, source: Source, folder: Path) -> Path:
    return folder / (data_set.name if source == "real" else f"{data_set.name}-{source}")


def _origin(data_set: DataSet, source: Source) -> str:
    """Return what the files of a folder must have been made from, in full, to be read."""
    if source == "synthetic":
        return f"synthetic, generation {data_set.generation}\n"
    return "real, from\n" + "".join(f"{archive.sha256}  {archive.name}\n" for archive in data_set.archives)


def _read(data_set: DataSet, source: Source, place: Path) -> tuple[Split, Split]:
    try:
        expected = _origin(data_set, source).encode()
        with open(place / ORIGIN, "rb", opener=regular) as file:
            origin = file.read(len(expected) + 1)
        if origin != expected:
            raise BadFile(place / ORIGIN, "the files next to it were made from something else")
        return data_set.read(place)
    except OSError as error:
        raise BadFile(Path(error.filename or place), error.strerror or str(error)) from None


def _is_there(data_set: DataSet, source: Source, place: Path) -> bool:
    try:
        _read(data_set, source, place)
    except BadFile:
        return False
    return True


def _prepared(data_set: DataSet, source: Source, folder: Path, progress: Progress) -> Source:
    """Make a data set unless it is there, under a lock; one that is there needs no right to write."""
    place = _place(data_set, source, folder)
    if _is_there(data_set, source, place):
        return source
    needed = sum(data_set.files.values()) + sum(archive.size for archive in data_set.archives if source == "real")
    with in_one_line(data_set.title, folder, needed):
        folder.mkdir(parents=True, exist_ok=True)
        waiting = Tally(progress, f"waiting for another process that prepares {data_set.title}", None)
        with locked(folder / f".{data_set.name}.lock", waiting):
            if not _is_there(data_set, source, place):
                if source == "real":
                    _make_real(data_set, folder, place, progress)
                else:
                    check_room(data_set.title, folder, sum(data_set.files.values()))
                    _make(data_set, source, place, data_set.generate, progress)
    return source


def _make_real(data_set: DataSet, folder: Path, place: Path, progress: Progress) -> None:
    from mldyno.datasets import _fetch  # the network is imported only where it may be needed

    archives, mirrors = folder / f"{data_set.name}-archives", _fetch.mirrors(data_set)
    archives.mkdir(exist_ok=True)
    missing = [archive for archive in data_set.archives if not _fetch.is_right(archive, archives / archive.name)]
    to_come = sum(_fetch.left(archive, archives / archive.name) for archive in missing)
    check_room(data_set.title, folder, to_come + sum(data_set.files.values()))
    for archive in missing:
        _fetch.fetch(archive, archives / archive.name, mirrors, progress)
    for left_over in archives.glob("*.part"):  # of a process that was killed, while another one fetched the archive
        left_over.unlink()
    try:
        _make(data_set, "real", place, partial(data_set.unpack, archives), progress)
    except BadFile as error:
        raise MldynoError(f"{error}. Go on with --data synthetic.") from None


def _make(data_set: DataSet, source: Source, place: Path, write: Callable[..., None], progress: Progress) -> None:
    """Write the files, check them, and put them in their place."""
    job = f"unpacking {data_set.title}" if source == "real" else f"generating synthetic {data_set.title}"
    tally = Tally(progress, job, sum(data_set.files.values()))

    def fill(temporary: Path) -> None:
        write(temporary, tally.add)
        _check(data_set, temporary)

    put_in_place(place, ORIGIN, _origin(data_set, source), fill)


def _check(data_set: DataSet, folder: Path) -> None:
    """Raise unless the files are those that were promised, can be read, and hold labels of the classes only."""
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    if sizes != dict(data_set.files):
        raise BadFile(folder, f"holds {sizes}, not {dict(data_set.files)}")
    for split in data_set.read(folder):
        worst = max(split.label(index) for index in range(split.count))
        if worst >= data_set.classes:
            raise BadFile(folder, f"holds the label {worst}, but there are {data_set.classes} classes")


# -- folders that are whole or not there ------------------------------------------------------------
class Tally:
    """Counts the B of one job, and reports it a few times a second."""

    def __init__(self, progress: Progress, what: str, total: int | None) -> None:
        self._progress, self._what, self._total, self.done = progress, what, total, 0
        self._reported = float("-inf")

    def add(self, count: int) -> None:
        self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """Set the B done in all."""
        self.done = done
        now = time.monotonic()
        if now - self._reported >= PROGRESS_PERIOD_S or self.done == self._total:
            self._reported = now
            self._progress(self._what, self.done, self._total)


@contextmanager
def in_one_line(title: str, folder: Path, needed: int) -> Iterator[None]:
    """Turn errors of the disk into one line; `needed` is the size of the data set in B."""
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
    """Raise unless the folder's disk has `needed` B free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MldynoError(
            f"no room in {folder}: {title} needs {show_bytes(needed)}, and {show_bytes(free)} are free; "
            f"free some, {OR_ELSEWHERE}."
        )


@contextmanager
def locked(path: Path, waiting: Tally) -> Iterator[None]:
    """Hold the lock of a file, which the kernel releases when its owner dies; report while waiting for it."""
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
    """Fill a temporary folder, and move its files to their place when they are on the disk.

    The file `origin` is removed first and comes last: without it the folder counts as empty.
    """
    temporary = place.with_name(f".{place.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        fill(temporary)
        names = sorted(file.name for file in temporary.iterdir())
        (temporary / origin).write_text(content, encoding="utf-8")
        for name in [*names, origin]:
            sync(temporary / name)
        place.mkdir(exist_ok=True)
        (place / origin).unlink(missing_ok=True)
        sync(place)
        for name in names:
            os.replace(temporary / name, place / name)
        sync(place)
        os.replace(temporary / origin, place / origin)
        sync(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
