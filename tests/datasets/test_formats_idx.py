"""IDX files are read to the byte, and whatever is not just one is refused."""

from __future__ import annotations

import gzip
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mldyno.datasets import BadFile, _formats, mnist

SHAPE = (3, 2, 2)
ITEMS = [bytes(range(4)), bytes(range(4, 8)), bytes(range(8, 12))]
GOOD = bytes.fromhex("00000803 00000003 00000002 00000002") + b"".join(ITEMS)

HOSTILE = {
    "empty": (b"", "begins with nothing, not 00000803"),
    "an error page": (b"<!DOCTYPE html><title>404</title>", "begins with 3c21444f, not 00000803"),
    "of another type": (b"\0\0\x0d\3" + GOOD[4:], "begins with 00000d03"),
    "of labels": (b"\0\0\x08\1" + GOOD[4:8] + b"\1\2\3", "begins with 00000801"),
    "without dimensions": (GOOD[:4], "has the dimensions none, not 3 x 2 x 2"),
    "of other dimensions": (GOOD[:7] + b"\4" + GOOD[8:], "has the dimensions 4 x 2 x 2, not 3 x 2 x 2"),
    "of huge dimensions": (GOOD[:4] + b"\xff" * 12 + GOOD[16:], "has the dimensions 4294967295 x"),
}


def unpacked(folder: Path, content: bytes) -> bytes:
    (folder / "source").write_bytes(content)
    (folder / "target").unlink(missing_ok=True)
    wrote: list[int] = []
    _formats.unpack_idx(folder / "source", folder / "target", SHAPE, wrote.append)
    assert sum(wrote) == len(GOOD)
    return (folder / "target").read_bytes()


@pytest.mark.parametrize("packed", [GOOD, gzip.compress(GOOD)], ids=["plain", "gzip"])
def test_plain_and_packed_files_are_the_same(tmp_path: Path, packed: bytes) -> None:
    assert unpacked(tmp_path, packed) == GOOD
    rows = _formats.idx_rows(tmp_path / "target", SHAPE)
    assert [rows[index] for index in range(rows.count)] == ITEMS


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    wrote: list[int] = []
    _formats.write_idx(tmp_path / "file", SHAPE, ITEMS, wrote.append)
    assert (tmp_path / "file").read_bytes() == GOOD
    assert sum(wrote) == len(GOOD) == _formats.idx_size(SHAPE)


@pytest.mark.parametrize(("content", "fault"), HOSTILE.values(), ids=HOSTILE)
def test_a_file_with_another_header_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    for packed in (content, gzip.compress(content)):
        with pytest.raises(BadFile, match=fault):
            unpacked(tmp_path, packed)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadFile, match=fault):
        _formats.idx_rows(tmp_path / "file", SHAPE)


@pytest.mark.parametrize(("content", "fault"), [(GOOD[:-1], "lacks 1 B"), (GOOD + b"\0", "goes on after its last")])
def test_a_file_of_another_length_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    for packed in (content, gzip.compress(content)):
        with pytest.raises(BadFile, match=fault):
            unpacked(tmp_path, packed)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadFile, match=f"has {len(content)} B, not 28 B"):
        _formats.idx_rows(tmp_path / "file", SHAPE)


@given(st.data())
def test_a_packed_file_that_is_cut_short_or_changed_anywhere_is_refused_or_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = gzip.compress(GOOD, mtime=0)
    at = data.draw(st.integers(0, len(whole) - 1))
    folder = tmp_path_factory.mktemp("idx")
    with pytest.raises(BadFile):
        unpacked(folder, whole[:at])
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    with suppress(BadFile):
        assert unpacked(folder, bytes(changed)) == GOOD


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(GOOD + bytes(50 << 20))
    with pytest.raises(BadFile, match="goes on after its last item"):
        unpacked(tmp_path, bomb)
    assert (tmp_path / "target").stat().st_size == len(GOOD)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple))
def test_every_shape_has_the_size_that_it_is_said_to_have(shape: tuple[int, ...]) -> None:
    assert _formats.idx_size(shape) == 4 + 4 * len(shape) + math.prod(shape)


def test_archives_that_are_no_mnist_are_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    for name in mnist.SHAPES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(GOOD))
    with pytest.raises(BadFile, match=r"train-images-idx3-ubyte\.gz: has the dimensions 3 x 2 x 2, not 60000 x 28"):
        mnist.unpack(tmp_path, target, lambda _: None)
