"""A data set is prepared once, by one process, whole; and whoever can't have it is told so in one line."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.datasets.mirrors import Handler, Mirror, honest, rest, send
from tests.datasets.tiny_set import FILES, contents, tiny

import mldyno.datasets
from mldyno.datasets import ORIGIN, Archive, find, open_set, prepare, prepare_set
from mldyno.errors import MldynoError, UsageError
from mldyno.units import show_bytes

Mirrors = Callable[..., Mirror]
InProcess = Callable[..., "subprocess.Popen[str]"]


def prepared(folder: Path, wanted: str, *mirrors: Mirror) -> str:
    """Prepare the tiny set, and check that just the whole of it lies there."""
    source = prepare_set(tiny(*(one.address for one in mirrors)), wanted, folder, lambda *_: None)
    place = folder / ("tiny" if source == "real" else "tiny-synthetic")
    found = {file.name: file.read_bytes() for file in place.iterdir() if file.name != ORIGIN}
    assert found == contents(source)
    assert not list(folder.rglob("*.part"))
    return source


def refused(folder: Path, wanted: str, *mirrors: Mirror) -> str:
    with pytest.raises(MldynoError) as error:
        prepared(folder, wanted, *mirrors)
    assert "\n" not in str(error.value)
    return str(error.value)


def room(source: str) -> int:
    """B that the tiny set takes: its files, and its archives if it is real."""
    files = sum(map(len, contents(source).values()))
    return files + (sum(map(len, FILES.values())) if source == "real" else 0)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a script and the one line that it printed."""
    out, err = process.communicate(timeout=60)
    assert err == ""
    assert out.count("\n") == 1
    return process.returncode, out.strip()


def falsifying(handler: Handler) -> None:
    status, headers, body = rest(handler)
    send(handler, status, headers, body[::-1])


