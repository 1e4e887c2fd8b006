"""The data sets: one file each, each holding one `DATASET`; they are fetched or generated once, and read from disk.

The docstring of a file begins with what the data set is; a list shows that line.
Rules: what is read is `real`, unpacked from archives with the right SHA-256, or `synthetic`, generated, the same
bytes on every machine. Both have the same files of the same sizes and are read by the same code; which of the two
it is goes with them. Nothing half is ever read: a folder counts only when `origin.txt` says whole what it was made
from, and that file is put there last. The caller says in which folder the data lie.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Literal

from mldyno.datasets._folder import BadFile, Progress, Tally, check_room, in_one_line, locked, put_in_place
from mldyno.datasets._rows import Rows
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.files import regular

Source = Literal["real", "synthetic"]
ORIGIN = "origin.txt"
WANTED = ("real", "synthetic", "auto")


class Split:
    """The items for training or for testing: pixels as bytes in the order of `shape`, and labels from 0."""

    def __init__(self, shape: tuple[int, ...], pixels: Rows, labels: Rows) -> None:
        self.count, self.shape = pixels.count, shape
        self._pixels, self._labels = pixels, labels

    def pixels(self, index: int) -> bytes:
        """The pixels of one item: channels, rows, columns."""
        return self._pixels[index]

    def label(self, index: int) -> int:
        """The class of one item."""
        return self._labels[index][0]


@dataclass(frozen=True)
class Archive:
    """A file as the mirrors have it, with its size in B."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class DataSet:
    """What is read, where it comes from, and how it is made."""

    name: str
    title: str
    """Its proper name, for messages."""
    archives: tuple[Archive, ...]
    mirrors: tuple[str, ...]
    """Addresses that hold the archives, in the order in which they are tried; each ends with a slash."""
    files: Mapping[str, int]
    """The unpacked files and their sizes in B, the same for both sources."""
    classes: int
    mean: tuple[float, ...]
    """Mean of each channel over the real training items, of pixels in 0..1."""
    spread: tuple[float, ...]
    """Standard deviation of each channel, likewise."""
    unpack: Callable[[Path, Path, Callable[[int], None]], None]
    """Unpacks the archives of a folder into another one; calls back with the B that it wrote."""
    generate: Callable[[Path, Callable[[int], None]], None]
    """Writes the synthetic files into a folder; calls back with the B that it wrote."""
    generation: int
    """Version of what is generated: raised whenever one byte of it changes, so that old files are not taken for new."""
    read: Callable[[Path], tuple[Split, Split]]
    """The items of a folder, for training and for testing; raises `BadFile` if it is not just as it should be."""


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
    """The data set of that name."""
    files = (file[:-3] for file in os.listdir(os.path.dirname(__file__)) if file.endswith(".py"))
    names = sorted(file.replace("_", "-") for file in files if not file.startswith("_"))
    if name not in names:
        raise unknown("data set", name, names)
    data_set: DataSet = import_module(f"mldyno.datasets.{name.replace('-', '_')}").DATASET
    return data_set


def prepare(name: str, wanted: str, folder: str | os.PathLike[str], progress: Progress) -> Source:
    """Make sure that the data set is in the folder, as `real`, `synthetic` or `auto`, and say which it is."""
    return prepare_set(find(name), wanted, Path(folder), progress)


def prepare_set(data_set: DataSet, wanted: str, folder: Path, progress: Progress) -> Source:
    """As `prepare`; `auto` is real where that is there or can be had, and else says why not and is synthetic."""
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
    """The data set as it lies in the folder; it must have been prepared."""
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
    """What the files of a folder were made from, in full: the only words under which they are read."""
    if source == "synthetic":
        return f"synthetic, generation {data_set.generation}\n"
    return "real, from\n" + "".join(f"{archive.sha256}  {archive.name}\n" for archive in data_set.archives)


def _read(data_set: DataSet, source: Source, place: Path) -> tuple[Split, Split]:
    try:
        expected = _origin(data_set, source).encode()
        with open(place / ORIGIN, "rb", opener=regular) as file:
            origin = file.read(len(expected) + 1)
        if origin != expected:
            raise BadFile(place / ORIGIN, "the files beside it were made from something else")
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
    """Make what is not there yet, with no other process at it; what is there needs no right to write."""
    place = _place(data_set, source, folder)
    if _is_there(data_set, source, place):
        return source
    needed = sum(data_set.files.values()) + sum(archive.size for archive in data_set.archives if source == "real")
    with in_one_line(data_set.title, folder, needed):
        folder.mkdir(parents=True, exist_ok=True)
        waiting = Tally(progress, f"waiting for another process that prepares {data_set.title}", None)
        with locked(folder / f".{data_set.name}.lock", waiting):
            if not _is_there(data_set, source, place):
                (_make_real if source == "real" else _make_synthetic)(data_set, folder, place, progress)
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


def _make_synthetic(data_set: DataSet, folder: Path, place: Path, progress: Progress) -> None:
    check_room(data_set.title, folder, sum(data_set.files.values()))
    _make(data_set, "synthetic", place, data_set.generate, progress)


def _make(data_set: DataSet, source: Source, place: Path, write: Callable[..., None], progress: Progress) -> None:
    """Let the files be written into a folder, and put them in their place if they are what they should be."""
    job = f"unpacking {data_set.title}" if source == "real" else f"generating synthetic {data_set.title}"
    tally = Tally(progress, job, sum(data_set.files.values()))

    def fill(beside: Path) -> None:
        write(beside, tally.add)
        _check(data_set, beside)

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
