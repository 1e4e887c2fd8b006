"""Real IDX files, those of Fashion-MNIST as Debian packs them, go the whole way of MNIST's."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mldyno.datasets import mnist

ARCHIVES = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unpacked files."""
    missing = [name for name in mnist.SHAPES if not (ARCHIVES / f"{name}.gz").exists()]
    assert not missing, f"no {', '.join(missing)} in {ARCHIVES}; on Debian: apt-get install dataset-fashion-mnist"
    made = tmp_path_factory.mktemp("fashion")
    mnist.unpack(ARCHIVES, made, lambda _: None)
    yield made
    shutil.rmtree(made)


def test_all_items_are_there(folder: Path) -> None:
    for split, count in zip(mnist.read(folder), (60_000, 10_000), strict=True):
        assert (split.count, split.shape) == (count, (1, 28, 28))
        assert Counter(split.label(index) for index in range(count)) == dict.fromkeys(range(10), count // 10)
        assert {len(split.pixels(index)) for index in range(count)} == {784}


def test_the_pixels_lie_as_they_should(folder: Path) -> None:
    """Clothes are photographed on black and lie in the middle: bright there, dark in the corners."""
    train, _ = mnist.read(folder)
    some = [train.pixels(index) for index in range(0, 60_000, 60)]
    assert sum(item[14 * 28 + 14] for item in some) > 100 * len(some)
    for corner in (0, 27, 27 * 28, 27 * 28 + 27):
        assert sum(item[corner] for item in some) < 5 * len(some)


def test_the_known_mean_and_spread_come_out(folder: Path) -> None:
    """Those that are commonly given for Fashion-MNIST: 0.286 and 0.353."""
    train, _ = mnist.read(folder)
    found: Counter[int] = Counter()
    for index in range(0, 60_000, 10):
        found.update(train.pixels(index))
    total = found.total()
    mean = sum(value * count for value, count in found.items()) / total / 255
    spread = (sum(value * value * count for value, count in found.items()) / total / 255**2 - mean**2) ** 0.5
    assert mean == pytest.approx(0.286, abs=0.003)
    assert spread == pytest.approx(0.353, abs=0.003)
