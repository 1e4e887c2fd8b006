"""A device's contract is carried out to its end, whatever the process that carries it out comes to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mldyno.selftest import table
from mldyno.selftest.table import Contract

# Tasks that do what their names say, in a real worker.
STUB = """
import os, signal, sys, time

spoilt = False

def carry_out(framework, device, comparisons, detail, task):
    global spoilt
    print("a library says hello", flush=True)
    if task == "crash":
        print("the driver is gone", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if task == "hang":
        time.sleep(60)
    if task == "leave":
        os._exit(0)
    if task == "fail":
        raise ValueError("no such thing")
    yield {"pid": os.getpid()}
    if task == "spoil":
        spoilt = True
        yield {"status": "failed"}

def still_fit(framework, device, comparisons, detail):
    return not spoilt

NAMES = ("one", "two", "crash", "hang", "leave", "fail", "spoil")
TASKS = {name: (lambda framework, task=name, **more: carry_out(framework, **more, task=task)) for name in NAMES}
"""
Begin = Callable[..., Contract]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """A contract with such tasks."""
    (tmp_path / "stub_tasks.py").write_text(STUB)
    monkeypatch.setattr(table, "CONTRACT_MODULE", "stub_tasks")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    begun: list[Contract] = []

    def begin(*tasks: str) -> Contract:
        begun.append(Contract("fake", "gpu", 1, tasks))
        return begun[-1]

    yield begin
    for going in begun:
        going.end()


def quiet() -> None:
    """Nobody listens."""


def test_all_tasks_share_a_process_and_what_libraries_print_is_passed_over(begin: Begin) -> None:
    going = begin("one", "two")
    assert going.result("two", quiet).rows == going.result("one", quiet).rows
    assert going.result("one", quiet).failure == ""


def test_every_line_on_the_way_to_a_result_is_heard_of(begin: Begin) -> None:
    ticks: list[int] = []
    begin("one", "two").result("one", lambda: ticks.append(1))
    assert 3 <= len(ticks) <= 4


def test_a_task_that_ends_the_process_has_that_as_its_result_and_the_others_go_on(begin: Begin) -> None:
    going = begin("one", "crash", "two")
    assert going.result("crash", quiet).failure == "failed: the worker was ended by SIGABRT: the driver is gone"
    assert going.result("two", quiet).rows != going.result("one", quiet).rows
    assert going.result("two", quiet).failure == ""


def test_a_task_that_fails_says_why_and_ends_nothing(begin: Begin) -> None:
    going = begin("fail", "two")
    assert going.result("fail", quiet).failure == "failed: ValueError: no such thing"
    assert going.result("two", quiet).rows


def test_a_process_that_ends_between_two_tasks_is_followed_by_another(begin: Begin) -> None:
    going = begin("one", "spoil", "two")
    assert [going.result(task, quiet).failure for task in ("one", "spoil", "two")] == [""] * 3
    assert going.result("two", quiet).rows != going.result("one", quiet).rows


def test_a_device_that_hangs_is_given_up(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SILENCE_TIMEOUT_S", 1.5)
    going = begin("hang", "two")
    assert going.result("hang", quiet).failure == "no answer for 2 s"
    assert going.result("two", quiet).rows


def test_a_process_that_can_not_start_is_the_result_of_every_task(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never.py").write_text("import sys; sys.exit('no such module')")
    monkeypatch.setattr("mldyno.worker.client.SCRIPT", str(tmp_path / "never.py"))
    going = begin("one", "two")
    assert [going.result(task, quiet).failure for task in ("one", "two")] == [
        "failed: the worker ended early with exit code 1: no such module"
    ] * 2


def test_a_process_that_leaves_in_the_middle_is_no_success(begin: Begin) -> None:
    going = begin("leave", "two")
    assert going.result("leave", quiet).failure.startswith("failed: the worker ended early with exit code 0")
    assert going.result("two", quiet).rows


def test_when_the_last_task_is_done_no_process_is_left(
    begin: Begin, left_behind: Callable[[], set[psutil.Process]]
) -> None:
    begin("one", "two").result("two", quiet)
    assert left_behind() == set()
