"""MNIST: 60,000 + 10,000 digits of 28 x 28 pixels in grey.

The real ones are handwritten, by LeCun, Cortes and Burges; the synthetic ones are as a pocket calculator shows them.
Format: IDX, one file of images and one of labels for training, and two for testing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from mldyno.datasets import Archive, DataSet, Split, _formats, _synthetic

SIDE, CLASSES = 28, 10
COUNTS = {"train": 60_000, "t10k": 10_000}
IMAGES, LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
SHAPES: dict[str, tuple[int, ...]] = {
    **{IMAGES.format(split): (count, SIDE, SIDE) for split, count in COUNTS.items()},
    **{LABELS.format(split): (count,) for split, count in COUNTS.items()},
}
ARCHIVES = (
    ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
    ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
    ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
    ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
)

WIDTH, HEIGHT = 12, 20  # pixels of a synthetic digit
SHIFTS = range(-2, 3)  # pixels by which it is moved, across and down
STROKES = (2, 3)  # pixels
INK, PAPER = (192, 63), (0, 15)  # least value and noise
LIT = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")  # segments of 0 to 9


def unpack(archives: Path, folder: Path, wrote: Callable[[int], None]) -> None:
    """Unpack the four files, each from its own archive."""
    for name, shape in SHAPES.items():
        _formats.unpack_idx(archives / f"{name}.gz", folder / name, shape, wrote)


def generate(folder: Path, wrote: Callable[[int], None]) -> None:
    """Write the four files, with digits of seven segments in many places and two strokes."""
    looks = [[_look(lit, *where) for where in itertools.product(SHIFTS, SHIFTS, STROKES)] for lit in LIT]
    for split, count in COUNTS.items():
        labels = _synthetic.labels(f"mnist {split}", count, CLASSES)
        blocks = _synthetic.items(f"mnist {split}", labels, looks, SIDE * SIDE)
        for name, chunks in ((IMAGES, map(b"".join, blocks)), (LABELS, [labels])):
            _formats.write_idx(folder / name.format(split), SHAPES[name.format(split)], chunks, wrote)


def read(folder: Path) -> tuple[Split, Split]:
    """Return the items for training and for testing."""
    rows = {name: _formats.idx_rows(folder / name, shape) for name, shape in SHAPES.items()}
    train, test = (Split((1, SIDE, SIDE), rows[IMAGES.format(split)], rows[LABELS.format(split)]) for split in COUNTS)
    return train, test


def _segments(lit: str, stroke: int) -> Iterator[tuple[int, int, int, int]]:
    """Return the lit segments as left, top, width and height, in pixels of the digit."""
    half = HEIGHT // 2
    places = {
        "a": (0, 0, WIDTH, stroke), "d": (0, HEIGHT - stroke, WIDTH, stroke), "g": (0, half - 1, WIDTH, stroke),
        "b": (WIDTH - stroke, 0, stroke, half), "c": (WIDTH - stroke, half, stroke, half),
        "f": (0, 0, stroke, half), "e": (0, half, stroke, half),
    }  # fmt: skip
    return (places[segment] for segment in lit)


def _look(lit: str, right: int, down: int, stroke: int) -> _synthetic.Look:
    """Return a digit, moved by some pixels."""
    inked = bytearray(SIDE * SIDE)
    for left, top, width, height in _segments(lit, stroke):
        for row in range(top, top + height):
            start = (row + down + (SIDE - HEIGHT) // 2) * SIDE + left + right + (SIDE - WIDTH) // 2
            inked[start : start + width] = b"\1" * width
    least, noise = (bytes(pair) + bytes(254) for pair in zip(PAPER, INK, strict=True))
    return _synthetic.look(bytes(inked.translate(least)), bytes(inked.translate(noise)))


DATASET = DataSet(
    name="mnist",
    title="MNIST",
    archives=tuple(Archive(*row) for row in ARCHIVES),
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    files={name: _formats.idx_size(shape) for name, shape in SHAPES.items()},
    classes=CLASSES,
    mean=(0.1307,),
    spread=(0.3081,),
    unpack=unpack,
    generate=generate,
    generation=1,
    read=read,
)
