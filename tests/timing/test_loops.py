"""A loop that somebody else runs: its steps and fetches are timed exactly, and it gets what it would get anyway."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.timing.virtual_loop import MS, Loader, VirtualClock, run

from mldyno.timing.loops import MOST_BLOCKS, LoopBlocks, LoopTimes


def timed(clock: VirtualClock, wait: Callable[[], object] | None = None) -> LoopTimes:
    return LoopTimes(clock, lambda: wait)


def test_a_step_is_its_body_and_the_fetch_of_the_next_batch() -> None:
    clock = VirtualClock()
    times = timed(clock)
    assert run(times.batches(iter(Loader(clock, 50))), clock, 8 * MS) == list(range(50))
    assert times.steps == 50
    assert times.first == 10 * MS
    assert times.fetches == [2 * MS]
    assert times.blocks.times == [10 * MS] * 48 + [8 * MS]  # no fetch that counts follows the last one
    assert times.blocks.waits == [2 * MS] * 48 + [0]


def test_short_steps_are_gathered_into_blocks() -> None:
    clock = VirtualClock()
    times = timed(clock)
    run(times.batches(iter(Loader(clock, 1000, 2_000))), clock, 8_000)
    assert times.blocks.size == 95
    assert times.smaller == [LoopBlocks(1, [10_000] * 3, [2_000] * 3)]
    assert times.blocks.times == [950_000] * 10
    assert times.blocks.waits == [190_000] * 10


def test_what_lies_between_two_epochs_is_no_step_and_a_block_goes_on_over_it() -> None:
    clock = VirtualClock()
    times, loader = timed(clock), Loader(clock, 100, 2_000)
    for _ in range(3):
        run(times.batches(iter(loader)), clock, 8_000)
        clock.sleep(500 * MS)  # validation
    assert times.between == [500 * MS, 500 * MS]
    assert times.fetches == [2_000] * 3
    assert times.steps == 300
    assert times.blocks.times == [950_000, 948_000, 948_000]  # each epoch's last step has no fetch


def test_a_device_is_waited_for_once_in_a_block() -> None:
    clock, waits, queued = VirtualClock(), 0, [0]

    def wait() -> None:
        nonlocal waits
        waits += 1
        clock.sleep(queued[0])
        queued[0] = 0

    times = timed(clock, wait)
    for _ in times.batches(iter(Loader(clock, 2000, 0))):
        clock.sleep(100_000)  # to issue it
        queued[0] += 900_000  # what the device has to do besides
    assert times.blocks.size == 50
    assert set(times.blocks.times) == {50 * MS}
    assert waits < 2000 / 50 + 15


def test_a_loop_that_is_left_within_a_step_keeps_those_before_it() -> None:
    clock = VirtualClock()
    times = timed(clock)
    for batch in times.batches(iter(Loader(clock, 50))):
        if batch == 20:
            clock.sleep(99 * MS)
            break
        clock.sleep(8 * MS)
    assert times.steps == 20
    assert times.blocks.times == [10 * MS] * 19


def test_an_error_of_the_loader_passes_as_it_is() -> None:
    clock = VirtualClock()

    class Broken(Exception):
        pass

    def fetch(place: int) -> float:
        if place == 5:
            raise Broken("no more")
        return MS

    times = timed(clock)
    with pytest.raises(Broken, match="no more"):
        run(times.batches(iter(Loader(clock, 50, fetch))), clock, 8 * MS)
    assert times.steps == 5


def test_a_fault_of_the_wait_ends_the_measurement_and_not_the_loop() -> None:
    clock = VirtualClock()

    def wait() -> None:
        raise RuntimeError("the device is lost")

    times = timed(clock, wait)
    assert run(times.batches(iter(Loader(clock, 50))), clock, 8 * MS) == list(range(50))
    assert times.fault == "RuntimeError: the device is lost"


def test_steps_that_save_stand_apart_and_stalls_of_the_loader_do_not() -> None:
    clock = VirtualClock()
    times = timed(clock)
    loader = Loader(clock, 400, lambda place: 60 * MS if place % 37 == 0 else 2 * MS)
    run(times.batches(iter(loader)), clock, lambda place: 900 * MS if place % 100 == 50 else 8 * MS)
    usual, long = times.blocks.without_long()
    assert long.times == [902 * MS] * 4
    assert sum(time == 68 * MS for time in usual.times) == 10


def test_long_steps_that_come_often_belong_to_the_loop() -> None:
    clock = VirtualClock()
    times = timed(clock)
    run(times.batches(iter(Loader(clock, 400))), clock, lambda place: 90 * MS if place % 8 == 5 else 8 * MS)
    usual, long = times.blocks.without_long()
    assert (len(usual.times), long.times) == (399, [])


def test_a_loop_of_any_length_keeps_a_bounded_number_of_blocks() -> None:
    clock, count = VirtualClock(), 5 * MOST_BLOCKS
    times = timed(clock)
    run(times.batches(iter(Loader(clock, count))), clock, lambda place: 500 * MS if place == 4000 else 8 * MS)
    assert times.steps == count
    assert times.blocks.size == 8
    assert set(times.blocks.times) == {80 * MS}
    assert len(times.blocks.times) < MOST_BLOCKS
    assert [part.times for part in times.long] == [[502 * MS]]


def test_very_many_epochs_keep_a_bounded_number_of_gaps() -> None:
    clock = VirtualClock()
    times, loader = timed(clock), Loader(clock, 1)
    for _ in range(MOST_BLOCKS + 100):
        run(times.batches(iter(loader)), clock, 8 * MS)
        clock.sleep(MS)
    assert (times.epochs, times.steps) == (MOST_BLOCKS + 100, MOST_BLOCKS + 100)
    assert len(times.between) == len(times.fetches) == MOST_BLOCKS
    assert sum(times.between) == (MOST_BLOCKS + 99) * MS


def test_what_a_user_keeps_apart_is_in_no_step() -> None:
    clock = VirtualClock()
    times = timed(clock)
    for batch in times.batches(iter(Loader(clock, 50))):
        clock.sleep(8 * MS)
        if batch % 10 == 9:
            times.pause()
            clock.sleep(300 * MS)
            times.end_apart()
    assert times.apart == [300 * MS] * 5
    assert set(times.blocks.times[:-1]) == {10 * MS}


def test_a_loop_that_fetches_by_itself_tells_when_a_batch_is_there() -> None:
    clock = VirtualClock()
    times = timed(clock)
    for place in range(30):
        clock.sleep(2 * MS)
        times.fetched()
        clock.sleep(8 * MS)
        times.end_step()
        if place % 10 == 9:
            times.pause()
            clock.sleep(700 * MS)
    assert times.first == 8 * MS
    assert times.apart == [702 * MS] * 2
    assert [time for time in times.blocks.times if time != 10 * MS] == [8 * MS] * 2  # those after a pause
    assert sum(times.blocks.waits) == 27 * 2 * MS
