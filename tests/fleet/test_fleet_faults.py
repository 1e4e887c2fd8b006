"""Faults in the middle of a run, for each engine: other hosts go on, nothing that was measured is lost, nothing stays.

`make test-fleet` runs all of it; `make test` what takes a few seconds, for the engines of its LABS.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.labs import slurm
from bench.labs.machines import Lab, Machine, wait_for
from tests.fleet.on_labs import ENGINES, TIMES, Fleet, clean

import mldyno
from mldyno import api
from mldyno.errors import StoreError
from mldyno.fleet.conductor import Member

pytestmark = pytest.mark.timeout(600)
long = pytest.mark.long


def only(*engines: str) -> pytest.MarkDecorator:
    """Where a fault exists for these engines only."""
    return pytest.mark.parametrize("fleet", engines, indirect=True)


@pytest.fixture(params=ENGINES)
def fleet(request: pytest.FixtureRequest, lab: Lab, at_login: Lab, tmp_path: Path) -> Iterator[Fleet]:
    """Two healthy nodes, reached by each engine in turn."""
    for service in request.param.split("-"):
        request.getfixturevalue(f"{service}_lab")
    made = Fleet(request.param, lab, tmp_path, tmp_path / "records.sqlite")
    yield made
    for node in lab.nodes:
        for process in made.remotes(node):
            process.resume()
    made.heal()
    made.nothing_is_left()
    clean(lab)


def survives(fleet: Fleet, strike: Callable[[], object], state: str, reason: str) -> None:
    """node1 is struck, and in this state for this reason; then all of it is there nevertheless, and nothing twice."""
    ended = fleet.run(strike)
    assert state in fleet.events.states["node1"], fleet.events.states
    assert any(reason in each for each in fleet.events.reasons["node1"]), fleet.events.reasons
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    assert (ended["node1"].state, ended["node1"].reason) == ("done", "")
    assert fleet.complete()
    assert fleet.results.all_ok
    fleet.nothing_is_left()


def refused(fleet: Fleet, *reasons: str, state: str = "refused") -> None:
    """node1 has this state for one of these reasons, and node2 has measured all."""
    ended = fleet.run()
    assert ended["node1"].state == state, ended["node1"]
    assert any(reason in ended["node1"].reason for reason in reasons), ended["node1"].reason
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    assert not fleet.results.all_ok
    assert "node1" in str(fleet.results)
    fleet.nothing_is_left()


OWN_PYTHON = "/tmp/own/python"
OLD_MAIN = """
import os, sys
def main():
    os.write(1, b'{"is":"hello","wire":1,"mldyno":"0.0.1","python":"3.11.2","pid":42}\\n')
    sys.stdin.read()
