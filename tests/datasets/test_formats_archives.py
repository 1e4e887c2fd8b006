"""Out of a tar file come the known files and nothing else, whatever else it holds."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from mldyno.datasets import BadFile, _formats, cifar10

MEMBERS = {"set/one.bin": "one.bin", "set/two.bin": "two.bin"}
SIZES = {"one.bin": 5000, "two.bin": 3}
ONE, TWO = bytes(range(250)) * 20, b"two"


def plain(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def packed(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), 1)


GOOD = packed([plain("set/one.bin", ONE), plain("set/readme.html", b"<p>"), plain("set/two.bin", TWO)])


def untarred(folder: Path, archive: bytes) -> dict[str, bytes]:
    """What comes out, after a look that nothing came out elsewhere."""
    (folder / "a.tar.gz").write_bytes(archive)
    (folder / "deep" / "out").mkdir(parents=True)
    try:
        _formats.untar(folder / "a.tar.gz", MEMBERS, SIZES, folder / "deep" / "out", lambda _: None)
    finally:
        assert sorted(file.name for file in folder.iterdir()) == ["a.tar.gz", "deep"]
        assert [file.name for file in (folder / "deep").iterdir()] == ["out"]
        assert not any(file.is_symlink() for file in folder.rglob("*"))
    return {file.name: file.read_bytes() for file in (folder / "deep" / "out").iterdir()}


def test_the_known_members_come_out_and_no_others(tmp_path: Path) -> None:
    assert untarred(tmp_path, GOOD) == {"one.bin": ONE, "two.bin": TWO}


@pytest.mark.parametrize("name", ["../one.bin", "set/../../one.bin", "/one.bin", "one.bin", "set//one.bin"])
def test_a_member_under_another_name_is_not_taken(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadFile, match=r"a\.tar\.gz: holds no set/one\.bin"):
        untarred(tmp_path, packed([plain(name, ONE), plain("set/two.bin", TWO)]))


@pytest.mark.parametrize(
    "member",
    [
        plain("set/one.bin", ONE + b"x"),
        plain("set/one.bin", ONE[:-1]),
        link("set/one.bin", "../../victim"),
        link("set/one.bin", "set/two.bin", tarfile.LNKTYPE),
        link("set/one.bin", "", tarfile.DIRTYPE),
        link("set/one.bin", "", tarfile.FIFOTYPE),
        link("set/one.bin", "", tarfile.CHRTYPE),
        link("set/one.bin", "", tarfile.BLKTYPE),
    ],
    ids=["longer", "shorter", "symlink", "hard link", "folder", "fifo", "character device", "block device"],
)
def test_a_member_that_is_no_plain_file_of_its_size_is_refused(
    tmp_path: Path, member: tuple[tarfile.TarInfo, bytes]
) -> None:
    with pytest.raises(BadFile, match=r"set/one\.bin is no plain file of 5,000 B"):
        untarred(tmp_path, packed([plain("set/two.bin", TWO), member]))


def test_of_two_members_with_one_name_the_first_is_taken(tmp_path: Path) -> None:
    twice = packed([plain("set/one.bin", ONE), plain("set/two.bin", TWO), plain("set/two.bin", b"owt")])
    assert untarred(tmp_path, twice)["two.bin"] == TWO


def header(kind: bytes, content: bytes, size: int | None = None) -> bytes:
    """A header of that kind with its content, as a tar file has it before a member; it may say another size."""
    member = tarfile.TarInfo("././@LongLink" if kind == tarfile.GNUTYPE_LONGNAME else "x")
    member.type, member.size = kind, len(content) if size is None else size
    return member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def sparse(**texts: str) -> bytes:
    """A member with headers that say where it has holes."""
    member = tarfile.TarInfo("set/one.bin")
    member.size = len(ONE)
    member.pax_headers = {f"GNU.sparse.{name}": text for name, text in texts.items()}
    return member.tobuf(tarfile.PAX_FORMAT) + ONE + bytes(-len(ONE) % tarfile.BLOCKSIZE)


@pytest.mark.parametrize(
    "headers",
    [
        header(tarfile.GNUTYPE_LONGNAME, b"a\0") * 3000,
        header(tarfile.XHDTYPE, b"11 path=ab\n") * 3000,
        sparse(map="0,x,1", size="5000"),
        sparse(major="1", minor="0", realsize="5000"),
    ],
    ids=["names of names", "headers of headers", "a map without numbers", "a map without its length"],
)
def test_headers_that_tarfile_does_not_expect_make_an_archive_broken(tmp_path: Path, headers: bytes) -> None:
    archive = gzip.compress(headers + gzip.decompress(GOOD), 1)
    with pytest.raises(BadFile, match=r"a\.tar\.gz: is broken or cut short"):
        untarred(tmp_path, archive)


MANY = 64  # MiB


@pytest.mark.parametrize(
    "content",
    [
        header(tarfile.REGTYPE, b"", MANY << 20) + bytes(MANY << 20) + gzip.decompress(GOOD),
        gzip.decompress(GOOD) + bytes(MANY << 20),
        header(tarfile.GNUTYPE_LONGNAME, b"", MANY << 20) + b"a" * (MANY << 20) + gzip.decompress(GOOD),
        header(tarfile.XHDTYPE, b"", MANY << 20) + b"a" * (MANY << 20) + gzip.decompress(GOOD),
    ],
    ids=["another member", "after the end", "a long name", "a header"],
)
def test_an_archive_that_unpacks_to_far_more_than_its_files_is_refused(tmp_path: Path, content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadFile, match=r"unpacks to far more than the files that it should hold"):
            untarred(tmp_path, gzip.compress(content, 1))
        assert tracemalloc.get_traced_memory()[1] < (MANY << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_an_archive_that_is_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(BadFile, match=r"a\.tar\.gz: is broken or cut short"):
        untarred(tmp_path, GOOD[: int(share * len(GOOD))])


@pytest.mark.parametrize(
    "content",
    [b"<!DOCTYPE html><title>404</title>", gzip.compress(b"<!DOCTYPE html>"), gzip.compress(bytes(600))],
    ids=["page", "packed page", "packed zeros"],
)
def test_what_is_no_tar_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadFile):
        untarred(tmp_path, content)


def test_cifar_10_is_read_as_it_was_packed(tmp_path: Path) -> None:
    """Six files of the full size, of which each record's first byte is its label."""
    batches = {name: bytes((number,)) * cifar10.EACH * cifar10.RECORD for number, name in enumerate(cifar10.FILES)}
    archive = tmp_path / cifar10.DATASET.archives[0].name
    held = {"batches.meta.txt": b"airplane\n", **batches, "readme.html": b"<html>"}
    archive.write_bytes(packed(plain(f"cifar-10-batches-bin/{name}", content) for name, content in held.items()))
    folder = tmp_path / "out"
    folder.mkdir()
    wrote: list[int] = []
    cifar10.unpack(tmp_path, folder, wrote.append)
    assert sum(wrote) == sum(cifar10.FILES.values())
    train, test = cifar10.read(folder)
    assert (train.count, test.count) == (50_000, 10_000)
    assert [train.label(index) for index in (0, 9_999, 10_000, 49_999)] == [0, 0, 1, 4]
    assert test.label(9_999) == 5
    assert train.pixels(20_000) == bytes((2,)) * 3072
    for file in folder.iterdir():
        file.unlink()
