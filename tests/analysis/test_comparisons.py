"""Speed-ups with their verdicts: paired where cases took turns, archived where not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from mldyno.analysis.comparisons import Comparison, along, compare, differences, match
from mldyno.analysis.outcomes import Outcome
from mldyno.errors import MldynoError
from mldyno.records import Case, Machine, Record, Run, Series, Software, seal
from mldyno.store.reference import published


def a_record(level: float, seed: int, device: str = "cpu", run: str = "r", number: int = 0, **changes: Any) -> Record:
    """Twenty turns around a level; the noise of a turn is the machine's, shared by all in the run."""
    machine_noise, own = random.Random(f"{run}{number}"), random.Random(seed)
    series = []
    for turn in range(20):
        pace = level * (1 + 0.3 * machine_noise.random())
        values = tuple(pace * (1 + own.gauss(0, 0.01)) for _ in range(9))
        series.append(Series("step_time", "s", values, turn=turn))
    plain = Record(
        1, "", "2026-01-01T00:00:00Z", "measured", Run(run, round=number), Case("mlp", batch=8, device=device), "ok",
        "", Machine("m"), software=Software(versions={"torch": "2"}, threads=2), series=tuple(series),
    )  # fmt: skip
    return seal(replace(plain, **changes))


def compared(*pairs: tuple[Record, Record]) -> Comparison:
    found = compare(Outcome(tuple(a for a, _ in pairs)), Outcome(tuple(b for _, b in pairs)))
    assert found is not None
    return found


def test_turns_are_paired_so_that_the_machines_own_noise_falls_out() -> None:
    pairs = [(a_record(1.0, n, number=n), a_record(0.9, 10 + n, "mps", number=n)) for n in range(5)]
    found = compared(*pairs)
    assert found.how == "paired, 5 rounds of fresh processes"
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(1 / 0.9, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.high / found.low < 1.02


def test_one_pair_of_processes_allows_for_the_speed_that_each_has_by_itself() -> None:
    found = compared((a_record(1.0, 1), a_record(0.97, 2, "mps")))
    assert found.verdict == "inconclusive"
    assert "--repeats" in found.advice
    assert compared((a_record(1.0, 1), a_record(0.8, 2, "mps"))).verdict == "faster"


def test_the_same_speed_is_equivalent_once_enough_rounds_say_so() -> None:
    pairs = [(a_record(1.0, n, number=n), a_record(1.001, 10 + n, "mps", number=n)) for n in range(6)]
    assert compared(*pairs).verdict == "equivalent"


def test_slower_is_said_as_such() -> None:
    assert compared((a_record(1.0, 1), a_record(2.0, 2, "mps"))).verdict == "slower"


def test_runs_that_never_took_turns_are_archived_and_say_so() -> None:
    found = compared((a_record(1.0, 1, run="a"), a_record(0.5, 2, "mps", run="b")))
    assert found.how == "archived"
    assert found.verdict == "faster"
    close = compared((a_record(1.0, 1, run="a"), a_record(0.99, 2, "mps", run="b")))
    assert close.verdict == "inconclusive"
    assert "in one run" in close.advice


def test_a_published_figure_has_a_ratio_but_no_verdict() -> None:
    rows = [r for r in published() if r.case.workload == "mlp" and r.case.placement == "device"]
    found = compare(Outcome((rows[0],)), Outcome((rows[1],)))
    assert found is not None
    assert (found.low, found.high, found.verdict) == (None, None, "inconclusive")
    assert "published" in found.advice


def test_what_differs_beside_the_time_is_named() -> None:
    base = a_record(1.0, 1)
    other = a_record(1.0, 2, "mps", software=Software(versions={"torch": "3"}, threads=4))
    assert set(differences(Outcome((base,)), Outcome((other,)))) == {"device", "framework version", "threads"}


def test_unlike_cases_are_refused_unless_that_is_what_is_compared() -> None:
    base, other = (
        Outcome((a_record(1.0, 1),)),
        Outcome((a_record(1.0, 2, "mps", case=Case("mlp", batch=16, device="mps")),)),
    )
    with pytest.raises(MldynoError, match="differ in batch as well"):
        match([base], [other], {"device"})
    assert match([base], [other], {"device", "batch"}) == [(base, other)]


def test_two_records_named_one_by_one_may_differ_in_one_thing() -> None:
    base, other = Outcome((a_record(1.0, 1),)), Outcome((a_record(1.0, 2, "mps"),))
    assert match([base], [other], set(), one_free=True) == [(base, other)]


def test_along_an_axis_the_cpu_is_the_base() -> None:
    found = [Outcome((a_record(1.0, n, device),)) for n, device in enumerate(("xpu", "cpu", "mps"))]
    assert [(a.case.device, b.case.device) for a, b in along(found, "device")] == [("cpu", "mps"), ("cpu", "xpu")]