"""


def own_python(node: Machine, settings: str = "") -> None:
    """Make an interpreter on one node only, which has these settings."""
    node.run("mkdir", "-p", str(Path(OWN_PYTHON).parent))
    path = node.path(OWN_PYTHON)
    path.write_text(f'#!/bin/sh\nexec env {settings} {sys.executable} "$@"\n')
    path.chmod(0o755)


# -- before the first record ---------------------------------------------------------------------------


def test_healthy_hosts_measure_all_at_once(fleet: Fleet) -> None:
    ended = fleet.run()
    assert {name: (each.state, each.records) for name, each in ended.items()} == {
        "node1": ("done", 8),
        "node2": ("done", 8),
    }
    assert fleet.complete()
    began = {name: min(each.created for each in records) for name, records in fleet.records().items()}
    ends = {name: max(each.created for each in records) for name, records in fleet.records().items()}
    assert began["node1"] < ends["node2"]
    assert began["node2"] < ends["node1"]
    fleet.nothing_is_left()


@long
def test_a_host_that_can_t_be_reached_is_refused(fleet: Fleet) -> None:
    fleet.lab.cut("node1")
    ended = fleet.run()
    assert ended["node1"].state in ("refused", "lost"), ended["node1"]
    assert ended["node1"].reason
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    assert not fleet.results.all_ok


@long
def test_a_host_without_the_python_is_refused(fleet: Fleet) -> None:
    own_python(fleet.lab.nodes[1])
    fleet.python = OWN_PYTHON
    refused(fleet, "No such file", "not found")


@long
def test_a_host_with_another_version_that_can_t_be_replaced_is_refused(fleet: Fleet) -> None:
    """Its Python has another mldyno, whatever is installed over it."""
    own_python(fleet.lab.nodes[0], f"PYTHONPATH={fleet.struck.home}/shim")
    own_python(fleet.lab.nodes[1])
    package = fleet.struck.path(fleet.struck.home / "shim" / "mldyno")
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('__version__ = "0.0.1"\n')
    (package / "__main__.py").write_text(OLD_MAIN)
    fleet.python = OWN_PYTHON
    refused(fleet, f"it has mldyno 0.0.1, and here is {mldyno.__version__}")


@long
def test_a_busy_host_says_who_measures_there_and_the_others_are_measured(fleet: Fleet) -> None:
    """The fake framework would not be disturbed, so these are commands."""
    node = fleet.struck
    words = [sys.executable, "-m", "mldyno", "run", "--steps", "1000", "--", "sleep", "1"]
    node.start(*words, log=fleet.lab.folder / "log" / "busy")
    wait_for(lambda: node.processes("sleep 1"), "a measurement on node1")

    def run(resume: bool = False) -> dict[str, Member]:
        results = api.run_on(
            str(fleet.file), command=["sleep", "0.05"], steps=3, repeats=1, times=TIMES, store=str(fleet.store),
            resume=resume,
        )  # fmt: skip
        assert results.all_ok == resume
        return {member.name: member for member in results.hosts}

    try:
        ended = run()
    finally:
        for process in (*node.processes("-m mldyno run"), *node.processes("mldyno/worker"), *node.processes("sleep 1")):
            process.kill()
    assert (ended["node1"].state, ended["node2"].state) == ("busy", "done"), ended["node1"].reason
    assert "process" in ended["node1"].reason
    assert run(resume=True)["node1"].state == "done"


@long
@only("ssh", "ssh-slurm")
def test_a_host_whose_key_is_not_known_is_refused(fleet: Fleet) -> None:
    known = fleet.lab.folder / "ssh" / "known"
    text = known.read_text()
    name = "node1" if fleet.engine == "ssh" else "login"
    known.write_text("".join(line for line in text.splitlines(True) if not line.startswith(f"{name} ")))
    try:
        if name == "node1":
            refused(fleet, "Host key verification failed")
        else:  # nothing can be asked for at all
            with pytest.raises(Exception, match="Host key verification failed"):
                fleet.run()
    finally:
        known.write_text(text)


@long
@only("ssh")
def test_a_login_node_is_not_measured(fleet: Fleet, slurm_lab: Lab) -> None:
    path = fleet.folder / "login.toml"
    path.write_text(f'[hosts.login]\nssh = "login"\npython = "{sys.executable}"\n')
    results = api.run_on(str(path), "mlp", framework="fake", store=str(fleet.store), times=TIMES)
    assert results.hosts[0].state == "refused"
    assert "login node" in results.hosts[0].reason


# -- in the middle -------------------------------------------------------------------------------------


def test_a_killed_remote_runner_is_asked_again(fleet: Fleet) -> None:
    survives(fleet, lambda: [each.kill() for each in fleet.remotes(fleet.struck)], "lost", "")


@long
def test_a_stopped_remote_runner_is_taken_for_lost_and_ended(fleet: Fleet) -> None:
    survives(
        fleet, lambda: [each.suspend() for each in fleet.remotes(fleet.struck)], "lost", "nothing was heard for 6 s"
    )


@long
def test_a_killed_launcher_is_started_again(fleet: Fleet) -> None:
    survives(fleet, lambda: [each.kill() for each in fleet.launchers()], "lost", "")


@long
def test_a_cable_that_is_cut_for_a_while(fleet: Fleet) -> None:
    def cut() -> None:
        fleet.lab.cut("node1")
        fleet.later(TIMES.silent + 2, lambda: fleet.lab.mend("node1"))

    survives(fleet, cut, "lost", "nothing was heard for 6 s")


@long
def test_a_cable_that_is_cut_for_good(fleet: Fleet) -> None:
    ended = fleet.run(lambda: fleet.lab.cut("node1"))
    assert ended["node1"].state == "lost"
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    assert not fleet.results.all_ok
    fleet.nothing_is_left()  # on node1 too, where nobody can say so
    there = len(fleet.records().get("node1", ()))
    assert there >= 2
    fleet.heal()
    resumed = fleet.run(resume=True)
    assert resumed["node1"].state == "done", resumed["node1"]
    assert fleet.complete()


@long
def test_a_full_disk_of_a_host_loses_nothing_that_was_measured(fleet: Fleet) -> None:
    ended = fleet.run(fleet.struck.fill_disk)
    assert ended["node1"].state in ("failed", "done"), ended["node1"]
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    sent = {record.id for record in fleet.records()["node1"]}
    fleet.struck.empty_disk()
    if ended["node1"].state != "done":
        assert fleet.run(resume=True)["node1"].state == "done"
    records = fleet.records()["node1"]  # what the full disk did not take came here, and is measured again
    assert sent <= {record.id for record in records}
    assert {record.run.repeat for record in records} == {*range(8)}


@long
def test_a_killed_conductor_leaves_nothing_running_and_nothing_is_lost(fleet: Fleet) -> None:
    words = ["mldyno", "run", "mlp", "--framework", "fake", "--device", "cpu", "--mode", "infer", "--steps", "3",
             "--repeats", "30", "--on", str(fleet.file), "--store", str(fleet.store), "--json"]  # fmt: skip
    program = [sys.executable, "-m", *words]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=fleet.folder) as conductor:
        assert conductor.stdout is not None
        seen = 0
        while seen < 4:
            seen += '"record"' in conductor.stdout.readline()
        conductor.send_signal(signal.SIGKILL)
    fleet.nothing_is_left()
    done = subprocess.run(
        [*program[:3], "run", *words[2:], "--resume"], check=False, capture_output=True, text=True, cwd=fleet.folder
    )
    assert done.returncode == 0, done.stderr
    assert fleet.complete(30)


@long
def test_a_full_disk_here_ends_the_run_and_the_rest_is_fetched_later(fleet: Fleet) -> None:
    disk = fleet.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "mldyno-test", str(disk)], check=True)
    fleet.store = disk / "records.sqlite"

    def fill() -> None:
        used = os.statvfs(disk)
        size = (used.f_blocks - used.f_bfree) * used.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)

    try:
        with pytest.raises(StoreError, match="--resume fetches it"):
            fleet.run(fill)
        fleet.nothing_is_left()
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert fleet.run(resume=True)["node1"].state == "done"
        assert fleet.complete()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# -- of one engine -------------------------------------------------------------------------------------


@long
@only("slurm", "ssh-slurm")
def test_a_cancelled_job_is_asked_for_again(fleet: Fleet) -> None:

    def cancel() -> None:
        fleet.lab.at_head("scancel", *fleet.lab.at_head("squeue", "-h", "--nodelist=node1", "-o", "%i").split())

    survives(fleet, cancel, "lost", "")


@long
@only("slurm", "ssh-slurm")
def test_a_killed_slurmd_costs_its_node_and_no_other(fleet: Fleet) -> None:
    node = fleet.struck
    ended = fleet.run(
        lambda: [each.kill() for each in node.processes("slurmd") if "slurmd-wlm -D" in " ".join(each.cmdline())]
    )
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    slurm.start_node(fleet.lab, node)
    fleet.heal()
    if ended["node1"].state != "done":  # the step goes on without slurmd until Slurm misses that
        assert fleet.run(resume=True)["node1"].state == "done"
    assert fleet.complete()


@long
@only("ray")
def test_a_killed_raylet_costs_its_node_and_no_other(fleet: Fleet) -> None:
    node = fleet.struck
    ended = fleet.run(lambda: [each.kill() for each in node.processes("raylet/raylet")])
    assert ended["node1"].state == "lost", ended["node1"]
    assert (ended["node2"].state, ended["node2"].records) == ("done", 8)
    fleet.nothing_is_left()
    fleet.heal()
    assert fleet.run(resume=True)["node1"].state == "done"
    assert fleet.complete()
