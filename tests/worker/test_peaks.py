"""The peak that no rate may pass."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.frameworks.fake import CLOCK, Fake
from mldyno.records import Case
from mldyno.worker import peaks
from mldyno.worker.checks import Wrong
from mldyno.worker.session import CaseSession, open_case

CASE = Case("mlp", framework="fake", mode="infer", batch=8)


def opened() -> CaseSession:
    return open_case(Case("mlp", mode="infer", batch=8, threads=1))


def test_a_rate_over_the_peak_is_wrong_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case = opened()
    case.warm_up(1.0, lambda step: None)
    case.turn(0.2, None, lambda step: None)
    case.facts["flops_per_step"] = 1e18
    with pytest.raises(Wrong, match=r"more than the .* in matmuls"):
        case.close()


def test_a_rate_under_the_peak_is_kept_with_the_peak() -> None:
    case = opened()
    case.warm_up(1.0, lambda step: None)
    case.turn(0.2, None, lambda step: None)
    facts: dict[str, Any] = dict(case.close().facts)
    assert facts["peak_flops"] > facts["flops_per_step"] / min(case.values)


def test_a_suspicion_is_looked_into_before_it_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([1e9, 3e9])  # the machine was busy at the first look
    monkeypatch.setattr(peaks, "measure", lambda *arguments: next(seen))
    assert peaks.exceeded(Fake(), CASE, CLOCK, 2e9) == (3e9, False)


def test_where_there_is_no_room_for_larger_products_the_smaller_ones_tell() -> None:
    class Cramped(Fake):
        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            if size > 512:
                raise MemoryError("no room")
            return super().matmul(case, size, layout)

    assert peaks.measure(Cramped(), CASE, CLOCK, 0.1) == pytest.approx(2 * 512**3 / 2e-5, rel=0.01)


def test_threads_that_get_in_each_others_way_do_not_lower_the_peak() -> None:
    class Spinning(Fake):
        used = 2

        def threads(self) -> int | None:
            return self.used

        def limit_threads(self, threads: int) -> None:
            self.used = threads

        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            made = super().matmul(case, size, layout)
            made.work /= 1 if self.used == 1 else 100
            return made

    framework = Spinning()
    alone = 2 * 4096**3 / 2e-5
    assert peaks.of(framework, CASE, CLOCK, 0.1) == pytest.approx(2 * alone, rel=0.01)
    assert framework.used == 2
