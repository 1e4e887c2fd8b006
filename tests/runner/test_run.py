"""Whole runs of the fake framework: exact, since time is virtual."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from mldyno import api
from mldyno.analysis.outcomes import Outcome
from mldyno.hardware import Description
from mldyno.plan import Plan
from mldyno.results import Results
from mldyno.runner.events import Interrupts
from mldyno.store import Query, Store
from mldyno.views.outcomes import trust

FakeRun = Callable[..., Results]
Script = Callable[..., None]


def test_the_known_time_of_a_step_is_reported(fake_run: FakeRun, script: Script) -> None:
    script({"step": 0.002, "noise": 0.02})
    outcome = fake_run(mode="infer").outcomes[0]
    figure = outcome.figure("step")
    assert figure is not None
    assert figure.value == pytest.approx(0.002, rel=0.005)
    assert figure.half_width is not None
    assert figure.half_width / figure.value < 0.02


def test_a_quiet_case_stops_early_and_a_noisy_one_takes_longer(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/infer/*", "step": 0.002, "noise": 0.001}, {"match": "*", "step": 0.002, "noise": 0.4})
    quiet, noisy = (sum(fake_run(mode=mode).records[0].values("step_time")) for mode in ("infer", "train"))
    assert noisy > 1.5 * quiet


def test_a_target_that_was_not_reached_is_said(fake_run: FakeRun, script: Script) -> None:
    script({"step": 0.05, "noise": 0.5, "seed": 2})
    (outcome,) = fake_run(mode="infer", budget=1.0, target=0.01).outcomes
    assert [warning.code for warning in outcome.warnings] == ["target-not-reached"]
    assert "--budget" in outcome.warnings[0].hint
    (outcome,) = fake_run(mode="infer", steps=40, target=0.01).outcomes
    assert outcome.warnings == [], "a number of steps was asked for, and no target"


def test_steps_are_run_to_the_last_one(fake_run: FakeRun) -> None:
    for record in fake_run(steps=100, device=["cpu", "gpu"]).records:
        assert record.facts["steps"] == 100
        steady = [series for series in record.series if series.metric == "step_time" and series.stage == "steady"]
        assert sum(series.block * len(series.values) for series in steady) == 100


def test_repeats_are_fresh_processes_and_rounds(fake_run: FakeRun) -> None:
    records = fake_run(mode="infer", device=["cpu", "gpu"], repeats=3).records
    assert sorted((r.case.device, r.run.repeat) for r in records) == [(d, n) for d in ("cpu", "gpu") for n in range(3)]
    assert len({record.run.process for record in records}) == 6
    assert {record.run.pairing for record in records} == {"alone"}


def test_a_record_says_what_it_was_measured_on_and_with(fake_run: FakeRun) -> None:
    record = fake_run(mode="train", device="gpu").records[0]
    assert record.machine.name == "test bench"
    assert record.machine.cores is not None
    assert [device.name for device in record.machine.devices] == ["cpu", "gpu"]
    assert record.software.versions == {"fake": "1"}
    assert record.facts["items_per_step"] == 128
    assert record.facts["first_step"] > record.values("step_time")[0]  # type: ignore[operator]
    assert record.checks.learned is True
    assert record.checks.agrees is True
    assert record.values("peak_memory", "process")[0] > 1e6


def test_a_sweep_goes_on_after_a_case_that_fails(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/b64/*", "fail": "kill"}, {"match": "*/b32/*", "fail": "exception", "after": 300})
    results = fake_run(mode="infer", batch=[16, 32, 64, 128])
    assert {r.case.batch: r.status for r in results.records} == {16: "ok", 32: "failed", 64: "failed", 128: "ok"}
    assert not results.all_ok


def test_no_process_is_left_behind(
    fake_run: FakeRun, script: Script, left_behind: Callable[[], set[psutil.Process]]
) -> None:
    script({"match": "*/b32/*", "fail": "hang", "after": 300})
    fake_run(mode="infer", batch=[16, 32], timeout=1.5)
    assert left_behind() == set()


def test_a_resumed_run_does_only_what_is_missing(
    store: Store, script: Script, cut_short: Callable[[Plan, int], None]
) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "batch": ["8", "16"], "mode": "infer"}, {"repeats": 2})
    cut_short(plan, 3)
    run_id, found = api.unfinished(store, plan)
    assert found == plan
    results = api.run_plan(plan, store, resume=run_id)
    assert sorted((r.case.batch, r.run.repeat) for r in results.records) == [(8, 0), (8, 1), (16, 0), (16, 1)]
    assert len(list(store.stream(Query(heads=False)))) == 4
    assert len({record.run.process for record in results.records}) == 4


def test_a_signal_that_was_ignored_from_the_start_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and a shell's background do
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            interrupts.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_slow_start_that_outlasted_the_warm_up_does_not_count(fake_run: FakeRun, script: Script) -> None:
    script({"step": 0.001, "noise": 0.01, "slow": (2000, 1.5)})
    record = fake_run(mode="infer", target=1e-5, budget=6.0).records[0]
    steady = record.values("step_time")
    assert record.status == "ok"
    assert max(steady[:20]) < 1.2e-3
    assert sum(value > 1.3e-3 for value in record.values("step_time", "warmup")) > 100
    assert record.facts["step_per_reference"] == pytest.approx(50, rel=0.05)


def test_a_process_that_did_not_come_out_well_is_in_the_trust_line(store: Store, script: Script) -> None:
    script({"step": 0.001, "noise": 0.01})
    results = api.run("mlp", framework="fake", mode="infer", repeats=2, store=store)
    good, other = results.records
    bad = replace(other, status="oom", reason="no room")
    told = trust(Outcome((good, bad)))
    assert "1 of 2 processes oom (no room)" in told


def test_vendors_are_asked_once_in_a_run_and_never_while_a_case_is_measured(
    store: Store, monkeypatch: pytest.MonkeyPatch, left_behind: Callable[[], set[psutil.Process]]
) -> None:
    alive: list[set[psutil.Process]] = []

    def looked() -> Description:
        alive.append(left_behind())
        return Description("a CPU by name", facts={"cores": 7})

    monkeypatch.setattr("mldyno.hardware.linux.cpu", looked)
    plan = api.command_plan(["true"], {"steps": 2, "repeats": 3, "budget": 0.1})
    records = api.run_plan(plan, store).records
    assert len(records) == 3
    assert {record.status for record in records} <= {"ok", "unsteady"}  # `true` takes real time, which may vary
    assert alive == [set()]
    for record in records:
        (device,) = record.machine.devices
        assert (device.title, device.memory, device.facts) == ("a CPU by name", record.machine.memory, {"cores": 7})