def stalling(handler: Handler) -> None:
    status, headers, body = rest(handler)
    send(handler, status, headers, body[: len(body) // 2])
    handler.wfile.flush()
    handler.server.mirror.released.wait(30)


def leisurely(handler: Handler) -> None:
    time.sleep(0.3)
    honest(handler)


def test_the_real_set_is_fetched_once_and_needs_no_mirror_afterwards(tmp_path: Path, mirror: Mirrors) -> None:
    one = mirror()
    assert prepared(tmp_path, "real", one) == "real"
    assert sorted(path for path, _ in one.asked) == sorted(f"/{name}" for name in FILES)
    for wanted in ("real", "auto"):
        assert prepared(tmp_path, wanted) == "real"
    assert len(one.asked) == len(FILES)


def test_the_synthetic_set_is_generated_once_and_never_asks_a_mirror(tmp_path: Path, mirror: Mirrors) -> None:
    one = mirror()
    assert prepared(tmp_path, "synthetic", one) == "synthetic"
    made = (tmp_path / "tiny-synthetic" / ORIGIN).stat().st_ino
    assert prepared(tmp_path, "synthetic", one) == "synthetic"
    assert (tmp_path / "tiny-synthetic" / ORIGIN).stat().st_ino == made
    assert one.asked == []


def test_without_a_mirror_the_real_set_is_refused_and_auto_is_synthetic_and_says_why(
    tmp_path: Path, mirror: Mirrors
) -> None:
    dead = mirror()
    dead.end()
    line = refused(tmp_path, "real", dead)
    assert "127.0.0.1: Connection refused" in line
    assert f"Go on with --data synthetic, or put it at {tmp_path / 'tiny-archives' / 'train-images.gz'}." in line
    told: list[str] = []
    assert prepare_set(tiny(dead.address), "auto", tmp_path, lambda what, *_: told.append(what)) == "synthetic"
    assert told[0] == f"no real TINY: {line}"
    assert told[-1] == "generating synthetic TINY"


def test_auto_is_real_as_soon_as_that_can_be_had(tmp_path: Path, mirror: Mirrors) -> None:
    assert prepared(tmp_path, "auto", mirror(falsifying)) == "synthetic"
    assert prepared(tmp_path, "auto", mirror()) == "real"


def test_a_bad_checksum_leaves_nothing_behind(tmp_path: Path, mirror: Mirrors) -> None:
    assert "gave a file with another SHA-256" in refused(tmp_path, "real", mirror(falsifying))
    assert [file for file in tmp_path.rglob("*") if file.is_file() and not file.name.endswith(".lock")] == []


def test_an_archive_that_the_user_put_there_is_taken(tmp_path: Path, mirror: Mirrors) -> None:
    (tmp_path / "tiny-archives").mkdir()
    for name, file in FILES.items():
        (tmp_path / "tiny-archives" / name).write_bytes(file)
    assert prepared(tmp_path, "real") == "real"


@pytest.mark.parametrize("spoil", [lambda file: file[:-1], lambda file: file[::-1], lambda file: b""])
def test_an_archive_that_is_wrong_where_it_lies_is_fetched_anew(
    tmp_path: Path, mirror: Mirrors, spoil: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "tiny-archives").mkdir()
    for name, file in FILES.items():
        (tmp_path / "tiny-archives" / name).write_bytes(spoil(file))
    dead = mirror()
    dead.end()
    assert "train-images.gz is wrong where it lies, and can't be fetched" in refused(tmp_path, "real", dead)
    assert prepared(tmp_path, "real", mirror()) == "real"


@pytest.mark.parametrize("source", ["real", "synthetic"])
@pytest.mark.parametrize("damage", ["shorter", "gone", "without origin", "of another origin", "of another header"])
def test_what_is_not_whole_is_made_anew(tmp_path: Path, mirror: Mirrors, source: str, damage: str) -> None:
    one = mirror()
    prepared(tmp_path, source, one)
    place = tmp_path / ("tiny" if source == "real" else "tiny-synthetic")
    file, origin = place / "train-images", place / ORIGIN
    if damage == "shorter":
        os.truncate(file, 1000)
    elif damage == "gone":
        file.unlink()
    elif damage == "without origin":
        origin.unlink()
    elif damage == "of another origin":
        origin.write_text("synthetic, generation 0\n")
    else:
        file.write_bytes(b"\1" + file.read_bytes()[1:])
    (place / "notes of the user").write_text("mine")
    prepare_set(tiny(one.address), source, tmp_path, lambda *_: None)
    assert (place / "notes of the user").read_text() == "mine"
    (place / "notes of the user").unlink()
    assert prepared(tmp_path, source, one) == source
    assert len(one.asked) == (len(FILES) if source == "real" else 0)


def test_files_of_the_right_sizes_that_mldyno_did_not_put_there_do_not_pass_for_real(
    tmp_path: Path, mirror: Mirrors
) -> None:
    (tmp_path / "tiny").mkdir()
    for name, content in contents("somebody else's").items():
        (tmp_path / "tiny" / name).write_bytes(content)
    assert prepared(tmp_path, "real", mirror()) == "real"


def test_an_archive_that_is_cut_short_but_as_stated_leaves_nothing_behind(tmp_path: Path) -> None:
    """As if a data set's author had stated the SHA-256 of a broken archive."""
    cut = FILES["test-labels.gz"][:-9]
    stated = tuple(
        Archive(one.name, hashlib.sha256(cut).hexdigest(), len(cut)) if one.name == "test-labels.gz" else one
        for one in tiny().archives
    )
    (tmp_path / "tiny-archives").mkdir()
    for name, file in {**FILES, "test-labels.gz": cut}.items():
        (tmp_path / "tiny-archives" / name).write_bytes(file)
    with pytest.raises(MldynoError, match=r"test-labels\.gz: is broken or cut short .*Go on with --data synthetic\."):
        prepare_set(replace(tiny(), archives=stated), "real", tmp_path, lambda *_: None)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".tiny.lock", "tiny-archives"]


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MldynoError, match="holds the label 9, but there are 9 classes"):
        prepare_set(replace(tiny(), classes=9), "synthetic", tmp_path, lambda *_: None)
    assert not (tmp_path / "tiny-synthetic").exists()


def test_two_processes_at_once_fetch_once(tmp_path: Path, mirror: Mirrors, in_process: InProcess) -> None:
    one = mirror(leisurely)
    first, second = (in_process(tmp_path, "real", one.address) for _ in range(2))
    assert ended(first) == ended(second) == (0, "real")
    assert sorted(path for path, _ in one.asked) == sorted(f"/{name}" for name in FILES)
    prepared(tmp_path, "real")


