"""Two machines that train together, each a network namespace with an address of its own; and one that leaves."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from bench.networks import Node
from tests.faults.conftest import MARK, wait_for

from mldyno.plugins import workload
from mldyno.records import Record
from mldyno.store import Query, Store

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

pytestmark = pytest.mark.timeout(600)
PORT = 29411
RUN = ("run", "mnist-mlp", "--mode", "train", "--placement", "device", "--ranks", "2", "--nodes", "2", "--batch", "16",
       "--repeats", "1")  # fmt: skip
LONGEST_S = 240.0
WAIT = "5s"  # for a job, from when the first node listens
BRIEFLY = ("--budget", "0.3s")
STEPS = 10  # whose gradients have passed: more than the parameters that ranks begin with


def first(dyno: Dyno, node: Node, *more: str) -> tuple[subprocess.Popen[str], list[str]]:
    """The command on the first node, and the words to type on the other."""
    own = {MARK: dyno.mark, "MLDYNO_STORE": str(dyno.store), "MLDYNO_FAKE": "[]"}
    process = node.start(*RUN, "--rendezvous", f"{node.address}:{PORT}", *more, environment=own)
    assert process.stderr is not None
    line = process.stderr.readline()
    _, shown, words = line.partition("on each other machine: mldyno ")
    assert shown, line
    wait_for(lambda: listens(node), LONGEST_S, "a first node that listens")
    return process, words.split()


def joined(dyno: Dyno, node: Node, words: list[str]) -> subprocess.Popen[str]:
    return node.start(*words, "--wait", WAIT, environment={MARK: dyno.mark})


def record(dyno: Dyno) -> Record:
    (only,) = Store(dyno.store).stream(Query(heads=False))
    return only


def test_two_nodes_make_one_record_with_the_facts_of_both_and_a_wrong_token_is_refused_in_one_line(
    dyno: Dyno, nodes: tuple[Node, Node]
) -> None:
    process, words = first(dyno, nodes[0], *BRIEFLY)
    token = words.index("--token") + 1
    stranger = joined(dyno, nodes[1], [*words[:token], "0123456789abcdef", *words[token + 1 :]])
    out, err = stranger.communicate(timeout=LONGEST_S)
    assert (stranger.returncode, out, len(err.splitlines())) == (1, "", 1), err
    assert "refuses this token" in err
    other = joined(dyno, nodes[1], words)  # the right one is let in after it
    assert process.communicate(timeout=LONGEST_S)[0] is not None
    said = other.communicate(timeout=LONGEST_S)[1]
    assert other.returncode == 0
    has_the_facts_of_both(record(dyno), said)


def has_the_facts_of_both(measured: Record, said: str) -> None:
    """The record of a job of two nodes, and what the one that joined said."""
    assert measured.status == "ok", measured.reason
    assert measured.case.id.endswith("/r2/n2")
    assert len(measured.fact("nodes").split("; ")) == 2
    assert measured.values("compute_time", "rank-1")
    assert "job 1: done" in said
    assert "took part in 1 job" in said


def test_a_node_that_leaves_becomes_a_record_and_nothing_is_left_behind(dyno: Dyno, nodes: tuple[Node, Node]) -> None:
    process, words = first(dyno, nodes[0], "--budget", "120s")
    before = nodes[1].received()
    other = joined(dyno, nodes[1], words)
    gradients = 4 * workload("mnist-mlp").params
    wait_for(lambda: nodes[1].received() - before > STEPS * gradients, LONGEST_S, "gradients on the cable")
    for each in psutil.Process(other.pid).children(recursive=True):
        each.kill()
    other.kill()
    process.communicate(timeout=LONGEST_S)
    other.communicate()
    assert record(dyno).status == "failed"


def test_a_rendezvous_that_never_completes_ends_with_the_timeout(dyno: Dyno, nodes: tuple[Node, Node]) -> None:
    process, _ = first(dyno, nodes[0], "--budget", "3s", "--timeout", "3s")
    process.communicate(timeout=LONGEST_S)
    assert record(dyno).status == "timeout"


def listens(node: Node) -> bool:
    words = ["ip", "netns", "exec", node.namespace, "cat", "/proc/net/tcp"]
    return f":{PORT:04X} 00000000:0000 0A" in subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_a_node_for_which_no_job_begins_has_failed(dyno: Dyno) -> None:
    done = dyno("join", f"127.0.0.1:{PORT}", "--token", "0123456789abcdef", "--ranks", "2", "--wait", "1s")
    assert done.code == 1
    assert done.lines[-1].startswith(f"mldyno: no job began at 127.0.0.1:{PORT} within 1.00 s;")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("run", "mlp", "--rendezvous", "10.0.0.1:1"), "several machines meet"),
        (("run", "mlp", "--mode", "train", "--ranks", "2", "--nodes", "2", "--rendezvous", "here"), "is no address"),
        (("run", "mlp", "--mode", "train", "--ranks", "2,4", "--nodes", "2"), "one number of ranks"),
        (("join", "10.0.0.1:1", "--token", "x", "--ranks", "2"), "is no token"),
        (("join", "10.0.0.1:1", "--token", "0123456789abcdef", "--ranks", "3"), "can't be spread"),
    ],
)
def test_what_makes_no_sense_is_one_line(dyno: Dyno, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in dyno.refusal(*words, code=2)
