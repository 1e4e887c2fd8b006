"""A device's contract is carried out to its end, whatever the process that carries it out comes to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mldyno.selftest import contract
from mldyno.selftest.contract import Contract

# A process that carries out what the names of its tasks say.
STUB = """
import json, os, signal, sys, time

def tell(task, what, **row):
    print(json.dumps({"task": task, "is": what, "row": row}), flush=True)

for task in json.loads(sys.argv[1])["tasks"]:
    if task == "never":
        sys.exit("no such module")
    tell(task, "begun")
    print("a library says hello")
    if task == "crash":
        print("the driver is gone", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if task == "hang":
        time.sleep(60)
    if task == "leave":
        sys.exit(0)
    if task == "fail":
        tell(task, "failed", status="unsupported", reason="no such thing")
    else:
        tell(task, "found", pid=os.getpid())
    tell(task, "done")
    if task == "spoil":
        sys.exit(0)
"""
Begin = Callable[..., Contract]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A contract with such tasks."""
    (tmp_path / "stub.py").write_text(STUB)
    monkeypatch.setattr(contract, "COMMAND", (sys.executable, str(tmp_path / "stub.py")))
    return lambda *tasks: Contract("torch", "sim", 1, tasks)


def quiet() -> None:
    """Nobody listens."""


def test_all_tasks_share_a_process_and_what_libraries_print_is_passed_over(begin: Begin) -> None:
    going = begin("one", "two")
    assert going.of("two", quiet).rows == going.of("one", quiet).rows
    assert going.of("one", quiet).trouble == ""


def test_every_line_on_the_way_to_a_result_is_heard_of(begin: Begin) -> None:
    ticks: list[int] = []
    begin("one", "two").of("one", lambda: ticks.append(1))
    assert 3 <= len(ticks) <= 4


def test_a_task_that_ends_the_process_has_that_as_its_result_and_the_others_go_on(begin: Begin) -> None:
    going = begin("one", "crash", "two")
    assert going.of("crash", quiet).trouble == "its process was ended by SIGABRT: the driver is gone"
    assert going.of("two", quiet).rows != going.of("one", quiet).rows
    assert going.of("two", quiet).trouble == ""


def test_a_task_that_fails_says_why_and_ends_nothing(begin: Begin) -> None:
    going = begin("fail", "two")
    assert going.of("fail", quiet).trouble == "unsupported: no such thing"
    assert going.of("two", quiet).rows


def test_a_process_that_ends_between_two_tasks_is_followed_by_another(begin: Begin) -> None:
    going = begin("one", "spoil", "two")
    assert [going.of(task, quiet).trouble for task in ("one", "spoil", "two")] == [""] * 3
    assert going.of("two", quiet).rows != going.of("one", quiet).rows


def test_a_device_that_hangs_is_given_up(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "SILENCE", 0.5)
    going = begin("hang", "two")
    assert going.of("hang", quiet).trouble == "it said nothing for 0 s"
    assert going.of("two", quiet).rows


def test_a_process_that_can_not_start_is_the_result_of_every_task(begin: Begin) -> None:
    going = begin("never", "two")
    assert [going.of(task, quiet).trouble for task in ("never", "two")] == [
        "its process ended early: no such module"
    ] * 2


def test_a_process_that_leaves_in_the_middle_is_no_success(begin: Begin) -> None:
    going = begin("leave", "two")
    assert going.of("leave", quiet).trouble == "its process ended early"
    assert going.of("two", quiet).rows
