"""Cases measured against each other: together, by turns, in alternation; and what that must not spoil."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mldyno import api
from mldyno.plan import Plan
from mldyno.records import Case, Pairing, Record
from mldyno.results import Results
from mldyno.runner import pairing
from mldyno.runner.events import Listener
from mldyno.runner.pairing import FRESH_PAIRS, MOST_TOGETHER, comparable, groups, pairings
from mldyno.store import Query, Store
from mldyno.timing.stopping import Stopping
from mldyno.worker.client import Ended

FakeRun = Callable[..., Results]
Script = Callable[..., None]


def met(results: Results) -> list[Record]:
    return [record for record in results.everything if not record.alone]


def end_meetings(monkeypatch: pytest.MonkeyPatch, status: str, reason: str) -> None:
    """From now on, paired comparisons in one process end like this."""

    def ended(*arguments: object) -> None:
        raise Ended(status, reason)

    monkeypatch.setattr(pairing, "interleaved", ended)


def test_cases_of_the_same_work_are_paired_in_one_process_after_each_was_alone(fake_run: FakeRun) -> None:
    results = fake_run(mode="infer", device=["cpu", "gpu"])
    assert [record.run.pairing for record in results.everything] == ["alone", "alone", "interleaved", "interleaved"]
    cpu, gpu = met(results)
    assert cpu.run.process == gpu.run.process
    assert cpu.run.process not in {record.run.process for record in results.records}
    assert len(cpu.values("step_time", "paired")) == len(gpu.values("step_time", "paired")) >= 12


def test_a_paired_comparison_gives_times_for_ratios_only(fake_run: FakeRun) -> None:
    results = fake_run(mode="train", device=["cpu", "gpu"])
    for record in met(results):
        assert {series.stage for series in record.series} == {"paired"}
        assert "first_step" not in record.facts
        assert not record.values("peak_memory", None)
    for outcome in results.outcomes:
        assert len(outcome.records) == len(outcome.pairings) == 1
        figure = outcome.figure("step")
        assert figure is not None
        assert figure.processes == 1


def test_the_known_ratio_is_found_by_a_pair_in_one_process(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/gpu/*", "step": 0.001, "noise": 0.05}, {"match": "*", "step": 0.0012, "noise": 0.05})
    (found,) = fake_run(mode="infer", device=["cpu", "gpu"]).compare("device")
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert found.how.startswith("paired, ")
    assert found.how.endswith(" rounds in one process")


def test_the_same_speed_is_found_equivalent_in_one_run(fake_run: FakeRun, script: Script) -> None:
    script({"step": 0.001, "noise": 0.05})
    (found,) = fake_run(mode="infer", placement=["device", "roundtrip"]).compare("placement")
    assert found.verdict == "equivalent"


def test_cases_that_can_not_share_a_process_are_paired_in_several_fresh_pairs(
    fake_run: FakeRun, script: Script
) -> None:
    script({"match": "*/t2", "step": 0.001}, {"match": "*", "step": 0.002})
    results = fake_run(mode="infer", threads=[1, 2])
    records = met(results)
    assert {record.run.pairing for record in records} == {"live-processes"}
    assert len({record.run.group for record in records}) == FRESH_PAIRS
    assert len({record.run.process for record in records}) == 2 * FRESH_PAIRS
    (found,) = results.compare("threads")
    assert found.how == f"paired, {FRESH_PAIRS} fresh pairs of processes taking turns"
    assert found.ratio == pytest.approx(2.0, rel=0.01)


def test_a_number_of_steps_is_for_the_case_alone_and_not_for_its_paired_comparisons(fake_run: FakeRun) -> None:
    results = fake_run(mode="infer", threads=[1, 2], steps=3)
    assert [record.facts["steps"] for record in results.records] == [3, 3]
    assert all(len(record.values("step_time", "paired")) >= 12 for record in met(results))


def test_rounds_share_the_fresh_pairs_among_them(fake_run: FakeRun) -> None:
    records = met(fake_run(mode="infer", threads=[1, 2], repeats=3))
    assert len({record.run.group for record in records}) == 6  # two in each of the three rounds


def test_what_does_not_fit_in_memory_side_by_side_alternates(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldyno.runner.pairing._fit", lambda records: False)
    results = fake_run(mode="infer", device=["cpu", "gpu"])
    assert {record.run.pairing for record in met(results)} == {"alternating-processes"}
    (found,) = results.compare("device")
    assert found.how == f"paired, {FRESH_PAIRS} fresh pairs of processes in alternation"


def test_room_is_judged_by_what_each_case_needed_alone(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.machine.available_memory", lambda: 30 << 20)
    monkeypatch.setattr("mldyno.worker.client.reserve", lambda: 0)
    assert {r.run.pairing for r in met(fake_run(mode="infer", device=["cpu", "gpu"]))} == {"alternating-processes"}


def test_a_paired_comparison_that_runs_out_of_memory_is_held_in_alternation(
    fake_run: FakeRun, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_meetings(monkeypatch, "oom", "no room for two")
    results = fake_run(mode="infer", device=["cpu", "gpu"])
    assert results.all_ok
    assert {record.run.pairing for record in met(results)} == {"alternating-processes"}


def test_a_paired_comparison_that_fails_is_a_record_and_spoils_nothing(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_meetings(monkeypatch, "failed", "the worker was ended by SIGSEGV")
    results = fake_run(mode="infer", device=["cpu", "gpu"])
    assert results.all_ok
    assert {record.status for record in met(results)} == {"failed"}
    (found,) = results.compare("device")
    assert found.how == "separate runs"


def test_what_failed_alone_meets_nobody(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/gpu/*", "fail": "oom"})
    results = fake_run(mode="infer", device=["cpu", "gpu"])
    assert {r.case.device: r.status for r in results.records} == {"cpu": "ok", "gpu": "oom"}
    assert met(results) == []


def test_different_work_meets_only_along_the_axis_that_is_asked_for(fake_run: FakeRun) -> None:
    assert met(fake_run(mode="infer", batch=[8, 16])) == []
    results = fake_run(mode="infer", batch=[8, 16], by="batch")
    assert len(met(results)) == 2
    (found,) = results.compare("batch")
    assert found.how.startswith("paired")


def test_groups_hold_what_is_comparable_with_a_member() -> None:
    cases = [Case("mlp", batch=b, device=d, placement=p) for b in (1, 2) for d in ("cpu", "mps")
             for p in ("device", "host")]  # fmt: skip
    assert comparable(cases[0], cases[1], None)
    assert not comparable(cases[0], cases[3], None)
    assert not comparable(cases[0], cases[4], None)
    assert comparable(cases[0], cases[4], "batch")
    assert [len(group) for group in groups(cases)] == [4, 4]
    assert [len(group) for group in groups(cases, "batch")] == [8]
    assert groups([]) == []


def test_the_base_is_in_every_paired_comparison_of_a_large_group() -> None:
    cases = [Case("mlp", batch=8, threads=n) for n in range(1, 12)]
    parts = pairings(cases)
    assert all(len(part) <= MOST_TOGETHER and part[0] == cases[0] for part in parts)
    assert {case for part in parts for case in part} == set(cases)
    assert pairings(cases[:1]) == []


def cut_at_pairing(number: int, plan: Plan, store: Store) -> str:
    """End a run as its paired comparison of that number begins; return the run's id."""

    class Cut(Exception):
        pass

    class CutThere(Listener):
        begun = 0

        def pairing_started(self, cases: object, repeat: int, pairing: Pairing) -> None:
            self.begun += 1
            if self.begun == number:
                raise Cut

    with pytest.raises(Cut):
        api.run_plan(plan, store, CutThere())
    store.close()
    run_id, _ = api.unfinished(store, plan)
    return run_id


