"""Whatever happens to a run, what it measured is kept, and `--resume` brings exactly what is missing."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import termios
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mldyno.errors import StoreError
from mldyno.store import Store

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno, Rule

# Three cases that differ in more than one axis each, so that they run one after the other, in two rounds.
SUITE = """
budget = "16s"
target = "0.1%"
repeats = 2
[[cases]]
workload = "mlp"
framework = "fake"
mode = "train"
batch = 8
[[cases]]
workload = "mlp"
framework = "fake"
mode = "infer"
batch = 16
[[cases]]
workload = "resnet50"
framework = "fake"
mode = "infer"
batch = 4
"""
FIRST, SECOND, THIRD = CASES = (
    "mlp/train/fake/cpu/fp32/b8/device",
    "mlp/infer/fake/cpu/fp32/b16/device",
    "resnet50/infer/fake/cpu/fp32/b4/device",
)
ALL = Counter({(case, number): 1 for case in CASES for number in (0, 1)})

# Noise that uses up the budget: 8,000 steps in each process, of which the warm-up takes 2,000 at most.
NOISY: Rule = {"match": "*", "step": 0.001, "noise": 0.1}
HANGS: Rule = {**NOISY, "match": SECOND, "fail": "hang", "after": 5_000}


@pytest.fixture
def suite(tmp_path: Path) -> str:
    """The suite as a user's own file."""
    path = tmp_path / "three.toml"
    path.write_text(SUITE)
    return str(path)


def outcomes(dyno: Dyno) -> Counter[tuple[str, int]]:
    """How many records each case has in each round, interrupted ones apart."""
    return Counter((record.case.id, record.run.repeat) for record in dyno.records() if not record.interrupted)


def resume(dyno: Dyno, *arguments: str) -> None:
    """Go on; all comes out ok, nothing is lost, doubled or done again, and there is nothing more to resume."""
    before = dyno.records()
    done = dyno.quickly("run", "--resume", *arguments)
    after = dyno.records()
    assert after[: len(before)] == before
    assert outcomes(dyno) == ALL
    assert len({record.run.id for record in after}) == 1
    assert {record.status for record in after if not record.interrupted} == {"ok"}
    assert len(done.lines) == len(after) - len(before), "one line for each case that was missing"
    assert done.code == 0
    assert "no unfinished run to resume" in dyno.refusal("run", "--resume", code=1)


# -- signals -------------------------------------------------------------------------------------

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
polite = pytest.mark.parametrize("number", SIGNALS, ids=["ctrl-c", "sigterm", "sighup"])


@polite
def test_a_signal_within_a_case_keeps_what_was_measured(dyno: Dyno, suite: str, number: signal.Signals) -> None:
    dyno.fresh = number == signal.SIGINT
    process = dyno.start("run", suite, rules=(HANGS, NOISY))
    dyno.wait_until_stuck(process, records=1, workers=1)
    dyno.strike(process, number)
    done = dyno.finish(process)
    assert done.code == 3
    assert len(done.lines) == 2
    assert done.lines[-1] == (
        f"mldyno: ended by {number.name}; finished measurements are kept. Resume with: mldyno run --resume"
    )
    whole, partial = dyno.records()
    assert (whole.case.id, whole.status, whole.interrupted) == (FIRST, "ok", False)
    assert (partial.case.id, partial.interrupted) == (SECOND, True)
    assert [warning.code for warning in partial.warnings] == ["interrupted"]
    assert partial.reason == f"ended by {number.name}"
    assert len(partial.values("step_time")) > 100
    resume(dyno)
    assert sum(record.interrupted for record in dyno.records()) == 1


@polite
def test_a_signal_while_a_case_is_set_up_loses_nothing(dyno: Dyno, suite: str, number: signal.Signals) -> None:
    process = dyno.start("run", suite, rules=({**HANGS, "after": 0}, NOISY))
    dyno.wait_until_stuck(process, records=1, workers=1)
    dyno.strike(process, number)
    assert dyno.finish(process).code == 3
    assert outcomes(dyno) == Counter({(FIRST, 0): 1})
    resume(dyno, suite)


