"""Whatever a worker does, its case becomes a record with a status and a reason, and the others come out ok."""

from __future__ import annotations

import venv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.warm_workers import WarmWorkers

from mldyno import api
from mldyno.records import Record
from mldyno.runner.events import Listener
from mldyno.runner.run import Runner
from mldyno.store import Store
from mldyno.units import show_seconds
from mldyno.worker.client import WorkerProcess

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno, Rule

# Noise that keeps the target from being reached, so that 8,000 steps of 1 ms lie within the measuring:
# warm-up takes at most a quarter of the budget of 20 s.
FINE = ("--target", "0.1%", "--budget", "20s")
WHILE_MEASURED = 8_000
THREE_CASES = ("mlp", "--mode", "train", "--batch", "16,4,8", *FINE)
TIMEOUTS_S = (2, 8, 32)  # a longer one where the machine is too busy for cases without a fault

moments = pytest.mark.parametrize("after", [0, WHILE_MEASURED], ids=["in-its-first-step", "while-it-is-measured"])


@pytest.fixture(autouse=True)
def commands_within(dyno: Dyno) -> None:
    """The command that starts the worker runs in this process."""
    dyno.within = True


@pytest.fixture
def forked_workers(warm_workers: WarmWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that answer to the end, whatever they answer, are forked."""
    monkeypatch.setattr(warm_workers, "on", True)


answers = pytest.mark.usefixtures("forked_workers")


def faulty(fail: str, match: str = "*/b8/*", **more: Any) -> Rule:
    """A rule that lets the cases that match do that damage."""
    return {"match": match, "fail": fail, "step": 0.001, "noise": 0.1, **more}


def run_with(dyno: Dyno, rule: Rule, *arguments: str, **environment: str) -> Record:
    """The record of the faulty one of three cases; the others came out ok."""
    return faulty_one(rule, *dyno.measure(*THREE_CASES, *arguments, rules=(rule,), **environment))


def timed_out_with(dyno: Dyno, rule: Rule, *arguments: str) -> tuple[Record, int]:
    """The record of the faulty one of three cases, and the timeout in s in which the others came out ok."""
    for seconds in TIMEOUTS_S:
        code, records = dyno.measure(*THREE_CASES, *arguments, "--timeout", f"{seconds}s", rules=(rule,))
        others_ok = [record.status for record in records.values()].count("ok") == 2
        if others_ok and (not rule.get("after") or all(record.values("step_time") for record in records.values())):
            break
    return faulty_one(rule, code, records), seconds


def faulty_one(rule: Rule, code: int, records: dict[str, Record]) -> Record:
    """The record of the faulty one of the cases of a run; the others came out ok."""
    bad = records.pop("mlp/train/fake/cpu/fp32/b8/device")
    assert [record.status for record in records.values()] == ["ok", "ok"]
    assert all(record.values("step_time") for record in records.values())
    assert bad.status != "ok"
    assert code == 3
    if rule.get("after"):
        assert bad.values("step_time"), "what was measured before the fault is kept"
    return bad


@answers
@moments
def test_an_exception_becomes_a_record(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("exception", after=after))
    assert (record.status, record.reason) == ("failed", "RuntimeError: fake failure")


@moments
def test_a_killed_worker_becomes_a_record(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("kill", after=after))
    assert (record.status, record.reason) == ("failed", "the worker was ended by SIGKILL")


@moments
def test_a_segmentation_fault_becomes_a_record(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("segv", after=after))
    assert (record.status, record.reason) == ("failed", "the worker was ended by SIGSEGV")


@moments
def test_a_worker_that_hangs_is_ended_and_becomes_a_record(dyno: Dyno, after: int) -> None:
    record, seconds = timed_out_with(dyno, faulty("hang", after=after))
    assert record.status == "timeout"
    assert show_seconds(seconds) in record.reason
    assert "--timeout" in record.reason
    assert seconds <= float(record.facts["wall_time"] or 0) < 5 * seconds


def test_a_worker_that_talks_all_the_time_is_ended_on_time_too(dyno: Dyno) -> None:
    talks = {"match": "*/b8/*", "step": 1, "noise": 0.1}  # fake time flies, and every step of it is progress
    record, seconds = timed_out_with(dyno, talks, "--target", "0.0001%", "--budget", "1e9s")
    assert record.status == "timeout"
    assert seconds <= float(record.facts["wall_time"] or 0) < 2.5 * seconds


@answers
@moments
def test_a_framework_out_of_memory_becomes_a_record(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("oom", after=after))
    assert (record.status, record.reason) == ("oom", "fake: out of memory, tried to allocate 64 GiB")


@moments
def test_a_memory_hog_is_ended_before_it_takes_the_machine(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("hog", after=after), MLDYNO_MEMORY_LIMIT="300MB")
    assert record.status == "oom"
    assert "over MLDYNO_MEMORY_LIMIT (286 MiB)" in record.reason


@answers
@moments
def test_an_unsupported_case_becomes_a_record(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("unsupported", after=after))
    assert (record.status, record.reason) == ("unsupported", "fake: this device can't do that")


@moments
def test_a_half_written_answer_becomes_a_record(dyno: Dyno, after: int) -> None:
    record = run_with(dyno, faulty("half", after=after))
    assert record.status == "failed"
    assert record.reason.startswith("the worker's answer can't be read: ")
    assert '{"is": "blo' in record.reason


@moments
def test_garbage_and_megabytes_on_standard_output_change_nothing(dyno: Dyno, after: int) -> None:
    code, records = dyno.measure(
        "mlp", "--mode", "train", "--batch", "4,8", *FINE, rules=(faulty("garbage", after=after),)
    )
    assert {record.status for record in records.values()} == {"ok"}
    assert len(records) == 2
    assert code == 0


@answers
def test_wrong_numbers_get_no_time(dyno: Dyno) -> None:
    code, records = dyno.measure(
        "mlp", "--mode", "infer", "--device", "cpu,gpu", rules=(faulty("wrong", match="*/gpu/*"),)
    )
    assert records["mlp/infer/fake/cpu/fp32/b128/device"].status == "ok"
    wrong = records["mlp/infer/fake/gpu/fp32/b128/device"]
    assert wrong.status == "wrong"
    assert "differ from fp32 on the CPU by 0.5" in wrong.reason
    assert code == 3
    assert "wrong" in dyno("table", "framework=fake/device=gpu").out


@answers
def test_a_negative_loss_is_wrong(dyno: Dyno) -> None:
    record = run_with(dyno, faulty("wrong"))
    assert record.status == "wrong"
    assert "it must be finite and not negative" in record.reason


@answers
def test_training_that_does_not_learn_is_wrong(dyno: Dyno) -> None:
    record = run_with(dyno, faulty("stuck"))
    assert record.status == "wrong"
    assert "the loss went from 1 to 1: it did not fall" in record.reason


@answers
def test_a_series_that_never_settles_is_unsteady(dyno: Dyno) -> None:
    record = run_with(dyno, {"match": "*/b8/*", "fail": "unsettled"})
    assert record.status == "unsteady"
    assert "had not settled" in record.reason
    assert record.values("step_time"), "the series is kept"


def worker_of(python: Path) -> Callable[[], WorkerProcess]:
    """Return what makes a worker in that interpreter."""
    return lambda: WorkerProcess(python=str(python))


def test_a_framework_that_is_missing_says_how_to_install_it(dyno: Dyno, tmp_path: Path, monkeypatch: Any) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    for name, value in dyno.environment().items():
        monkeypatch.setenv(name, value)
    plan = api.make_plan(["mlp"], {"framework": ["torch", "fake"], "mode": "infer"}, {"steps": 10, "repeats": 1})
    Runner(plan, Store(dyno.store), "run", new_worker=worker_of(tmp_path / "bare/bin/python")).execute(Listener())
    missing, present = sorted(dyno.records(), key=lambda record: record.status)
    assert (missing.case.framework, missing.status) == ("torch", "failed")
    assert missing.reason == "torch is not installed for this Python; pip install 'mldyno[torch]'"
    assert (present.case.framework, present.status) == ("fake", "ok")


def test_an_interpreter_that_is_missing_becomes_a_record(dyno: Dyno, tmp_path: Path) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "mode": "infer"}, {"steps": 10, "repeats": 1})
    Runner(plan, Store(dyno.store), "run", new_worker=worker_of(tmp_path / "no-such-python")).execute(Listener())
    (record,) = dyno.records()
    assert record.status == "failed"
    assert "no-such-python can't be started: No such file or directory" in record.reason