def test_a_run_that_ended_before_its_paired_comparison_holds_it_when_it_is_resumed(store: Store) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "device": ["cpu", "gpu"], "mode": "infer"}, {"repeats": 1})
    run_id = cut_at_pairing(1, plan, store)
    results = api.run_plan(plan, store, resume=run_id)
    assert [record.run.pairing for record in results.everything] == ["alone", "alone", "interleaved", "interleaved"]
    again = api.run_plan(plan, store, resume=run_id)
    assert len(list(store.stream(Query(heads=False)))) == len(again.everything) == 4


def test_a_run_that_ended_between_two_of_its_paired_comparisons_holds_the_others_when_it_is_resumed(
    store: Store,
) -> None:
    axes = {"framework": "fake", "threads": ["1", "2"], "mode": "infer"}
    plan = api.make_plan(["mlp"], axes, {"repeats": 1})
    run_id = cut_at_pairing(3, plan, store)
    results = api.run_plan(plan, store, resume=run_id)
    assert len({record.run.group for record in met(results)}) == FRESH_PAIRS
    assert len(met(results)) == 2 * FRESH_PAIRS


def test_a_resumed_run_remembers_that_its_cases_found_no_room_side_by_side(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "device": ["cpu", "gpu"], "mode": "infer"}, {"repeats": 1})

    class Cut(Exception):
        pass

    class CutInAlternation(Listener):
        begun = 0

        def pairing_started(self, cases: object, repeat: int, pairing: Pairing) -> None:
            self.begun += pairing == "alternating-processes"
            if self.begun == 3:
                raise Cut

    end_meetings(monkeypatch, "oom", "no room for two")
    with pytest.raises(Cut):
        api.run_plan(plan, store, CutInAlternation())
    store.close()
    run_id, _ = api.unfinished(store, plan)
    results = api.run_plan(plan, store, resume=run_id)
    assert [record.run.pairing for record in met(results)] == ["alternating-processes"] * 2 * FRESH_PAIRS


