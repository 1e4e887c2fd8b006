"""The words of `srun`, from what `sinfo` says; and both for real on a cluster of two nodes."""

from __future__ import annotations

import shlex
import signal
import subprocess
from functools import partial

import pytest
from bench.labs.machines import Lab, wait_for
from tests.conftest import Tool

from mldyno.engines import Host
from mldyno.engines.slurm import Slurm
from mldyno.engines.ssh import Ssh
from mldyno.errors import MldynoError, UsageError

RUN = "20260101T000000-abcdef"
SAID = """\
a1|cpu*|64|(null)|idle|infinite
a2|cpu*|32|(null)|alloc|infinite
g1|gpu|48|gpu:a100:4(S:0-1),shard:8|mix|2-00:00:00
g1|debug|48|gpu:a100:4(S:0-1),shard:8|mix|30:00
g2|gpu|48|gpu:2,gpu:mi300:6|drain*|2-00:00:00
g3|gpu|48|(null)|drng|2-00:00:00
g4|gpu|48|(null)|idle~|2-00:00:00
"""


@pytest.fixture
def sinfo(tool: Tool) -> None:
    """A cluster of two partitions, and one for trying things out."""
    tool("sinfo", f"cat <<'END'\n{SAID}END")


def words(node: str, partition: str = "", seconds: float | None = 61.0) -> list[str]:
    engine = Slurm(RUN, seconds)
    host = next(host for host in engine.hosts(partition or node) if host.name == node)
    return engine.command(host, ["python3", "-c", "a b"])


@pytest.mark.usefixtures("sinfo")
def test_all_nodes_a_partition_or_names() -> None:
    names = {wanted: [host.name for host in Slurm().hosts(wanted)] for wanted in ("", "gpu", "g1,a2", "debug")}
    assert names == {
        "": ["a1", "a2", "g1", "g2", "g3", "g4"],
        "gpu": ["g1", "g2", "g3", "g4"],
        "g1,a2": ["g1", "a2"],
        "debug": ["g1"],
    }


@pytest.mark.usefixtures("sinfo")
def test_a_job_has_all_of_its_node_and_an_end() -> None:
    assert words("a1")[:5] == ["srun", "--nodelist=a1", "-N1", "-n1", "--exclusive"]
    assert {"--cpus-per-task=64", "--mem=0", "--partition=cpu", "--time=2"} < {*words("a1")}
    assert {"--cpus-per-task=48", "--gpus-per-node=4", "--partition=gpu"} < {*words("g1")}
    assert not any(word.startswith("--gpus") for word in words("a1"))
    assert words("a1")[-4:] == ["--", "python3", "-c", "a b"]


@pytest.mark.usefixtures("sinfo")
def test_a_job_gets_no_more_of_the_environment_than_paths_and_who_it_is() -> None:
    assert "--export=HOME,PATH,USER,LOGNAME" in words("a1")


@pytest.mark.usefixtures("sinfo")
def test_a_partition_s_limit_bounds_the_time() -> None:
    assert "--time=30" in words("g1", "debug", 7200.0)
    assert "--time=120" in words("g1", "gpu", 7200.0)
    assert "--time=240" in words("a1", seconds=None)


@pytest.mark.usefixtures("sinfo")
def test_what_can_t_run_is_refused_with_its_reason_and_the_others_are_not() -> None:
    engine = Slurm(RUN)
    refused = {}
    for host in engine.hosts("gpu"):
        try:
            engine.command(host, [])
        except MldynoError as error:
            refused[host.name] = str(error)
    assert refused == {
        "g2": "Slurm has g2 down; `sinfo -R` says why.",
        "g3": "Slurm has g3 draining; `sinfo -R` says why.",
    }


@pytest.mark.usefixtures("sinfo")
def test_an_unknown_node_is_named_with_the_partitions() -> None:
    with pytest.raises(UsageError, match="'h100' is no node and no partition of this cluster; it has cpu, gpu, debug"):
        Slurm().hosts("g1,h100")


