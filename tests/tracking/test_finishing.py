"""The record of a tracked loop: what stands where in it, what is said of it, and who else knows it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.timing.virtual_loop import MS, Loader, VirtualClock, run

from mldyno import api
from mldyno.analysis.breakdown import loop_parts
from mldyno.cli import cli
from mldyno.hardware import system
from mldyno.records import Record
from mldyno.runner.warnings import Evidence, of_measurement
from mldyno.store import Query, Store
from mldyno.tracking.tracker import track

Step = float | Callable[[int], float]


def tracked(store: Store, step: Step, count: int = 1000, fetch: Step = 2 * MS, **settings: Any) -> Record:
    """The record of a loop on a virtual clock."""
    clock = VirtualClock()
    loader = Loader(clock, count, fetch)
    tracker = track(loader, **{"name": "train.py", "clock": clock, "store": store, **settings})
    run(tracker, clock, step)
    record = tracker.finish()
    assert isinstance(record, Record)
    return record


def noisy(size: float, seed: int = 1) -> Callable[[int], float]:
    chance = random.Random(seed)
    return lambda place: size * chance.gauss(1, 0.02)


def test_first_step_warm_up_and_steady_steps_stand_apart(store: Store) -> None:
    chance = noisy(8 * MS)
    record = tracked(store, lambda place: chance(place) + (900 * MS if place == 0 else 6 * MS if place < 60 else 0))
    assert record.fact("first_step") > 0.9
    assert 50 <= len(record.values("step_time", "warmup")) <= 110, "to a twentieth of the series"
    assert len(record.values("step_time")) + len(record.values("step_time", "warmup")) == 999
    assert sum(value > 0.012 for value in record.values("step_time")) <= 10
    assert record.fact("warmup_steady") is True
    assert (record.status, record.case.device, record.run.pairing) == ("ok", "cpu", "alone")


def test_a_jump_is_said_with_its_size_and_its_place(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    chance = noisy(10 * MS)
    record = tracked(store, lambda place: chance(place) * (1.08 if place >= 399 else 1.0), fetch=1000)
    parts = loop_parts(record)
    assert parts is not None
    assert parts.change is not None
    assert parts.change.step == 400
    assert parts.change.change == pytest.approx(0.08, abs=0.004)
    assert re.search(r"; slower by (8\.|7\.[6-9])\d* % from step 400 on \[record ", capsys.readouterr().err)
    assert "drifting" in [warning.code for warning in record.warnings]


def test_a_loop_that_gets_slower_bit_by_bit_is_said_to(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    chance = noisy(8 * MS)
    tracked(store, lambda place: chance(place) * (1 + 0.3 * place / 1000), fetch=1000)
    line = capsys.readouterr().err
    assert "train.py: no single step time: step times had not settled; 9.20 ms on average" in line
    assert re.search(r"; slower by (2[6-9]|3[0-3]) % bit by bit", line)


def test_the_share_of_waiting_has_an_interval_that_holds_it(store: Store) -> None:
    holds = 0
    for seed in range(100):
        fetch, step = noisy(1.6 * MS, seed), noisy(8.4 * MS, 1000 + seed)
        parts = loop_parts(tracked(store, step, 200, fetch))
        assert parts is not None
        waiting = parts.waiting
        assert waiting is not None
        assert waiting.low is not None
        assert waiting.high is not None
        assert waiting.value == pytest.approx(0.16, abs=0.01)
        holds += waiting.low <= 0.16 <= waiting.high
    assert holds >= 88  # each epoch's last step has no fetch: half a percent of the share


def test_the_line_says_step_rate_and_waiting(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    tracked(store, noisy(34.7 * MS), 400, noisy(6.6 * MS, 2), items=128, item="image")
    line = capsys.readouterr().err
    assert line.startswith("mldyno: train.py: step 41.3 ms ±0.")
    assert re.search(r" % \(3,100 images/s\), 1[56]\.\d % \(1\d\.\d-1\d\.\d\) of it waiting for data", line)


def test_steps_that_save_are_counted_and_kept(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    record = tracked(store, lambda place: 2000 * MS if place % 300 == 299 else 8 * MS)
    assert record.values("step_time", "long") == [2.002] * 3
    assert "; 3 long steps apart, 6.01 s in all" in capsys.readouterr().err
    assert max(record.values("step_time")) == 0.01


def test_what_replay_brings_is_said_and_stored(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    record = tracked(store, noisy(8 * MS), 600, noisy(2 * MS, 2), replay=True)
    parts = loop_parts(record)
    assert parts is not None
    assert parts.loader is not None
    assert parts.loader.time.value == pytest.approx(0.002, rel=0.1)
    assert parts.loader.share.value == pytest.approx(0.2, abs=0.02)
    assert "; the loader costs " in capsys.readouterr().err
    assert len(record.values("held_time", "beside")) == parts.loader.rounds >= 24


def test_a_loader_that_costs_nothing_is_not_said_to_cost(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    tracked(store, noisy(8 * MS), 600, 0, replay=True)
    assert "; no measurable loader cost: at most " in capsys.readouterr().err


def test_a_series_that_never_settles_has_no_number(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    record = tracked(store, lambda place: (8 + place) * MS, 30)
    assert record.status == "unsteady"
    assert "train.py: no single step time: step times had not settled" in capsys.readouterr().err


def test_ranks_make_one_record(store: Store) -> None:
    texts = {1: '{"size": 1, "times": [11000000, 11000000], "waits": [0, 0], "items": 32}'}
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracker = track(loader, name="train.py", clock=clock, store=store, items=32)
    run(tracker, clock, 8 * MS)
    tracker._loop.ranks = SimpleNamespace(rank=0, world=2, hear=lambda name: texts)  # type: ignore[assignment]
    record = tracker.finish()
    assert record is not None
    assert record.case.id == "train.py/tracked/cpu/r2"
    assert record.fact("items_per_step") == 64
    assert (record.fact("batch_per_rank"), record.fact("batch_in_all")) == (32, 64)
    assert record.values("step_time", "rank-1") == [0.011, 0.011]
    assert len(record.values("step_time", "rank-0")) == len(record.values("step_time"))


def test_every_reading_command_knows_a_tracked_loop(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked(store, noisy(8 * MS), 400)
    tracked(store, noisy(4 * MS, 3), 400)

    def said(*words: str) -> str:
        done = CliRunner().invoke(cli, list(words))
        assert done.exit_code == 0, done.output
        return done.output

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("# the program itself, which is no file of records")
    assert "train.py/tracked/cpu" in said("history")
    assert "waiting for data" in said("show", "train.py/tracked")
    assert "faster than" in said("compare", "train.py", "--by", "run")
    assert "train.py" in said("table", "tracked", "--value", "data_wait")
    said("report", "train.py", "--out", str(tmp_path / "report.html"))
    assert "train.py" in (tmp_path / "report.html").read_text()
    said("export", str(tmp_path / "loops.jsonl"), "--only", "train.py/tracked/cpu")
    other = Store(tmp_path / "other.sqlite")
    api.import_([str(tmp_path / "loops.jsonl")], other)
    assert {record.case.id for record in other.select(Query(provenances=("measured", "imported")))} == {
        "train.py/tracked/cpu"
    }


def counters(clock: VirtualClock, **shares: float) -> dict[str, Callable[[], float | None]]:
    """Counters that gain their share of the time that has passed."""
    return {name: lambda share=share: share * clock() / 1e9 for name, share in shares.items()}  # type: ignore[misc]


def test_a_loop_whose_threads_waited_for_a_core_is_contended_as_a_case_is(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = VirtualClock()
    gained = counters(clock, window_time=1.0, cpu_time=0.7, run_delay=0.3)
    monkeypatch.setattr(system, "COUNTERS", gained)
    loader = Loader(clock, 100)
    tracked = track(loader, name="train.py", clock=clock, store=store)
    for _ in range(3):
        run(tracked, clock, 8 * MS)
        clock.sleep(5000 * MS)  # between epochs others may do what they like
    record = tracked.finish()
    assert record is not None
    (warning,) = [warning for warning in record.warnings if warning.code == "contended"]
    expected = of_measurement(Evidence(record.case, record.series, {}, record.machine, None))
    assert warning in expected, "the same words as in a run"
    assert f"; contended: {warning.message} [record" in capsys.readouterr().err
    (waited,) = record.values("run_delay", "window")
    assert waited == pytest.approx(0.3 * (3 * 1.0 - 0.01), abs=0.02), "three epochs, without what lies between"


def test_a_loop_that_had_its_cores_is_not_contended(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = VirtualClock()
    monkeypatch.setattr(system, "COUNTERS", counters(clock, window_time=1.0, cpu_time=0.99, run_delay=0.01))
    run(track([None] * 60, name="train.py", clock=clock, store=store), clock, 8 * MS)
    assert "contended" not in capsys.readouterr().err


def test_counters_that_fail_cost_the_warning_and_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([1.0, 2.0])
    monkeypatch.setattr(system, "COUNTERS", {"run_delay": lambda: next(looks)})
    clock = VirtualClock()
    assert len(run(track([None] * 60, name="train.py", clock=clock, store=store), clock, 8 * MS)) == 60
    assert capsys.readouterr().err.startswith("mldyno: train.py: step 8.00 ms")


def test_what_was_kept_apart_is_said(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 60)
    tracked = track(loader, name="train.py", clock=clock, store=store)
    for batch in tracked:
        clock.sleep(8 * MS)
        if batch % 20 == 0:
            with tracked.apart():
                clock.sleep(250 * MS)
    tracked.finish()
    assert "; 3 pauses for other work, 750 ms in all [record" in capsys.readouterr().err


def test_a_private_copy_does_not_name_the_loop(store: Store, tmp_path: Path) -> None:
    tracked(store, noisy(8 * MS), 400, name="secret-model.py")
    CliRunner().invoke(cli, ["export", str(tmp_path / "loops.jsonl"), "--private"])
    text = (tmp_path / "loops.jsonl").read_text()
    assert "secret-model" not in text
    assert "private loop" in text


def test_users_loops_tell_nothing_of_how_much_processes_differ(store: Store) -> None:
    """A loop changes from run to run since its user changes it."""
    for size in (8, 16, 32):
        record = tracked(store, noisy(size * MS, size), 200)
    assert record.fact("process_spread") == pytest.approx(0.05)
    assert record.fact("process_freedom") == pytest.approx(2.0)