def test_a_ratio_that_drifts_is_told(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/roundtrip", "step": 0.001, "drift": 40.0, "noise": 0.01}, {"step": 0.001, "noise": 0.01})
    (found,) = fake_run(mode="infer", placement=["device", "roundtrip"], target=0.001, budget=4.0).compare("placement")
    assert "the ratio drifted by" in found.how


class Turning:
    """A live process that notes when it works and when it is waited for."""

    def __init__(self, name: str, diary: list[str], fake: bool = False) -> None:
        self.name, self.diary, self.worker = name, diary, self
        self.facts, self.elapsed = {"fake_time": fake}, 0.0
        self.stopping = Stopping(0.02, 0.0)

    def open(self) -> None:
        self.diary.append(f"{self.name} opens")

    def measure(self, seconds: float) -> None:
        self.diary.append(f"{self.name} works")
        self.elapsed += seconds

    def wait_until_idle(self) -> None:
        self.diary.append(f"{self.name} rests")


def test_a_process_begins_its_turn_when_the_threads_of_the_last_one_sleep() -> None:
    diary: list[str] = []
    pairing.live_processes([Turning("a", diary), Turning("b", diary)], random.Random(1))  # type: ignore[list-item]
    assert diary[:4] == ["a opens", "a rests", "b opens", "b rests"]
    assert all(first.split()[0] == then.split()[0] for first, then in zip(diary[::2], diary[1::2], strict=True))
    assert {entry.split()[1] for entry in diary[1::2]} == {"rests"}


def test_nothing_is_waited_for_in_fake_time() -> None:
    diary: list[str] = []
    pairing.live_processes([Turning("a", diary, fake=True)] * 2, random.Random(1))  # type: ignore[list-item]
    assert "a rests" not in diary


def test_workers_of_a_loader_would_work_ahead_so_their_cases_alternate(fake_run: FakeRun) -> None:
    results = fake_run("mnist-cnn", mode="infer", loader_workers=["0", "2"])
    assert {record.run.pairing for record in met(results)} == {"alternating-processes"}
    assert len(met(results)) == 2 * FRESH_PAIRS
    assert pairing.nearest([Case("mnist-cnn", loader_workers=2)] * 2) == "alternating-processes"
    assert pairing.nearest([Case("mnist-cnn-process", framework="command", loader_workers=2)] * 2) == "interleaved"
    assert pairing.nearest([Case("mnist-cnn", placement="loader")] * 2) == "interleaved"
