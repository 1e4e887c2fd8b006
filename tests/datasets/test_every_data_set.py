"""The contract of every data set: stated in full, generated the same everywhere, and possible to learn."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from operator import mul
from pathlib import Path

import pytest

from mldyno import plugins
from mldyno.datasets import DataSet, Opened, Split, find, open_set, prepare

Made = tuple[Path, Opened]
NAMES = plugins.names("datasets")
GENERATED = {
    ("mnist", 1): "bb8e13ed3da888f45a0e78f3c8da1dded38f829f20fc3e57d330c9f774dcaf14",
    ("cifar10", 1): "e2875024689e82c930eaf7eb7d2b5641ac531ee149d92f1dd6d60c8f7cbf76a9",
}
"""SHA-256 of the generated files, in the order of their names, for each generation: what was once is never changed."""


@pytest.fixture(scope="module", params=NAMES)
def synthetic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Each data set, generated."""
    folder = tmp_path_factory.mktemp(request.param)
    told: list[tuple[str, int, int | None]] = []
    assert prepare(request.param, "synthetic", folder, lambda *words: told.append(words)) == "synthetic"
    size = sum(find(request.param).files.values())
    assert told[-1] == (f"generating synthetic {find(request.param).title}", size, size)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    yield folder / f"{request.param}-synthetic", open_set(request.param, "synthetic", folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_as_its_file_and_says_what_it_is(name: str) -> None:
    assert find(name).name == name
    assert len(plugins.about("datasets", name)[0]) > 10


@pytest.mark.parametrize("name", NAMES)
def test_it_states_in_full_what_is_fetched_and_from_where(name: str) -> None:
    data_set: DataSet = find(name)
    for archive in data_set.archives:
        assert re.fullmatch("[0-9a-f]{64}", archive.sha256)
        assert re.fullmatch(r"[\w.-]+", archive.name)
        assert archive.size > 0
    for mirror in data_set.mirrors:
        assert mirror.startswith("https://")
        assert mirror.endswith("/")
    assert len(data_set.mean) == len(data_set.spread)
    assert all(0 < mean < 1 and 0 < spread < 1 for mean, spread in zip(data_set.mean, data_set.spread, strict=True))


def test_what_is_generated_is_the_same_bytes_as_ever(synthetic: Made) -> None:
    folder, opened = synthetic
    data_set, digest = find(opened.name), hashlib.sha256()
    for name in sorted(data_set.files):
        digest.update((folder / name).read_bytes())
    assert GENERATED.get((data_set.name, data_set.generation)) == digest.hexdigest()


def test_its_items_have_their_shape_and_equally_many_of_each_class(synthetic: Made) -> None:
    _, opened = synthetic
    classes = find(opened.name).classes
    assert (opened.source, len(opened.mean)) == ("synthetic", opened.train.shape[0])
    for split in (opened.train, opened.test):
        channels, height, width = split.shape
        assert len(split.pixels(0)) == len(split.pixels(split.count - 1)) == channels * height * width
        share = dict.fromkeys(range(classes), split.count // classes)
        assert Counter(split.label(index) for index in range(split.count)) == share
        first = [split.label(index) for index in range(20 * classes)]
        assert first != sorted(first)
        assert set(first) == set(range(classes))


def test_no_two_items_are_the_same(synthetic: Made) -> None:
    _, opened = synthetic
    seen = {split.pixels(index) for split in (opened.train, opened.test) for index in range(2000)}
    assert len(seen) == 4000


def test_its_pixels_lie_about_zero_once_they_are_normalised_as_the_real_ones_are(synthetic: Made) -> None:
    _, opened = synthetic
    channels, height, width = opened.train.shape
    for channel in range(channels):
        here = slice(channel * height * width, (channel + 1) * height * width)
        some = b"".join(opened.train.pixels(index)[here] for index in range(300))
        found = Counter(some)
        mean = sum(value * count for value, count in found.items()) / len(some) / 255
        spread = (sum(value**2 * count for value, count in found.items()) / len(some) / 255**2 - mean**2) ** 0.5
        assert abs(mean - opened.mean[channel]) < 0.5 * opened.spread[channel]
        assert 0.5 < spread / opened.spread[channel] < 1.5


def means(split: Split, classes: int, items: int) -> list[list[float]]:
    """The mean picture of each class over the first items; every third pixel."""
    sums = [[0.0] * len(split.pixels(0)[::3]) for _ in range(classes)]
    for index in range(items):
        label = split.label(index)
        sums[label] = [a + b for a, b in zip(sums[label], split.pixels(index)[::3], strict=True)]
    count = Counter(split.label(index) for index in range(items))
    return [[value / count[label] for value in row] for label, row in enumerate(sums)]


def test_the_nearest_mean_picture_tells_most_items_that_it_never_saw(synthetic: Made) -> None:
    _, opened = synthetic
    classes = find(opened.name).classes
    pictures = means(opened.train, classes, 1000)
    offsets = [sum(map(mul, picture, picture)) / 2 for picture in pictures]
    right = 0
    for index in range(200):
        pixels = opened.test.pixels(index)[::3]
        scores = [sum(map(mul, picture, pixels)) - offset for picture, offset in zip(pictures, offsets, strict=True)]
        right += scores.index(max(scores)) == opened.test.label(index)
    assert right / 200 > 0.6


def test_a_worker_that_reads_imports_nothing_of_the_network() -> None:
    modules = ", ".join(f"mldyno.datasets.{name.replace('-', '_')}" for name in NAMES)
    code = f"import sys, {modules}; print({{'ssl', 'http.client', 'urllib.request'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
