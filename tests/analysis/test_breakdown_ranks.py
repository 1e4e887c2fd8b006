"""What ranks gain, what they wait for, and which of them is slow, from series of a known make."""

from __future__ import annotations

import pytest

from mldyno.analysis.breakdown import split
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Case, Fact, Machine, Record, Run, Series
from mldyno.views.outcomes import rank_lines

ROUNDS = 24


def wobble(place: int) -> float:
    return 1 + 0.01 * ((place * 7) % 5 - 2)


def series(metric: str, value: float, stage: str = "beside") -> Series:
    return Series(metric, "s", tuple(value * wobble(place) for place in range(ROUNDS)), stage=stage)


def outcome(slow_rank: float = 1.0, **times: float) -> Outcome:
    usual = {"step": 0.10, "compute": 0.06, "bare": 0.0588, "exchange": 0.08, "alone": 0.04, "all_cores": 0.025}
    parts = [series(f"{name}_time", value) for name, value in {**usual, **times}.items()]
    parts += [series("compute_time", 0.05 * slow_rank if rank == 2 else 0.05, f"rank-{rank}") for rank in range(4)]
    parts.append(series("step_time", 0.10, "steady"))
    facts: dict[str, Fact] = {"batch_per_rank": 16, "batch_in_all": 64, "items_per_step": 64, "item": "image"}
    case, machine = Case("mnist-mlp", ranks=4, batch=16), Machine("here")
    record = Record(
        3, "0" * 32, "2026-11-17T00:00:00+00:00", "measured", Run("run"), case, "ok", "", machine,
        series=tuple(parts), facts=facts,
    )  # fmt: skip
    return Outcome((record,))


def test_waiting_is_what_a_step_takes_longer_than_without_an_exchange() -> None:
    parts = split(outcome())
    assert parts is not None
    assert parts.waiting.value == pytest.approx(0.4)
    assert parts.waiting.low == pytest.approx(0.4, abs=1e-6)
    assert parts.hidden is not None
    assert parts.hidden.value == pytest.approx(0.5)
    assert parts.wrapper.value == pytest.approx(0.06 / 0.0588)


def test_the_gain_counts_the_items_of_all_ranks() -> None:
    parts = split(outcome())
    assert parts is not None
    assert parts.over_same_threads is not None
    assert parts.over_same_threads.value == pytest.approx(4 * 0.04 / 0.10)
    assert parts.over_all_cores is not None
    assert parts.over_all_cores.value == pytest.approx(4 * 0.025 / 0.10)


@pytest.mark.parametrize(("slow", "named"), [(1.0, None), (1.05, None), (1.5, 2)])
def test_a_rank_that_is_slower_by_itself_is_named(slow: float, named: int | None) -> None:
    parts = split(outcome(slow))
    assert parts is not None
    assert (parts.straggler and parts.straggler[0]) == named


def test_it_is_said_in_words() -> None:
    slow = outcome(1.5)
    parts = split(slow)
    assert parts is not None
    said = "; ".join(rank_lines(slow, parts))
    assert "4 ranks give 1.60x" in said
    assert "40 % (40-40) of a step waits for gradients" in said
    assert "batch 16 a rank, 64 in all" in said
    assert "rank 2 takes 1.50x" in said


def test_one_process_has_nothing_to_take_apart() -> None:
    record = outcome().records[0]
    plain = Record(**{**vars(record), "series": (series("step_time", 0.1, "steady"),)})
    assert split(Outcome((plain,))) is None
