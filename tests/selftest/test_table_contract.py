"""A device's contract is carried out to its end, whatever the process that carries it out comes to."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mldyno import plugins
from mldyno.selftest import device, table
from mldyno.selftest.measures import Process
from mldyno.selftest.setup import TaskResult
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
        print("a library warns", file=sys.stderr, flush=True)
        raise ValueError("no such thing")
    if task == "endless":
        while True:
            yield {"variable": os.environ.get("FAKE_SETTING")}
            time.sleep(0.1)
    yield {"pid": os.getpid()}
    if task == "spoil":
        spoilt = True
        yield {"status": "failed"}

def still_fit(framework, device, comparisons, detail):
    return not spoilt

NAMES = ("one", "two", "crash", "hang", "leave", "fail", "spoil", "endless")
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

    def begin(*tasks: str, until: float = math.inf) -> Contract:
        begun.append(Contract("fake", "gpu", 1, tasks, until))
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


def test_the_last_words_of_each_process_are_kept_with_its_tasks(begin: Begin) -> None:
    contract = begin("one", "fail", "crash", "two")
    contract.result("two", quiet)
    died, left = contract.processes
    assert (died.framework, died.tasks, left.tasks) == ("fake", ["one", "fail", "crash"], ["two"])
    assert died.ended == "failed: the worker was ended by SIGABRT: the driver is gone"
    assert "a library warns" in died.printed
    assert died.printed[-1] == "the driver is gone"
    assert "ValueError: no such thing" in died.printed
    assert [line for line in died.printed if "stub_tasks.py" in line]
    assert (left.ended, left.printed) == ("", ["a library says hello"])


def test_a_contract_ends_when_its_time_is_over_and_what_was_not_begun_is_not_tried(begin: Begin) -> None:
    contract = begin("endless", "two", until=time.monotonic() + 1.5)
    endless, two = contract.result("endless", quiet), contract.result("two", quiet)
    assert endless.rows
    assert endless.failure == two.failure == "not tried: the time was over"
    assert two.rows == []
    hung = begin("hang", until=time.monotonic() + 1.5)
    assert hung.result("hang", quiet).failure == "not tried: the time was over"
    assert hung.processes[0].ended


def test_a_contract_has_the_environment_that_the_framework_sets_for_a_case(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"FAKE_SETTING": "as a case has it"}
    monkeypatch.setattr(type(plugins.framework("fake")), "environment", lambda self, case: settings)
    rows = begin("endless", until=time.monotonic() + 1.0).result("endless", quiet).rows
    assert rows[0] == {"variable": "as a case has it"}


def test_comparisons_of_identical_code_fit_into_the_time_of_a_framework() -> None:
    assert device.comparisons_within(1000.0, "torch", 100) == 100
    assert device.comparisons_within(1.0, "torch", 100) == device.FEWEST_COMPARISONS
    some = device.comparisons_within(200.0, "torch", 100)
    assert device.FEWEST_COMPARISONS < some < 100
    assert sum(seconds for _, seconds, _ in device.exercises("torch", some)) <= 202.0
    assert device.comparisons_within(200.0, "openvino", 100) > some  # it has fewer precisions


def test_each_framework_has_its_part_of_the_time_and_passes_on_what_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[float] = []
    titles: list[str] = []

    class Untried(Contract):
        """A contract for which there is no time."""

        def __init__(self, framework: str, device: str, comparisons: int, until: float) -> None:
            super().__init__(framework, device, comparisons, until=until)
            ends.append(until)
            self.processes = [Process(framework)]

        def result(self, task: str, tick: Callable[[], None]) -> TaskResult:
            return TaskResult(failure=f"not tried: {self.framework}")

    monkeypatch.setattr(table, "Contract", Untried)
    processes: list[Process] = []

    def tell(part: str, left: float) -> None:
        titles.append(part)

    measures = [*table.run_on_device(table.QUICK, ["torch", "jax"], "sim", 400.0, tell, processes)]
    assert ends[1] - ends[0] == pytest.approx(200.0)
    assert sorted(measure.id for measure in measures) == sorted(2 * [*table.ON_A_DEVICE])
    assert measures[16].id == 29, "identical code comes last"
    assert [measure.framework for measure in measures[::17]] == ["torch", "jax"]
    assert {measure.ok for measure in measures} == {None}
    assert titles[0] == "torch: the device"
    assert [process.framework for process in processes] == ["torch", "jax"]
