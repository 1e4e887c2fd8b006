"""A record that the store does not take is put into a file, and a signal that comes meanwhile is not lost."""

from __future__ import annotations

import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.timing.virtual_loop import MS, Loader, VirtualClock, run
from tests.tracking.programs import environment, ran, stored, written

from mldyno.store import Store, transfer
from mldyno.tracking import finishing
from mldyno.tracking.tracker import track

WAITING = "another process holds store"
RESCUED = re.compile(r"What was measured last is in (\S+); bring it back with: (mldyno import .*)$")


@pytest.fixture
def locked(store: Store) -> Iterator[sqlite3.Connection]:
    """The store, held by somebody else."""
    store.prepare()
    store.close()
    holder = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    yield holder
    holder.close()


@pytest.fixture(autouse=True)
def a_folder_for_rescues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def rescued(line: str) -> tuple[Path, list[str]]:
    """The file that a line names, and the words of the command that brings it back."""
    named = RESCUED.search(line)
    assert named, line
    return Path(named[1]), shlex.split(named[2])


def test_a_locked_store_is_waited_for_then_the_record_is_in_a_file(
    store: Store, locked: sqlite3.Connection, tmp_path: Path
) -> None:
    done = ran(str(written(tmp_path, """
        loader = [None] * 50
        t = mldyno.track(loader)
        for batch in t:
            step()
        raise SystemExit(3)
    """)))  # fmt: skip
    locked.rollback()
    waiting, line, failure = done.stderr.splitlines()
    assert done.returncode == 3
    assert waiting == f"mldyno: train.py: {WAITING} {store.path}; waiting up to 5 s for it"
    assert line.startswith("mldyno: train.py: ")
    assert " [record " in line
    assert failure.startswith(f"mldyno: train.py: not stored: store {store.path}: another process has held it")
    assert stored(store) == []
    file, words = rescued(failure)
    assert words == ["mldyno", "import", str(file)]
    assert [record.case.id for record in transfer.read(str(file))] == ["train.py/tracked/cpu"]
    done = ran("-m", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert store.holds("id", next(iter(transfer.read(str(file)))).id)


def test_a_store_that_is_let_go_of_in_time_takes_the_record(
    store: Store, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = finishing.say

    def let_go(line: str) -> None:
        said(line)
        if locked.in_transaction:
            locked.rollback()

    monkeypatch.setattr(finishing, "say", let_go)
    monkeypatch.setattr(finishing, "WAIT_S", 0.01)
    clock = VirtualClock()
    run(track([None] * 50, name="train.py", clock=clock, store=store), clock, 8 * MS)
    assert len(stored(store)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [WAITING in line for line in lines] == [True, False]


ENDED_BY_SIGNAL = {
    "a with": ("with mldyno.track(loader) as t:\n    for batch in t: step()", None),
    "finish": ("t = mldyno.track(loader)\nfor batch in t: step()\nt.finish()", None),
    "thrown away": ("for batch in mldyno.track(loader): step()", None),
    "the end of the program": ("t = mldyno.track(loader)\nfor batch in t: step()\nsys.exit(3)", 3),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("where", ENDED_BY_SIGNAL)
def test_a_signal_ends_the_waiting_and_reaches_the_program(
    store: Store, locked: sqlite3.Connection, tmp_path: Path, where: str, number: signal.Signals
) -> None:
    body, code = ENDED_BY_SIGNAL[where]
    goes_on = "import time\nfor _ in range(3000): time.sleep(0.1)"
    script = tmp_path / "train.py"
    script.write_text(
        "import mldyno, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"loader = [None] * 50\ndef step(): sum(range(20_000))\n{body}\n{goes_on}\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, env=environment()) as loop:
        assert loop.stderr is not None
        assert WAITING in loop.stderr.readline()
        loop.send_signal(number)
        said = loop.communicate(timeout=100)[1].splitlines()
    assert loop.returncode == (-number if code is None else code)
    (failure,) = [line for line in said if " not stored: " in line]
    assert failure.startswith(f"mldyno: train.py: not stored: ended by {number.name}. ")
    file, _ = rescued(failure)
    assert len(list(transfer.read(str(file)))) == 1
    assert not [line for line in said if "ignored" in line]
    assert where != "the end of the program" or "Traceback (most recent call last):" not in said


FULL = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
GONE = "import os, shutil\nshutil.rmtree(os.getcwd())"


@pytest.mark.parametrize(
    ("before", "place", "reason"),
    [(FULL, "full.sqlite", "disk"), (GONE, "records.sqlite", "No such file"), ("", "/proc/none/x.sqlite", "/proc/none"),
     ("", "http://x/y", "only SQLite files can be stores"), ("", "/dev/null", "/dev/null")],
    ids=["a full disk", "a folder that is gone", "a place that can't be written", "no store", "a device"],
)  # fmt: skip
def test_whatever_the_store_says_the_record_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, place: str, reason: str
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    script = written(tmp_path, f"""
        t = mldyno.track([None] * 50, store={place!r})
        for batch in t:
            step()
    """)  # fmt: skip
    script.write_text(f"{script.read_text()}\n{before}\n")
    monkeypatch.chdir(folder)
    done = ran(str(script))
    assert done.returncode == 0
    line, failure = done.stderr.splitlines()
    assert line.startswith("mldyno: train.py: ")
    assert " [record " in line
    assert failure.startswith("mldyno: train.py: not stored: ")
    assert reason in failure
    file, words = rescued(failure)
    assert len(list(transfer.read(str(file)))) == 1
    assert ("--store" in words) == (place != "http://x/y")


def test_a_folder_that_can_not_be_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/proc/none")
    monkeypatch.chdir(tmp_path)
    clock = VirtualClock()
    run(track([None] * 50, name="train.py", clock=clock, store="/proc/none/x.sqlite"), clock, 8 * MS)
    file, _ = rescued(capsys.readouterr().err.splitlines()[-1])
    assert file.parent == tmp_path


def test_the_record_of_all_ranks_is_kept_by_the_first(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracker = track(loader, name="ranks", clock=clock, store="/proc/none/x.sqlite")
    run(tracker, clock, 8 * MS)
    tracker._loop.ranks = SimpleNamespace(rank=0, world=2, hear=lambda name: {})  # type: ignore[assignment]
    assert tracker.finish() is not None
    file, _ = rescued(capsys.readouterr().err.splitlines()[-1])
    assert [record.case.id for record in transfer.read(str(file))] == ["ranks/tracked/cpu/r2"]


def test_nothing_is_executed_as_a_text_when_a_program_ends(store: Store, tmp_path: Path) -> None:
    """Else CPython forgets that Ctrl-C has ended it."""
    script = written(tmp_path, """
        import sys
        ends = False

        def heard(event, arguments):
            if ends and event == "compile" and arguments[0] is not None:
                print(event, arguments)

        sys.addaudithook(heard)
        first, second = [None] * 50, [None] * 50
        a, b = mldyno.track(first), mldyno.track(second, store="/proc/none/x.sqlite")
        for batches in zip(a, b):
            step()
        ends = True
    """)  # fmt: skip
    done = ran(str(script), XDG_DATA_HOME=str(tmp_path / "data"), MLDYNO_STORE="")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("mldyno: train.py") == 3