def test_who_waits_for_another_process_says_so(tmp_path: Path, mirror: Mirrors, in_process: InProcess) -> None:
    slow = mirror(leisurely)
    first = in_process(tmp_path, "real", slow.address)
    while not slow.asked:
        time.sleep(0.01)
    told: list[str] = []
    prepare_set(tiny(slow.address), "real", tmp_path, lambda what, *_: told.append(what))
    assert set(told) == {"waiting for another process that prepares TINY"}
    assert ended(first) == (0, "real")


def test_after_a_kill_the_lock_is_free_and_the_rest_is_fetched(
    tmp_path: Path, mirror: Mirrors, in_process: InProcess
) -> None:
    killed = in_process(tmp_path, "real", mirror(stalling).address)
    part = tmp_path / "tiny-archives" / "train-images.gz.part"
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    had = part.stat().st_size
    one = mirror()
    assert prepared(tmp_path, "real", one) == "real"
    assert one.asked[0] == ("/train-images.gz", f"bytes={had}-")


def test_what_a_killed_process_had_half_unpacked_is_swept_away(tmp_path: Path) -> None:
    half = tmp_path / ".tiny-synthetic.part"
    half.mkdir()
    (half / "train-images").write_bytes(b"half")
    assert prepared(tmp_path, "synthetic") == "synthetic"
    assert not half.exists()


def test_who_is_killed_while_putting_new_files_in_the_place_of_old_ones_leaves_neither_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tiny(), replace(tiny(), generation=2)
    prepared(tmp_path, "synthetic")
    with monkeypatch.context() as patch:
        moved: list[object] = []

        def move(source: Path, target: Path) -> None:
            if len(moved) == 2:
                raise KeyboardInterrupt
            moved.append(source.rename(target))

        patch.setattr(os, "replace", move)
        with pytest.raises(KeyboardInterrupt):
            prepare_set(new, "synthetic", tmp_path, lambda *_: None)
    for data_set in (old, new):
        monkeypatch.setattr(mldyno.datasets, "find", lambda _, found=data_set: found)
        with pytest.raises(MldynoError, match="no synthetic TINY to read"):
            open_set("tiny", "synthetic", tmp_path)
    assert prepared(tmp_path, "synthetic") == "synthetic"