@polite
def test_a_signal_between_two_cases_keeps_the_first(dyno: Dyno, suite: str, number: signal.Signals) -> None:
    process = held_between_cases(dyno, suite)
    dyno.strike(process, number)
    done = dyno.finish(process)
    assert done.code == 3
    assert [line.split(":")[0] for line in done.lines] == [FIRST, "mldyno"]
    assert outcomes(dyno) == Counter({(FIRST, 0): 1})
    resume(dyno)


MEETING = ("run", "mlp", "--framework", "fake", "--mode", "infer", "--placement", "device,roundtrip",
           "--target", "0.0001%", "--steps", "50", "--budget", "60s", "--repeats", "1")  # fmt: skip


@polite
def test_a_signal_within_a_paired_comparison_keeps_the_cases_and_what_the_paired_comparison_had(
    dyno: Dyno, number: signal.Signals
) -> None:
    hangs: Rule = {**NOISY, "match": "*/roundtrip", "fail": "hang", "after": 8_000}  # later than it gets alone
    process = dyno.start(*MEETING, rules=(hangs, NOISY))
    dyno.wait_until_stuck(process, records=2, workers=1)
    dyno.strike(process, number)
    done = dyno.finish(process)
    assert done.code == 3
    assert "finished measurements are kept" in done.lines[-1]
    partial = dyno.records()[2:]
    assert [record.run.pairing for record in partial] == ["interleaved", "interleaved"]
    assert all(record.interrupted and record.values("step_time", "paired") for record in partial)
    assert dyno.quickly("run", "--resume", rules=(NOISY,)).code == 0
    whole = [record.run.pairing for record in dyno.records() if not record.interrupted]
    assert whole == ["alone", "alone", "interleaved", "interleaved"]


def test_a_worker_that_dies_within_a_paired_comparison_spoils_no_case(dyno: Dyno) -> None:
    dies: Rule = {**NOISY, "match": "*/roundtrip", "fail": "segv", "after": 8_000}
    done = dyno.quickly(*MEETING, "--by", "placement", rules=(dies, NOISY))
    assert done.code == 0
    assert "the worker was ended by SIGSEGV" in "\n".join(done.lines)
    assert "separate runs" in done.out
    assert [record.status for record in dyno.records()] == ["ok", "ok", "failed", "failed"]


def test_a_paired_comparison_that_runs_out_of_memory_goes_on_in_alternation(dyno: Dyno) -> None:
    crowded: Rule = {**NOISY, "match": "*/roundtrip", "fail": "oom", "after": 8_000}
    done = dyno.quickly(*MEETING, "--by", "placement", rules=(crowded, NOISY))
    assert done.code == 0
    assert "fresh pairs of processes in alternation" in done.out


def test_a_terminal_that_is_gone_loses_nothing_of_what_was_measured(dyno: Dyno, suite: str) -> None:
    """As where a connection is lost: SIGHUP comes, and again from a shell, and nothing can be written any more."""
    ours, theirs = pty.openpty()
    process = dyno.start(
        "run", suite, rules=(HANGS, NOISY), before=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), terminal=theirs
    )
    os.close(theirs)
    drain = threading.Thread(target=read_on, args=(ours,))
    drain.start()
    dyno.wait_until_stuck(process, records=1, workers=1)
    os.close(ours)
    for _ in range(20):
        process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 3
    drain.join()
    whole, partial = dyno.records()
    assert (whole.status, partial.interrupted, partial.reason) == ("ok", True, "ended by SIGHUP")
    assert len(partial.values("step_time")) > 100
    resume(dyno)


def read_on(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 4096):
            pass


def test_under_nohup_a_run_goes_on(dyno: Dyno, suite: str) -> None:
    process = dyno.start("run", suite, rules=(HANGS, NOISY), before=lambda: ignore(signal.SIGHUP))
    dyno.wait_until_stuck(process, records=1, workers=1)
    dyno.strike(process, signal.SIGHUP)
    dyno.wait_until_stuck(process, records=1, workers=1)
    dyno.strike(process, signal.SIGTERM)
    assert dyno.finish(process).lines[-1].startswith("mldyno: ended by SIGTERM;")


