"""A data set of 300 items made here, for tests of what all data sets share; as a script it prepares itself.

    python tiny_set.py FOLDER WANTED MIRROR...

prints which source it is, or the one line of an error. A script that is started by root becomes nobody first if
MLDYNO_TEST_NOBODY is set, since root may write anywhere.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from mldyno.datasets import Archive, DataSet, Split, _fetch, _formats, _synthetic, prepare_set
from mldyno.errors import MldynoError

NOBODY = 65534
SIDE, CLASSES = 28, 10
SHAPES: dict[str, tuple[int, ...]] = {
    "train-images": (200, SIDE, SIDE), "train-labels": (200,), "test-images": (100, SIDE, SIDE), "test-labels": (100,),
}  # fmt: skip
LABELS = {split: _synthetic.labels(split, SHAPES[f"{split}-labels"][0], CLASSES) for split in ("train", "test")}


def contents(kind: str) -> dict[str, bytes]:
    """The unpacked files, of random pixels that no packing makes smaller."""
    found = {}
    for name, shape in SHAPES.items():
        pixels = hashlib.shake_128(f"{kind} {name}".encode()).digest(_formats.idx_size(shape))
        body = LABELS[name.partition("-")[0]] if name.endswith("labels") else pixels
        found[name] = (_formats.idx_header(shape) + body)[: _formats.idx_size(shape)]
    return found


FILES = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in contents("real").items()}
"""The archives as a mirror has them."""


def unpack(archives: Path, folder: Path, wrote: Callable[[int], None]) -> None:
    for name, shape in SHAPES.items():
        _formats.unpack_idx(archives / f"{name}.gz", folder / name, shape, wrote)


def generate(folder: Path, wrote: Callable[[int], None]) -> None:
    for name, content in contents("synthetic").items():
        with open(folder / name, "xb") as file:
            wrote(file.write(content))


def read(folder: Path) -> tuple[Split, Split]:
    rows = {name: _formats.idx_rows(folder / name, shape) for name, shape in SHAPES.items()}
    train, test = (Split((1, SIDE, SIDE), rows[f"{one}-images"], rows[f"{one}-labels"]) for one in ("train", "test"))
    return train, test


def tiny(*mirrors: str) -> DataSet:
    """The tiny set, held by these mirrors."""
    return DataSet(
        name="tiny",
        title="TINY",
        archives=tuple(Archive(name, hashlib.sha256(file).hexdigest(), len(file)) for name, file in FILES.items()),
        mirrors=mirrors,
        files={name: _formats.idx_size(shape) for name, shape in SHAPES.items()},
        classes=CLASSES,
        mean=(0.5,),
        spread=(0.3,),
        unpack=unpack,
        generate=generate,
        generation=1,
        read=read,
    )


def main(folder: str, wanted: str, *mirrors: str) -> None:
    assert _fetch  # all that is imported is imported while that is allowed
    if os.environ.get("MLDYNO_TEST_NOBODY") and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        print(prepare_set(tiny(*mirrors), wanted, Path(folder), lambda *_: None))
    except MldynoError as error:
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
