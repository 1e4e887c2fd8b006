"""One measurer at a time on a machine: who waits, who need not, and that nothing in a shared folder does any harm."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mldyno import api, machine_lock
from mldyno.machine_lock import Busy, held, holder
from mldyno.results import Results

HOLD = """
import time
from mldyno.machine_lock import held
with held():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of the lock in this test."""
    return tmp_path / "measuring.lock"


@pytest.fixture
def other(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_process_that_does_not_wait_hears_who_measures(other: subprocess.Popen[str]) -> None:
    says = r"measures on this machine; wait for its end, or set MLDYNO_LOCK=none"
    with pytest.raises(Busy, match=says) as error, held(wait=False):
        pass
    assert error.value.exit_code == 1
    if sys.platform == "linux":
        assert f"process {other.pid} of " in error.value.who
        assert holder() == error.value.who


def test_a_killed_process_frees_the_machine_and_who_waits_goes_on(other: subprocess.Popen[str]) -> None:
    lines: list[str] = []
    with held(lines.append, pause=other.kill):
        assert holder() == ""
    assert len(lines) == 1
    assert lines[0].startswith("waiting: ")


def test_who_waits_can_be_interrupted(other: subprocess.Popen[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), held(pause=interrupt):
        pass
    assert other.poll() is None


def test_a_process_that_holds_it_has_it_and_so_have_those_that_it_starts(file: Path) -> None:
    with held(wait=False):
        with held(wait=False):
            assert holder() == ""
        words = [sys.executable, "-c", "from mldyno.machine_lock import held\nwith held(wait=False): print('inside')"]
        assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == "inside\n"
        assert _is_taken(file)
    assert not _is_taken(file)
    assert machine_lock.HELD not in os.environ


def _is_taken(file: Path) -> bool:
    words = [sys.executable, "-c", "from mldyno.machine_lock import holder\nprint(holder())"]
    inherited = {name: value for name, value in os.environ.items() if name != machine_lock.HELD}
    return bool(subprocess.run(words, capture_output=True, text=True, check=True, env=inherited).stdout.strip())


def test_the_user_may_measure_beside_another_process(
    other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLDYNO_LOCK", "none")
    with held(wait=False):
        assert holder() == ""
    monkeypatch.setenv("MLDYNO_LOCK", str(tmp_path / "another.lock"))
    with held(wait=False):
        pass


def test_everyone_may_lock_the_file_and_none_write_to_it_whatever_the_umask(file: Path) -> None:
    before = os.umask(0o077)
    try:
        with held():
            assert stat.S_IMODE(file.stat().st_mode) == 0o444
    finally:
        os.umask(before)
    assert file.read_bytes() == b""


@pytest.mark.parametrize("planted", ["link", "link to nothing", "folder", "pipe"])
def test_what_a_stranger_plants_under_its_name_neither_stops_a_measurement_nor_is_touched(
    planted: str, file: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    if planted.startswith("link"):
        file.symlink_to(precious if planted == "link" else tmp_path / "new")
    else:
        (os.mkdir if planted == "folder" else os.mkfifo)(file)
    lines: list[str] = []
    with held(lines.append):
        pass
    assert len(lines) == 1
    assert lines[0].startswith(f"runs of this machine may overlap: {file}")
    assert precious.read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_a_planted_second_name_of_a_users_file_is_locked_but_never_written(file: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    os.link(precious, file)
    with held():
        pass
    assert precious.read_text() == "mine"


def test_a_file_that_was_removed_while_we_waited_is_made_anew(other: subprocess.Popen[str], file: Path) -> None:
    def end() -> None:
        file.unlink()
        other.kill()
        other.wait()

    with held(pause=end):
        assert _is_taken(file)


@pytest.mark.parametrize(
    ("mode", "owner", "safe"), [(0o41777, 0, True), (0o40755, 0, False), (0o40777, 0, False), (0o41777, 7, False)]
)
def test_only_a_folder_of_the_system_in_which_users_can_not_remove_each_others_files_is_used(
    mode: int, owner: int, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLDYNO_LOCK")
    there = os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    with monkeypatch.context() as patch:
        patch.setattr("os.stat", lambda path: there)
        place = machine_lock.place()
    assert (place is not None and place.parent == Path("/run/lock")) is safe


def test_one_kernel_has_one_file_in_all_of_its_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(machine_lock, "read", lambda path: "0F3A9c01-d4e5-4711-8000-000000000000\n")
    assert machine_lock._boot() == "0f3a9c01d4e5"
    monkeypatch.setattr(machine_lock, "read", lambda path: "")
    assert machine_lock._boot() == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this file")
def test_the_identifier_of_the_running_kernel_can_be_read() -> None:
    known = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")
    assert machine_lock._boot() == known[:12]


def test_a_run_waits_with_one_line_and_then_measures(
    other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mldyno.runner.events import Listener

    lines: list[str] = []

    class Ears(Listener):
        def say(self, line: str) -> None:
            lines.append(line)
            other.kill()

    monkeypatch.setattr(machine_lock, "POLL_S", 0.01)
    results = api.run(command=["true"], repeats=1, budget="0.1s", listener=Ears())
    assert results.all_ok
    assert [line.partition(":")[0] for line in lines] == ["waiting"]


def test_a_rehearsal_measures_nothing_and_does_not_wait(
    other: subprocess.Popen[str], fake_run: Callable[..., Results]
) -> None:
    assert fake_run().all_ok
    assert other.poll() is None


def test_a_run_that_is_killed_leaves_the_machine_free(file: Path) -> None:
    words = [sys.executable, "-m", "mldyno", "run", "-q", "--", "sleep", "60"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + 60
        while not _is_taken(file) and time.monotonic() < ends:
            time.sleep(0.1)
        assert _is_taken(file)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not _is_taken(file)