def test_a_worker_that_is_ended_just_before_us_is_an_interruption_and_no_failure(dyno: Dyno, suite: str) -> None:
    """A scheduler ends all processes of a job, in any order."""
    process = dyno.start("run", suite, rules=(HANGS, NOISY))
    dyno.wait_until_stuck(process, records=1, workers=1)
    (worker,) = (each for each in dyno.living() if each.pid != process.pid)
    worker.terminate()
    worker.wait(10)
    dyno.strike(process, signal.SIGTERM)
    assert dyno.finish(process).lines[-1].startswith("mldyno: ended by SIGTERM;")
    assert [record.interrupted for record in dyno.records()] == [False, True]


def ignore(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)


def test_ctrl_c_twice_ends_at_once_and_keeps_what_is_stored(dyno: Dyno, suite: str) -> None:
    process = held_between_cases(dyno, suite)
    dyno.strike(process, signal.SIGINT)
    dyno.wait_until_stuck(process, records=1, workers=0)
    dyno.strike(process, signal.SIGINT)
    done = dyno.finish(process)
    assert done.code == 3
    assert done.lines[-1] == "mldyno: ended by Ctrl-C."
    assert outcomes(dyno) == Counter({(FIRST, 0): 1})
    resume(dyno)


def held_between_cases(dyno: Dyno, suite: str) -> subprocess.Popen[str]:
    """A run that can't go on after its first case, since nobody reads the record that it prints."""
    process = dyno.start("run", suite, "--json", rules=(NOISY,))
    dyno.wait_until_stuck(process, records=1, workers=0)
    return process


def test_a_run_killed_within_a_case_leaves_no_worker_and_can_be_resumed(dyno: Dyno, suite: str) -> None:
    dyno.fresh = True
    process = dyno.start("run", suite, rules=(HANGS, NOISY))
    dyno.wait_until_stuck(process, records=1, workers=1)
    dyno.strike(process, signal.SIGKILL)
    assert dyno.finish(process).code == -signal.SIGKILL
    dyno.check()
    assert outcomes(dyno) == Counter({(FIRST, 0): 1})
    resume(dyno)


def test_a_run_killed_between_two_cases_can_be_resumed(dyno: Dyno, suite: str) -> None:
    process = held_between_cases(dyno, suite)
    dyno.strike(process, signal.SIGKILL)
    assert dyno.finish(process).code == -signal.SIGKILL
    dyno.check()
    assert outcomes(dyno) == Counter({(FIRST, 0): 1})
    resume(dyno, suite)


# -- two at once ---------------------------------------------------------------------------------


def test_two_runs_at_once_on_one_store_both_come_out_whole(dyno: Dyno, suite: str) -> None:
    both = [dyno.start("run", suite, rules=(NOISY,)) for _ in range(2)]
    for process in both:
        done = dyno.finish(process)
        assert done.code == 0
        assert len(done.lines) == sum(ALL.values())
    runs = {record.run.id for record in dyno.records()}
    assert len(runs) == 2
    found = Counter((record.run.id, record.case.id, record.run.repeat) for record in dyno.records())
    assert found == Counter({(run, *one): 1 for run in runs for one in ALL})


