"""A file is replaced whole or not at all; links, modes, pipes and devices stay what they are."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mldyno.errors import MldynoError
from mldyno.temporary import atomic_file


def put(path: Path, content: bytes = b"new") -> None:
    with atomic_file(str(path)) as out:
        out.write(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    old, link, dangling = tmp_path / "far" / "old", tmp_path / "link", tmp_path / "dangling"
    old.write_bytes(b"old")
    link.symlink_to(Path("far", "old"))
    dangling.symlink_to(tmp_path / "far" / "none yet")
    before = old.stat().st_ino
    put(link)
    put(dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert (old.read_bytes(), (tmp_path / "far" / "none yet").read_bytes()) == (b"new", b"new")
    assert old.stat().st_ino != before, "replaced as a whole, not written over"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dangling", "far", "link", "none yet", "old"]


def test_a_circle_of_links_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(MldynoError, match="a: Too many levels of symbolic links; nothing was written"):
        put(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_symlink()) == ["a", "b"]


def test_the_mode_of_a_file_stays_and_a_new_one_has_that_of_the_umask(tmp_path: Path) -> None:
    secret, shared = tmp_path / "secret", tmp_path / "shared"
    for path, bits in ((secret, 0o600), (shared, 0o664)):
        path.touch()
        path.chmod(bits)
        put(path)
        assert (mode(path), path.read_bytes()) == (bits, b"new")
    for mask, bits in ((0o077, 0o600), (0o022, 0o644), (0o002, 0o664)):
        former = os.umask(mask)
        try:
            put(tmp_path / f"{mask}")
        finally:
            os.umask(former)
        assert mode(tmp_path / f"{mask}") == bits


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    put(tmp_path / "pipe")
    assert os.read(reading, 10) == b"new"
    os.close(reading)
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_device_is_written_into(tmp_path: Path) -> None:
    link, made = tmp_path / "link", tmp_path / "device"
    link.symlink_to("/dev/null")
    put(link)
    assert link.is_char_device()
    assert Path("/dev/null").is_char_device()
    link.unlink()
    link.symlink_to("/dev/full")
    with pytest.raises(MldynoError, match="link: No space left on device"):
        put(link)
    try:
        os.mknod(made, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:  # only root makes devices, and only root could lose one
        return
    put(made)
    assert made.is_char_device()


def test_the_file_behind_standard_output_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_bytes(b"old\n")
    link = tmp_path / "stdout"  # as /dev/stdout is, which a fault here must not reach
    link.symlink_to("/dev/fd/1" if sys.platform == "darwin" else "/proc/self/fd/1")
    code = f"from mldyno.temporary import *\nwith atomic_file({str(link)!r}) as out: out.write(b'new ')\nprint('end')"
    with out.open("ab") as target:
        subprocess.run([sys.executable, "-c", code], stdout=target, check=True)
    assert out.read_bytes() == b"old\nnew end\n"