@pytest.mark.parametrize("wanted", ["real", "synthetic", "auto"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half(
    tmp_path: Path, mirror: Mirrors, in_process: InProcess, wanted: str
) -> None:
    """No file may grow over 100 KiB there, and the images need 156."""
    code, line = ended(in_process(tmp_path, wanted, mirror().address, limit=100))
    assert code == 1
    size = show_bytes(room("real" if wanted == "real" else "synthetic"))
    assert line == (
        f"no room left in {tmp_path}: TINY takes {size} there; free some, or name another folder with MLDYNO_DATA."
    )
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [".tiny.lock"]


def test_a_disk_that_fills_up_while_unpacking_leaves_no_half_file(tmp_path: Path, in_process: InProcess) -> None:
    (tmp_path / "tiny-archives").mkdir()
    for name, file in FILES.items():
        (tmp_path / "tiny-archives" / name).write_bytes(file)
    code, line = ended(in_process(tmp_path, "real", limit=100))
    assert (code, line[:12]) == (1, "no room left")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".tiny.lock", "tiny-archives"]
    assert prepared(tmp_path, "real") == "real"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_every_way_of_being_full_is_told_as_such(tmp_path: Path, fault: int) -> None:
    with pytest.raises(MldynoError, match="no room left in"), mldyno.datasets.in_one_line("TINY", tmp_path, 1):
        raise OSError(fault, os.strerror(fault))


def test_too_little_room_is_told_before_anything_is_fetched(
    tmp_path: Path, mirror: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 300_000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    one = mirror()
    assert refused(tmp_path, "real", one) == (
        f"no room in {tmp_path}: TINY needs {show_bytes(room('real'))}, and 293 KiB are free; "
        "free some, or name another folder with MLDYNO_DATA."
    )
    assert one.asked == []
    assert prepared(tmp_path, "auto", one) == "synthetic"


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that anybody can read, and only root could write."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written_is_one_line(read_only: Path, mirror: Mirrors, in_process: InProcess) -> None:
    read_only.chmod(0o555)
    for wanted in ("real", "synthetic", "auto"):
        code, line = ended(in_process(read_only, wanted, mirror().address, MLDYNO_TEST_NOBODY="1"))
        assert code == 1
        assert line == (
            f"{read_only / '.tiny.lock'}: Permission denied; mend that, or name another folder with MLDYNO_DATA."
        )


def test_what_is_there_is_used_though_the_folder_cannot_be_written(read_only: Path, in_process: InProcess) -> None:
    prepared(read_only, "synthetic")
    read_only.chmod(0o555)
    for wanted in ("synthetic", "auto"):
        assert ended(in_process(read_only, wanted, MLDYNO_TEST_NOBODY="1")) == (0, "synthetic")


def test_a_file_where_the_folder_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert refused(tmp_path / "data", "synthetic").startswith(f"{tmp_path / 'data'}: File exists; mend that")


def test_unknown_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown kind of data 'fake'\..*Possible: real, synthetic, auto"):
        prepare("mnist", "fake", tmp_path, lambda *_: None)
    with pytest.raises(UsageError, match=r"unknown data set 'minst'\. Did you mean 'mnist'\?"):
        prepare("minst", "auto", tmp_path, lambda *_: None)
    with pytest.raises(UsageError, match="unknown data set '_formats'"):
        find("_formats")


def test_a_mirror_that_is_no_address_is_refused_even_where_synthetic_data_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLDYNO_MIRROR", "nonsense")
    with pytest.raises(UsageError, match="MLDYNO_MIRROR is 'nonsense'"):
        prepare("mnist", "auto", tmp_path, lambda *_: None)


def test_a_set_that_was_not_prepared_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mldyno.datasets, "find", lambda _: tiny())
    with pytest.raises(MldynoError, match=r"no real TINY to read: .*origin\.txt: No such file or directory; let it be"):
        open_set("tiny", "real", tmp_path)
    prepared(tmp_path, "synthetic")
    opened = open_set("tiny", "synthetic", tmp_path)
    assert (opened.name, opened.source, opened.train.count, opened.test.count) == ("tiny", "synthetic", 200, 100)
    shutil.copytree(tmp_path / "tiny-synthetic", tmp_path / "tiny")
    with pytest.raises(MldynoError, match="were made from something else"):
        open_set("tiny", "real", tmp_path)


# -- a folder that others may write to -------------------------------------------------------------


ODD_FILES = (
    f"tiny/{ORIGIN}", "tiny/train-images", "tiny-archives/train-images.gz", "tiny-archives/train-images.gz.part",
    ".tiny.lock",
)  # fmt: skip
ODD: dict[str, Callable[[Path, Path], object]] = {
    "pipe": lambda path, theirs: os.mkfifo(path), "device": lambda path, theirs: path.symlink_to("/dev/zero"),
    "link": lambda path, theirs: path.symlink_to(theirs), "name": lambda path, theirs: os.link(theirs, path),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_FILES)
@pytest.mark.parametrize("kind", ODD)
def test_a_pipe_a_device_or_a_link_in_a_shared_folder_is_neither_waited_for_nor_written_to(
    tmp_path: Path, mirror: Mirrors, name: str, kind: str
) -> None:
    theirs = tmp_path / "precious.txt"
    theirs.write_text("precious")
    folder = tmp_path / "data"
    place = folder / name
    place.parent.mkdir(parents=True)
    if name == "tiny/train-images":
        (folder / "tiny" / ORIGIN).write_text(mldyno.datasets._origin(tiny(), "real"))
    ODD[kind](place, theirs)
    line = ""
    try:
        prepared(folder, "real", mirror())
    except MldynoError as error:
        line = str(error)
    assert re.fullmatch(r"|.*(remove it|No such device).*", line)
    assert theirs.read_text() == "precious"


def test_what_a_killed_process_left_of_archives_goes_with_the_next_that_makes_the_set(
    tmp_path: Path, mirror: Mirrors
) -> None:
    (tmp_path / "tiny-archives").mkdir()
    for name, content in FILES.items():
        (tmp_path / "tiny-archives" / name).write_bytes(content)
    (tmp_path / "tiny-archives" / "train-images.gz.part").write_bytes(b"half")
    (tmp_path / ".tiny.part").mkdir()
    assert prepared(tmp_path, "real", mirror()) == "real"