def test_options_of_a_hosts_file_are_those_that_srun_may_have() -> None:
    host = Host("a1", "slurm", "a1", options={"cpus": "2", "account": "x y", "qos": "high"})
    assert {"--account=x y", "--qos=high"} < {*Slurm(RUN).command(host, [])}
    with pytest.raises(UsageError, match="slurm has no option 'uid'"):
        Slurm(RUN).command(Host("a1", "slurm", "a1", options={"uid": "0"}), [])


def test_what_is_left_of_a_run_is_cancelled_by_its_name(tool: Tool, tmp_path: object) -> None:
    tool("scancel", f'echo "$@" > {tmp_path}/said')
    Slurm(RUN).clear(Host("a1", "slurm", "a1"))
    with open(f"{tmp_path}/said", encoding="utf-8") as file:
        assert file.read() == f"--name=mldyno-{RUN}-a1\n"


def test_the_reason_is_the_line_that_says_more_than_that_a_task_has_ended() -> None:
    noise = ["srun: job 5 queued and waiting for resources", "slurmstepd: error: execve(): x: No such file",
             "srun: error: node1: task 0: Exited with exit code 2"]  # fmt: skip
    assert Slurm().why(noise) == noise[1]
    assert Slurm().why(noise[2:]) == noise[2]
    assert Slurm().why([]) == ""


# -- for real ------------------------------------------------------------------------------------------


def done(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_task_has_all_cores_and_little_of_the_environment(
    slurm_lab: Lab, at_login: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    engine = Slurm(RUN, 60.0)
    first, second = engine.hosts("")
    said = done(engine.command(second, ["sh", "-c", "hostname; nproc; echo $HOME; env"])).stdout.splitlines()
    assert said[:3] == ["node2", "2", str(at_login.home)]
    assert not [line for line in said if line.startswith("OMP_")]
    assert [host.name for host in engine.hosts("node[1-2]")] == [first.name, second.name] == ["node1", "node2"]


def test_the_pipe_goes_through_a_login_node(slurm_lab: Lab, ssh_lab: Lab, at_login: Lab) -> None:
    ssh = Ssh()
    engine = Slurm(RUN, 60.0, partial(ssh.command, ssh.hosts("login")[0]))
    (host,) = engine.hosts("node1")
    words = engine.reach(engine.command(host, ["sh", "-c", "hostname; cat; echo 'a  b'"]))
    assert words[0] == "ssh"
    assert subprocess.run(words, input="c\n", capture_output=True, text=True, check=True).stdout == "node1\nc\na  b\n"


def test_a_job_of_a_killed_srun_is_gone_when_the_run_comes_back(slurm_lab: Lab, at_login: Lab) -> None:
    engine = Slurm(RUN, 60.0)
    (host,) = engine.hosts("node1")
    with subprocess.Popen(engine.command(host, ["sleep", "321"]), stdin=subprocess.DEVNULL) as srun:
        wait_for(lambda: slurm_lab.nodes[0].processes("sleep 321"), "the task")
        srun.send_signal(signal.SIGKILL)
    assert slurm_lab.nodes[0].processes("sleep 321")
    engine.clear(host)
    wait_for(lambda: not slurm_lab.nodes[0].processes("sleep 321"), "the end of the task")
    wait_for(lambda: not slurm_lab.at_head("squeue", "-h"), "an empty queue")


def test_a_drained_node_is_refused_with_slurms_word(slurm_lab: Lab, at_login: Lab) -> None:
    engine = Slurm(RUN)
    slurm_lab.at_head("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    try:
        first, second = engine.hosts("lab")
        with pytest.raises(MldynoError, match=r"node1 drain(ed|ing)"):
            engine.command(first, [])
        assert shlex.join(engine.command(second, ["true"])).endswith("-- true")
    finally:
        slurm_lab.at_head("scontrol", "update", "nodename=node1", "state=resume")