def test_all_who_open_a_new_store_at_once_find_it_sound(tmp_path: Path) -> None:
    complaints: list[str] = []

    def use(place: Path, together: threading.Barrier, write: bool) -> None:
        store = Store(place)
        together.wait()
        try:
            if write:
                store.prepare()
            assert store.machines()
        except StoreError as error:
            complaints.append(str(error).removeprefix(f"store {place}: "))
        finally:
            store.close()

    for number in range(50):
        place, together = tmp_path / f"{number}.sqlite", threading.Barrier(6)
        threads = [threading.Thread(target=use, args=(place, together, one % 3 > 0)) for one in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Counter(complaints) == Counter()


def test_a_run_that_still_lives_is_not_resumed(dyno: Dyno, suite: str) -> None:
    process = dyno.start("run", suite, rules=(HANGS, NOISY))
    dyno.wait_until_stuck(process, records=1, workers=1)
    assert "still going on in another process" in dyno.refusal("run", "--resume", code=1)
    assert "still going on in another process" in dyno.refusal("run", suite, "--resume", code=1)
    assert len(dyno.records()) == 1
    dyno.strike(process, signal.SIGKILL)
    dyno.finish(process)
    resume(dyno)


def test_there_is_nothing_to_resume_in_an_empty_store(dyno: Dyno, suite: str) -> None:
    assert "no unfinished run to resume" in dyno.refusal("run", "--resume", code=1)
    assert "no unfinished run to resume with these cases" in dyno.refusal("run", suite, "--resume", code=1)
    assert not dyno.store.exists()


# -- a full disk ---------------------------------------------------------------------------------


@dataclass
class SmallDisk:
    """A folder in which files can't grow; `before` makes it so for a new process where a mount does not."""

    folder: Path
    mounted: bool
    size: int

    def before(self) -> None:
        """Limit the size of a file, called in the new process."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))

    def make_room(self) -> None:
        """Make the disk larger, as a user would who clears it up."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(self.folder)], check=True)


Disks = Callable[[int], SmallDisk]


@pytest.fixture(params=["a-full-disk", "a-limit-on-files"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disks]:
    """Makes a disk of so many B: a file system in memory where this user may mount one, else a limit on files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made: list[SmallDisk] = []

    def make(size: int) -> SmallDisk:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "mldyno-test", str(folder)]
        may = request.param == "a-full-disk" and shutil.which("mount") is not None
        mounted = may and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        made.append(SmallDisk(folder, mounted, size))
        return made[0]

    yield make
    if made and made[0].mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def rescued_by(dyno: Dyno, suite: str, small_disk: Disks) -> Iterator[tuple[SmallDisk, str]]:
    """A run that filled its disk, and the last line that it said."""
    disk = small_disk(256 << 10)
    dyno.store = disk.folder / "records.sqlite"
    process = dyno.start("run", suite, rules=(NOISY,), before=disk.before)
    done = dyno.finish(process)
    assert done.code == 1
    assert 1 <= len(outcomes(dyno)) < sum(ALL.values())
    assert len(done.lines) == len(outcomes(dyno)) + 1
    yield disk, done.lines[-1]
    dyno.check()  # before the disk is taken away


def test_a_full_disk_puts_the_last_records_elsewhere(dyno: Dyno, rescued_by: tuple[SmallDisk, str]) -> None:
    disk, line = rescued_by
    assert line.startswith(f"mldyno: store {dyno.store}: ")
    assert "the disk is full" in line or "the disk refused" in line
    found = re.search(r"What was measured last is in (\S+); bring it back with: mldyno import (\S+)$", line)
    assert found, line
    assert found[1] == found[2]
    rescued = Path(found[1])
    assert disk.folder not in rescued.parents
    before = outcomes(dyno)
    disk.make_room()
    done = dyno.quickly("import", str(rescued))
    assert (done.code, done.lines) == (0, [])
    assert sum(outcomes(dyno).values()) > sum(before.values())
    assert set(outcomes(dyno).values()) == {1}
    resume(dyno)


def test_a_disk_that_is_full_from_the_start_is_told_before_anything_is_measured(
    dyno: Dyno, suite: str, small_disk: Disks
) -> None:
    disk = small_disk(16 << 10)
    dyno.store = disk.folder / "records.sqlite"
    done = dyno.finish(dyno.start("run", suite, rules=(NOISY,), before=disk.before))
    assert done.code == 1
    assert len(done.lines) == 1
    assert done.lines[0].startswith(f"mldyno: store {dyno.store}: the disk")
    assert "--store" in done.lines[0]
    dyno.check()
    disk.make_room()
    assert dyno.quickly("run", suite, rules=(NOISY,)).code == 0
    assert outcomes(dyno) == ALL
    dyno.check()


# -- a store that can't be written, or is not one ------------------------------------------------


@pytest.fixture
def read_only(dyno: Dyno) -> Iterator[None]:
    """A store with one record, a file and a folder that can only be read."""
    folder = dyno.folder / "kept"
    dyno.store = folder / "records.sqlite"
    code, _ = dyno.measure("mlp", "--mode", "infer", "--steps", "10")
    assert code == 0
    dyno.store.chmod(0o444)
    folder.chmod(0o555)
    dyno.bound = True
    yield
    folder.chmod(0o755)


@pytest.mark.usefixtures("read_only")
def test_a_read_only_store_is_told_before_anything_is_measured(dyno: Dyno, suite: str) -> None:
    before = dyno.store.read_bytes()
    line = dyno.refusal("run", suite, code=1, rules=({"match": "*", "fail": "hang"},))
    assert line.startswith(f"mldyno: store {dyno.store}: it can't be ")
    assert "--store" in line
    assert dyno.store.read_bytes() == before


@pytest.mark.usefixtures("read_only")
def test_a_read_only_store_can_be_read(dyno: Dyno) -> None:
    for command in (("history",), ("table", "framework=fake"), ("export",)):
        done = dyno(*command)
        assert done.code == 0, done.lines
        assert "mlp" in done.out


@pytest.mark.parametrize("place", ["/dev/null/records.sqlite", "/proc/mldyno/records.sqlite"])
def test_a_store_where_no_file_can_be_is_told_before_anything_is_measured(dyno: Dyno, suite: str, place: str) -> None:
    line = dyno.refusal("run", suite, "--store", place, code=1, rules=({"match": "*", "fail": "hang"},))
    assert line.startswith(f"mldyno: store {place}: ")


def test_a_folder_is_no_store(dyno: Dyno, suite: str) -> None:
    line = dyno.refusal("run", suite, "--store", str(dyno.folder), code=1)
    assert "this is a folder" in line


def damage_randomly(store: Path) -> None:
    store.write_bytes(os.urandom(20_000))


def be_of_another_program(store: Path) -> None:
    store.unlink()
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("CREATE TABLE records (name TEXT)")


def be_newer(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA user_version = 99")


def lose_the_second_half(store: Path) -> None:
    os.truncate(store, store.stat().st_size // 2)


def lose_the_records(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript("DROP TABLE records; DROP TABLE runs;")


COMMANDS = (
    ("run", "mlp", "--framework", "fake", "--mode", "infer", "--steps", "10", "--repeats", "1"),
    ("run", "--resume"),
    ("history",),
    ("table", "mlp"),
    ("export",),
    ("import", "some.jsonl"),
)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_randomly, "this is not an mldyno store; name another file with --store"),
        (be_of_another_program, "this is an SQLite file of another program; name another file"),
        (be_newer, "written by a newer mldyno; update mldyno"),
        (lose_the_second_half, "it is damaged; move it away"),
        (lose_the_records, "it is damaged; move it away"),
    ],
)
def test_a_damaged_or_foreign_store_is_told_in_one_line_and_left_alone(
    dyno: Dyno, a_line: str, damage: Callable[[Path], None], words: str
) -> None:
    dyno.within = True
    dyno.measure("mlp", "--mode", "infer", "--budget", "8s", "--target", "0.1%", rules=(NOISY,))
    (dyno.folder / "some.jsonl").write_text(a_line + "\n")
    damage(dyno.store)
    dyno.damaged = True
    before = dyno.store.read_bytes()
    for command in COMMANDS:
        line = dyno.refusal(*command, code=1)
        assert f"store {dyno.store}: {words}" in line, command
        assert dyno.store.read_bytes() == before, command


def test_an_empty_file_is_an_empty_store(dyno: Dyno, suite: str) -> None:
    dyno.store.touch()
    assert "no unfinished run" in dyno.refusal("run", "--resume", code=1)
    assert dyno.quickly("history").code == 0
    assert dyno.quickly("run", suite, rules=(NOISY,)).code == 0
    assert outcomes(dyno) == ALL
