"""The labs: machines that are namespaces, real services on them, and nothing left of either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from bench.labs import tools
from bench.labs.machines import Lab, wait_for
from bench.labs.postgres import PORT, Server

HOLDS_A_LAB = """
import time
from bench.labs.machines import machines
with machines(1) as lab:
    print(lab.folder, *(machine.pid for machine in lab.machines), flush=True)
    time.sleep(600)
"""


def said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lab_ends_with_the_process_that_made_it(number: signal.Signals) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS_A_LAB], stdout=subprocess.PIPE, text=True, cwd=tools.ROOT)
    assert holder.stdout is not None
    folder, *pids = holder.stdout.readline().split()
    assert len(pids) == 2
    holder.send_signal(number)
    holder.communicate()
    wait_for(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), "the end of its machines")
    wait_for(lambda: not Path(folder).exists(), "the removal of its folder")


def test_machines_have_their_own_names_homes_and_processes(lab: Lab) -> None:
    first, second = lab.nodes
    first.run("sh", "-c", "echo mine > $HOME/file; echo mine > /tmp/file; echo mine > /run/lock/file")
    assert (first.run("hostname").strip(), second.run("hostname").strip()) == ("node1", "node2")
    assert second.run("ls", str(lab.home), "/tmp", "/run/lock").count("file") == 0
    assert first.path(lab.home / "file").read_text() == "mine\n"
    assert str(os.getpid()) not in first.run("ps", "-eo", "pid").split()


def test_a_full_disk_is_full_on_that_machine_only(lab: Lab) -> None:
    first, second = lab.nodes
    first.fill_disk()
    try:
        with pytest.raises(RuntimeError, match="No space left"):
            first.run("sh", "-c", "head -c 100000 /dev/zero > $HOME/zeros")
        second.run("sh", "-c", "head -c 100000 /dev/zero > $HOME/zeros && rm $HOME/zeros")
    finally:
        first.empty_disk()
    first.run("sh", "-c", "head -c 100000 /dev/zero > $HOME/zeros && rm $HOME/zeros")


def test_ssh_reaches_each_machine_by_its_name_until_its_cable_is_cut(ssh_lab: Lab, at_login: Lab) -> None:
    assert said("ssh", "-o", "BatchMode=yes", "node1", "hostname") == "node1"
    assert said("ssh", "-o", "BatchMode=yes", "node2", "echo $HOME") == str(at_login.home)
    ssh_lab.cut("node2")
    try:
        words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=1", "node2", "hostname"]
        assert subprocess.run(words, check=False, capture_output=True).returncode == 255
        assert said("ssh", "-o", "BatchMode=yes", "node1", "hostname") == "node1"
    finally:
        ssh_lab.mend("node2")
    assert said("ssh", "-o", "BatchMode=yes", "-o", "ConnectionAttempts=5", "node2", "hostname") == "node2"


def test_srun_reaches_each_node_from_here_and_from_the_login_node(
    slurm_lab: Lab, ssh_lab: Lab, at_login: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which srun passes on, and nproc heeds
    whole = ("-n1", "-N1", "-c2", "--exclusive", "--mem=0", "--chdir=/tmp")
    assert said("srun", "-w", "node2", *whole, "sh", "-c", "hostname; nproc") == "node2\n2"
    assert said("ssh", "-o", "BatchMode=yes", "login", "srun -w node1 -n1 hostname") == "node1"
    assert said("srun", "-w", "node1", "-N1", "-n1", "--exclusive", "nproc") == "1"  # the trap: one core of the node


def test_postgresql_recovers_from_kill_9(postgres_lab: Server) -> None:
    assert postgres_lab.processes()
    postgres_lab.kill()
    assert not postgres_lab.answers()
    postgres_lab.start()
    assert postgres_lab.answers()


def test_what_listens_in_a_lab_listens_nowhere_else(slurm_lab: Lab, postgres_lab: Server) -> None:
    outside = {each.laddr.port for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    assert {6817, 6818, PORT}.isdisjoint(outside)
    assert ":1AA1 00000000:0000 0A" in slurm_lab.head.run("cat", "/proc/net/tcp")  # Slurm's controller, at 6817


def test_a_missing_tool_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools, "PLACE", tmp_path)
    monkeypatch.setattr(tools, "_system_path", lambda: "")
    with pytest.raises(tools.MissingTool, match=r"srun is missing; `make lab-slurm` unpacks it .* slurm-client"):
        tools.Tools("slurm").program("srun")
    with pytest.raises(tools.MissingTool, match="`make lab-ray`"):
        tools.ray_python()
