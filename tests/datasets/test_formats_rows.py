"""Rows in several files are counted on through all of them, and survive the way into another process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mldyno.datasets import BadFile, Split
from mldyno.datasets._formats import Rows


def two_files(folder: Path) -> list[Path]:
    """Each with a header of one byte and two records of a label and two pixels."""
    files = [folder / "first", folder / "second"]
    for file, content in zip(files, (b"h\0ab\1cd", b"h\2ef\3gh"), strict=True):
        file.write_bytes(content)
    return files


def split(folder: Path) -> Split:
    files = two_files(folder)
    labels = Rows(files, header=1, record=3, each=2, at=0, length=1)
    return Split((1, 1, 2), Rows(files, header=1, record=3, each=2, at=1, length=2), labels)


def test_items_are_counted_on_through_all_files(tmp_path: Path) -> None:
    found = split(tmp_path)
    assert (found.count, found.shape) == (4, (1, 1, 2))
    assert [found.pixels(index) for index in range(4)] == [b"ab", b"cd", b"ef", b"gh"]
    assert [found.label(index) for index in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("index", [-1, 4, 10**12])
def test_there_is_no_item_beyond_the_last_or_before_the_first(tmp_path: Path, index: int) -> None:
    found = split(tmp_path)
    with pytest.raises(IndexError, match="there are 4"):
        found.pixels(index)
    with pytest.raises(IndexError, match="there are 4"):
        found.label(index)


def test_a_pickled_split_reads_the_same(tmp_path: Path) -> None:
    copy = pickle.loads(pickle.dumps(split(tmp_path)))
    assert [copy.pixels(index) for index in range(4)] == [b"ab", b"cd", b"ef", b"gh"]
    assert (copy.count, copy.shape, copy.label(3)) == (4, (1, 1, 2), 3)


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    files[1].write_bytes(b"h\2ef\3g")
    with pytest.raises(BadFile, match="second: has 6 B, not 7 B"):
        Rows(files, header=1, record=3, each=2, at=0, length=1)


def test_files_that_are_replaced_while_they_are_read_are_read_on_as_they_were(tmp_path: Path) -> None:
    found = split(tmp_path)
    (tmp_path / "new").write_bytes(b"h\7xx\7xx")
    (tmp_path / "new").replace(tmp_path / "first")
    assert found.pixels(0) == b"ab"
