"""The peak that no rate may pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mldyno import plugins
from mldyno.frameworks import Unsupported
from mldyno.frameworks.fake import CLOCK, Fake
from mldyno.records import Case
from mldyno.worker import examine, peaks
from mldyno.worker.checks import Wrong
from mldyno.worker.session import CaseSession, open_case

CASE = Case("mlp", framework="fake", mode="infer", batch=8)


def opened() -> CaseSession:
    return open_case(Case("mlp", mode="infer", batch=8, threads=1))


def test_a_rate_over_the_peak_is_wrong_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case = opened()
    case.warm_up(1.0)
    case.turn(0.2)
    case.facts["flops_per_step"] = 1e18
    with pytest.raises(Wrong, match=r"more than the .* in matmuls"):
        case.close()


def test_a_rate_under_the_peak_is_kept_with_the_peak() -> None:
    case = opened()
    case.warm_up(1.0)
    case.turn(0.2)
    facts: dict[str, Any] = dict(case.close().facts)
    assert facts["peak_flops"] > facts["flops_per_step"] / min(case.values)


def test_a_suspicion_is_looked_into_before_it_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([1e9, 3e9])  # the machine was busy at the first look
    monkeypatch.setattr(peaks, "matmul_rate", lambda *arguments: next(seen))
    assert peaks.exceeded(Fake(), CASE, CLOCK, 2e9) == (3e9, False)


def test_where_there_is_no_room_for_larger_products_the_smaller_ones_tell() -> None:
    class Cramped(Fake):
        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            if size > 512:
                raise MemoryError("no room")
            return super().matmul(case, size, layout)

    assert peaks.matmul_rate(Cramped(), CASE, CLOCK, 0.1) == pytest.approx(2 * 512**3 / 2e-5, rel=0.01)


def test_threads_that_get_in_each_others_way_do_not_lower_the_peak() -> None:
    class Spinning(Fake):
        used = 2

        def threads(self) -> int | None:
            return self.used

        def limit_threads(self, threads: int) -> None:
            self.used = threads

        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            made: Any = super().matmul(case, size, layout)
            made.work /= 1 if self.used == 1 else 100
            return made

    framework = Spinning()
    alone = 2 * peaks.LARGEST_MATMUL_ON_CPU**3 / 2e-5
    assert peaks.peak_rate(framework, CASE, CLOCK, 0.1) == pytest.approx(2 * alone, rel=0.01)
    assert framework.used == 2


@pytest.mark.parametrize("rate", [1e12, 720e12, 1600e12])
def test_the_peak_of_a_fast_device_is_not_lowered_by_launches_and_waits(rate: float) -> None:
    class Product:
        """Of so many operations, on a device that needs 10 µs for a launch and as long to be heard."""

        def __init__(self, size: int) -> None:
            self.work = 2.0 * size**3

        def run(self, steps: int) -> None:
            for _ in range(steps):
                CLOCK.work(self.work / rate, 10e-6)

        def synchronize(self) -> None:
            CLOCK.wait()
            CLOCK.now += 10_000

    class Fast(Fake):
        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            return Product(size)

    assert peaks.matmul_rate(Fast(), replace(CASE, device="gpu"), CLOCK, 0.1) == pytest.approx(rate, rel=0.005)


def test_the_layout_is_chosen_among_large_matrices() -> None:
    asked: list[tuple[int, str | None]] = []

    class Choosy(Fake):
        layouts = ("nn", "nt")

        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            asked.append((size, layout))
            made: Any = super().matmul(case, size, layout)
            cost = 1e-4 * (size / 256) * (2 if (layout == "nn") == (size < 512) else 1)  # small ones mislead
            made.issue = lambda: CLOCK.work(cost, 0.0)
            return made

    peaks.matmul_rate(Choosy(), CASE, CLOCK, 0.01)
    assert {layout for size, layout in asked if size > 512} == {"nn"}


def test_on_a_mac_what_one_thread_reaches_is_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Fake):
        def threads(self) -> int | None:
            return 8

    plain = peaks.matmul_rate(Deaf(), CASE, CLOCK, 0.1)
    assert peaks.peak_rate(Deaf(), CASE, CLOCK, 0.1) == pytest.approx(8 * plain, rel=0.01)
    monkeypatch.setattr("sys.platform", "darwin")
    assert peaks.peak_rate(Deaf(), CASE, CLOCK, 0.1) == pytest.approx(plain, rel=0.01)


def test_a_layout_that_a_device_lacks_does_not_end_the_search() -> None:
    class Lacking(Fake):
        layouts = ("1x1", "nn")

        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            if layout == "1x1":
                raise Unsupported("a matmul as a convolution is for CPUs")
            return super().matmul(case, size, layout)

    assert peaks.matmul_rate(Lacking(), CASE, CLOCK, 0.01) > 0


def test_a_convolution_of_one_pixel_is_the_matmul_with_the_second_factor_transposed() -> None:
    torch: Any = plugins.framework("torch")
    torch.start()
    case = Case("matmul", framework="torch", mode="infer", batch=256)
    product, image = (torch.matmul(case, 256, layout).issue() for layout in ("nt", "1x1"))
    assert (image.permute(0, 2, 3, 1).reshape(256, 256) - product).abs().max() <= 1e-4 * product.abs().max()


def test_a_forecast_is_made_from_the_usual_layout_not_from_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """On some AMD processors oneDNN's convolutions are twice as fast as the linear layers that most models have."""
    tried: list[str | None] = []

    class Noting(Fake):
        layouts = ("nn", "nt", "1x1")

        def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
            tried.append(layout)
            return super().matmul(case, size, layout)

    monkeypatch.setattr(plugins, "framework", lambda name: Noting())
    examine._rate.cache_clear()
    try:
        assert examine._rate(replace(CASE, workload="matmul"))
    finally:
        examine._rate.cache_clear()
    assert set(tried) == {"nn"}
