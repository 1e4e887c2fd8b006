"""What a user's code starts and leaves behind, and what mldyno itself needs for a while: nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.faults.conftest import GONE_DEADLINE_S, wait_for

from mldyno import temporary
from mldyno.runner.run import busy

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

pytestmark = pytest.mark.timeout(600)
# Starts a process that has nothing to do with its parent any more; the second kind has no environment either.
DETACH = """
import os, subprocess, sys
def detach(kind):
    if os.fork():
        os.wait()
        return
    os.setsid()
    environment = {} if kind == "bare" else os.environ
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", os.environ["MLDYNO_TEST_SLEEPER"]],
                     env=environment, start_new_session=True)
    os._exit(0)
"""
MODEL = f"""{DETACH}
import signal
import torch
class Model(torch.nn.Linear):
    calls = 0
    def forward(self, values):
        Model.calls += 1
        if Model.calls == 20:
            detach(os.environ["MLDYNO_TEST_KIND"])
            if os.environ["MLDYNO_TEST_END"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        if Model.calls > 40 and os.environ["MLDYNO_TEST_END"] == "hang":
            import time
            time.sleep(3600)
        return super().forward(values)
def build():
    return Model(8, 8), torch.ones(4, 8)
"""


def sleepers(mark: str) -> list[psutil.Process]:
    """Those of one test, by the last word of their command."""
    return [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [""])[-1] == mark]


def none_is_left(mark: str) -> None:
    try:
        wait_for(lambda: not sleepers(mark), GONE_DEADLINE_S, "no sleeper is left")
    finally:
        for each in sleepers(mark):
            each.kill()


@pytest.mark.parametrize("kind", ["usual", "bare"])
def test_what_a_command_detaches_ends_with_its_case(dyno: Dyno, tmp_path: Path, kind: str) -> None:
    (tmp_path / "detach.py").write_text(f"{DETACH}\ndetach({kind!r})\n")
    mark = uuid.uuid4().hex
    dyno("run", "--repeats", "1", "--steps", "2", "--", sys.executable, "detach.py", MLDYNO_TEST_SLEEPER=mark)
    (record,) = dyno.records()
    assert record.status in ("ok", "unsteady")  # the latter on a busy machine
    none_is_left(mark)


@pytest.mark.parametrize(("kind", "end"), [("usual", "well"), ("bare", "well"), ("usual", "kill"), ("usual", "hang")])
def test_what_a_model_detaches_ends_with_its_case_however_that_ends(
    dyno: Dyno, tmp_path: Path, kind: str, end: str
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    mark = uuid.uuid4().hex
    words = ("run", "model.py", "--mode", "infer", "--repeats", "1", "--steps", "100", "--no-check", "agrees")
    settings: dict[str, Any] = {"MLDYNO_TEST_SLEEPER": mark, "MLDYNO_TEST_KIND": kind, "MLDYNO_TEST_END": end}
    if end == "hang":
        process = dyno.start(*words, **settings)
        wait_for(lambda: bool(sleepers(mark)), GONE_DEADLINE_S, "a sleeper")
        dyno.strike(process, signal.SIGINT)
        done = dyno.finish(process)
    else:
        done = dyno.quickly(*words, **settings)
    assert done.code == (0 if end == "well" else 3)
    none_is_left(mark)


def test_what_a_killed_run_left_running_is_ended_by_the_next_one(dyno: Dyno, tmp_path: Path) -> None:
    (tmp_path / "detach.py").write_text(f"{DETACH}\ndetach('usual')\nimport time; time.sleep(3600)\n")
    mark = uuid.uuid4().hex
    process = dyno.start("run", "--repeats", "1", "--", sys.executable, "detach.py", MLDYNO_TEST_SLEEPER=mark)
    wait_for(lambda: bool(sleepers(mark)), GONE_DEADLINE_S, "a sleeper")
    dyno.strike(process, signal.SIGKILL)
    dyno.finish(process)
    dyno.measure("mlp", "--mode", "infer", "--steps", "10")
    none_is_left(mark)


# -- whose they are ----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the clock tells when a process was started")
@pytest.mark.parametrize("form", ["{host}-{pid}-{since}", "{pid} {since}"], ids=["as today", "of earlier versions"])
def test_a_process_that_lives_is_known_again_when_the_clock_was_set(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, parent = temporary.own_name(), os.getppid()
    other = form.format(host=own.partition("-")[0], pid=parent, since=temporary.started(parent))
    assert busy(other)
    assert not busy(own)
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: 4_070_908_800.0)  # by which it gives times of day
    assert not temporary.has_ended(own)
    assert busy(other)


@pytest.mark.skipif(sys.platform != "linux", reason="containers are of Linux")
def test_a_run_of_a_container_is_not_going_on_because_a_process_here_has_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = os.getppid()
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]")
    there = temporary.own_name().partition("-")[0]
    monkeypatch.undo()
    name = f"{there}-{parent}-{temporary.started(parent)}"
    assert not busy(name)
    assert temporary.is_elsewhere(name)
    assert not temporary.is_elsewhere(temporary.own_name())


@pytest.mark.skipif(sys.platform != "linux", reason="containers are of Linux")
def test_a_process_in_a_container_that_has_our_hosts_name_is_not_held_to_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, _, since = temporary.own_name().split("-")
    assert temporary.has_ended(f"{host}-{2**22 + 1}-{since}"), "no process has that number"
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]")
    there = temporary.own_name().partition("-")[0]
    monkeypatch.undo()
    assert not temporary.has_ended(f"{there}-{2**22 + 1}-{since}"), "it may live where numbers are others"


# -- temporary trees and files -----------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True, text=True).stdout


def held_against(dyno: Dyno, folder: Path) -> subprocess.Popen[str]:
    """A run against a revision whose code does not return, when its tree is there."""
    (folder / "model.py").write_text("import time\ntime.sleep(3600)\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "model.py")
    git(folder, "commit", "--quiet", "-m", "hangs")
    (folder / "model.py").write_text("import torch\ndef build(): return torch.nn.Linear(8, 8), torch.ones(4, 8)\n")
    process = dyno.start("run", str(folder / "model.py"), "--against", "HEAD")
    wait_for(lambda: bool([*dyno.folder.glob("mldyno-*/tree/model.py")]), GONE_DEADLINE_S, "a tree of that revision")
    dyno.wait_until_stuck(process, records=0, workers=1)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_tree_of_a_revision_goes_when_a_signal_ends_the_command(
    dyno: Dyno, tmp_path_factory: pytest.TempPathFactory, number: signal.Signals
) -> None:
    repository = tmp_path_factory.mktemp("repository")
    process = held_against(dyno, repository)
    dyno.strike(process, number)
    done = dyno.finish(process)
    assert done.code == 3
    assert done.lines[-1] == f"mldyno: ended by {'Ctrl-C' if number == signal.SIGINT else number.name}."
    assert not [*dyno.folder.glob("mldyno-*")]
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_what_a_killed_command_left_is_removed_by_the_next_one_and_nothing_else(
    dyno: Dyno, tmp_path_factory: pytest.TempPathFactory
) -> None:
    process = held_against(dyno, tmp_path_factory.mktemp("repository"))
    dyno.strike(process, signal.SIGKILL)
    dyno.finish(process)
    (tree,) = dyno.folder.glob("mldyno-*")
    others = dyno.folder / "mldyno-mine", dyno.folder / tree.name.replace("mldyno-", "mldyno-ffffffff", 1)
    for other in others:
        other.mkdir()
    dyno.measure("mlp", "--mode", "infer", "--steps", "10")
    assert sorted(dyno.folder.glob("mldyno-*")) == sorted(others)


def test_what_a_killed_export_left_is_removed_by_the_next_one(dyno: Dyno) -> None:
    dyno.measure("mlp", "--mode", "infer", "--steps", "10")
    target = dyno.folder / "out" / "all.jsonl"
    target.parent.mkdir()
    code = f"""
import os, sys
from mldyno.temporary import atomic_file
with atomic_file({str(target)!r}) as out:
    out.write(b"half")
    out.flush()
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert len(os.listdir(target.parent)) == 1
    assert dyno("export", str(target)).code == 0
    assert os.listdir(target.parent) == [target.name]
