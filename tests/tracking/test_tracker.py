"""What a user holds while a loop is tracked: the loader as it was, and one record of the whole loop."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.timing.virtual_loop import MS, Loader, VirtualClock, run
from tests.tracking.programs import ran, written

import mldyno
from mldyno.errors import UsageError
from mldyno.records import Record
from mldyno.store import Query, Store
from mldyno.tracking import process, tracker
from mldyno.tracking.tracker import track


def stored(store: Store) -> list[Record]:
    return store.select(Query(heads=False, provenances=("measured",)))


def test_a_tracked_loader_gives_the_same_batches_in_the_same_order(store: Store) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 50)
    with track(loader, name="train.py", clock=clock) as tracked:
        assert run(tracked, clock, 8 * MS) == list(range(50))
        assert run(tracked, clock, 8 * MS) == list(range(50))
    assert loader.given == [*range(50), *range(50)]


def test_length_attributes_and_items_are_the_loaders(store: Store) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 50)
    tracked = track(loader, name="train.py", clock=clock)
    tracked.sampler.set_epoch(3)
    tracked.batch_size = 64
    assert (len(tracked), loader.sampler.epoch, loader.batch_size) == (50, 3, 64)
    assert track([4, 5, 6], name="list")[1] == 5
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = tracked.colour
    with pytest.raises(TypeError, match="not an iterator"):
        next(tracked)


def test_generators_and_iterators_without_a_length_are_tracked_too(store: Store) -> None:
    tracked = track((place for place in range(30)), name="generator", store=store)
    assert bool(tracked)
    with pytest.raises(TypeError, match="has no len"):
        len(tracked)
    assert [next(tracked), next(tracked)] == [0, 1]
    assert list(tracked)[-1] == 29
    assert list(track(iter([1, 2, 3]), name="iterator")) == [1, 2, 3]


def test_several_epochs_are_one_record_however_often_the_loader_is_tracked(store: Store) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 40)
    for epoch in range(3):
        run(track(loader, name="train.py", clock=clock, store=store), clock, 8 * MS)
        clock.sleep(500 * MS)
        assert stored(store) == [], f"epoch {epoch} is not the end"
    track(loader).finish()
    (record,) = stored(store)
    assert record.case.id == "train.py/tracked/cpu"
    assert record.fact("epochs") == 3
    assert record.values("apart_time", "between") == [0.5, 0.5]
    assert record.values("data_wait", "first") == [0.002] * 3
    assert record.fact("ended") == "end"


def test_a_loader_that_is_thrown_away_has_ended_its_loop(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    for _ in track(Loader(clock, 40), name="train.py", clock=clock, store=store):
        clock.sleep(8 * MS)
    gc.collect()
    assert len(stored(store)) == 1
    said = capsys.readouterr()
    assert said.out == "", "what a program prints is its own"
    assert said.err.startswith("mldyno: train.py: step 10.0 ms")


def test_a_list_is_tracked_until_its_loop_ends(store: Store) -> None:
    clock = VirtualClock()
    for _ in track([None] * 40, name="train.py", clock=clock, store=store):
        clock.sleep(8 * MS)
    assert [record.fact("ended") for record in stored(store)] == ["end"]


def test_a_break_is_an_end_too(store: Store) -> None:
    clock = VirtualClock()
    for batch in track(Loader(clock, 50), name="train.py", clock=clock, store=store):
        clock.sleep(8 * MS)
        if batch == 30:
            break
    gc.collect()
    (record,) = stored(store)
    assert record.fact("ended") == "left"
    assert record.fact("steps") == 29, "the first one stands apart, and the last one was not over"


def test_an_error_of_the_loop_passes_and_is_named(store: Store) -> None:
    clock = VirtualClock()

    def loop() -> None:
        with track(Loader(clock, 50), name="t", clock=clock, store=store) as tracked:
            for batch in tracked:
                clock.sleep(8 * MS)
                _ = 1 // (30 - batch)

    with pytest.raises(ZeroDivisionError):
        loop()
    (record,) = stored(store)
    assert record.fact("ended") == "ZeroDivisionError"
    assert record.status == "ok"


def test_a_loop_without_a_loader_says_when_a_step_has_ended(store: Store) -> None:
    clock = VirtualClock()
    with track(name="train.py", items=64, item="image", clock=clock, store=store) as t:
        for place in range(60):
            clock.sleep(10 * MS if place else 900 * MS)
            t.step()
            if place % 20 == 0:
                with t.apart():
                    clock.sleep(200 * MS)
    (record,) = stored(store)
    assert record.fact("first_step") == 0.9
    assert record.values("step_time") == [0.01] * 59
    assert record.values("apart_time", "apart") == [0.2] * 3
    assert record.fact("items_per_step") == 64
    assert str(t).startswith(
        "train.py: step 10.0 ms ±0.01 % (6,400 images/s); 3 pauses for other work, 600 ms in all [record "
    )


def test_two_loops_of_one_program_have_two_names(store: Store) -> None:
    clock = VirtualClock()
    loaders = [Loader(clock, 40), Loader(clock, 40)]
    trackers = [track(loader, name="train.py", clock=clock, store=store) for loader in loaders]
    for tracked in trackers:
        run(tracked, clock, 8 * MS)
    for tracked in trackers:
        tracked.finish()
    assert [record.case.workload for record in stored(store)] == ["train.py", "train.py#2"]


def test_a_name_is_never_a_path(store: Store) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracked = track(loader, name="runs/today/train.py", clock=clock, store=store)
    run(tracked, clock, 8 * MS)
    record = tracked.finish()
    assert record is not None
    assert record.case.workload == "runs:today:train.py"


def test_in_a_notebook_a_loop_is_finished_when_it_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "interactive", lambda: True)
    clock = VirtualClock()
    loader = Loader(clock, 40)
    for _ in range(2):
        run(track(loader, clock=clock, store=store), clock, 8 * MS)
    assert [record.case.id for record in stored(store)] == ["notebook/tracked/cpu"] * 2


def test_a_tracker_that_was_never_used_says_and_stores_nothing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    track([1, 2], name="unused", store=store).finish()
    assert stored(store) == []
    assert capsys.readouterr().err == ""


def test_too_few_steps_are_said_and_not_stored(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    run(track([1], name="short", clock=clock, store=store), clock, 8 * MS)
    assert stored(store) == []
    assert capsys.readouterr().err == "mldyno: short: 1 step so far: too few for a number\n"


def test_a_forked_child_reports_nothing(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracked = track(loader, name="train.py", clock=clock, store=store)
    run(tracked, clock, 8 * MS)
    child = os.fork()
    if child == 0:
        tracked.finish()
        os._exit(len(stored(store)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert capfd.readouterr().err == ""
    assert tracked.finish() is not None


def test_a_store_that_cant_be_written_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracked = track(loader, name="train.py", clock=clock, store="/proc/no/such/store.sqlite")
    run(tracked, clock, 8 * MS)
    assert tracked.finish() is not None
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("mldyno: train.py: step 10.0 ms")
    assert lines[1].startswith("mldyno: train.py: not stored: store /proc/no/such/store.sqlite")
    assert len(lines) == 2


def test_a_fault_of_ours_costs_the_record_and_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> Any:
        raise ValueError("never thought of")

    monkeypatch.setattr("mldyno.tracking.finishing.observed_of", broken)
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracked = track(loader, name="train.py", clock=clock, store=store)
    assert len(run(tracked, clock, 8 * MS)) == 40
    assert tracked.finish() is None
    assert capsys.readouterr().err == "mldyno: train.py: nothing was recorded: ValueError: never thought of\n"


def test_a_finished_loop_is_passed_on_as_it_is(store: Store) -> None:
    clock = VirtualClock()
    loader = Loader(clock, 40)
    tracked = track(loader, name="train.py", clock=clock, store=store)
    run(tracked, clock, 8 * MS)
    tracked.finish()
    assert run(tracked, clock, 8 * MS) == list(range(40))
    assert len(stored(store)) == 1


def test_what_a_loader_fetches_ahead_is_asked_of_it() -> None:
    class Workers(list[int]):
        num_workers, prefetch_factor = 3, 2

    assert tracker._fetched_ahead(Workers()).batches == 6
    assert tracker._fetched_ahead(Workers()).workers == 3
    assert tracker._fetched_ahead([]).batches == 0


@pytest.mark.parametrize(
    "arguments",
    [{"replay": True}, {"items": "many"}, {"items": 0}, {"sync": 3}],
    ids=["replay", "word", "none", "sync"],
)
def test_what_makes_no_sense_is_refused_before_the_loop(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        mldyno.track(**arguments)


@pytest.fixture(autouse=True)
def nothing_lives_on() -> Iterator[None]:
    """A test that fails leaves no loop to the next one."""
    yield
    gc.collect()
    tracker.LIVE.clear()


MODULES = "[name for name in sys.modules if name.partition('.')[0] == 'mldyno']"


def test_a_training_loads_only_what_a_loop_needs(tmp_path: Path) -> None:
    program = written(
        tmp_path,
        f"""
        import sys
        mldyno.track
        print(len({MODULES}))
        loop = mldyno.track([1] * 300, items=4)
        for number in loop:
            step()
        loop.finish()
        print(len({MODULES}))
        print(*sorted({{name.split(".")[1] for name in {MODULES} if "." in name}}))
        """,
    )
    imported, finished, parts = ran(str(program), MLDYNO_STORE=str(tmp_path / "s.db")).stdout.splitlines()
    assert int(imported) <= 21
    assert int(finished) <= 43
    for unneeded in (
        "api",
        "cli",
        "client",
        "datasets",
        "doctor",
        "frameworks",
        "messages",
        "plan",
        "worker",
        "workloads",
    ):
        assert unneeded not in parts.split()
