"""What holds a case up, from shares of peaks that are known."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.analysis.breakdown import bound, shares
from mldyno.records import Case, Machine, Record, Run, Series, Warning_

STEP = 1e-3


def record(
    case: Case | None = None, codes: tuple[str, ...] = (), more: tuple[Series, ...] = (), **facts: Any
) -> Record:
    """A case with steps of 1 ms, of which these facts are known."""
    return Record(
        schema=2, id="", created="2026-01-01T00:00:00.000Z", provenance="measured", run=Run("r"),
        case=Case("mlp", batch=8), status="ok", reason="", machine=Machine("m"),
        series=(Series("step_time", "s", (STEP,) * 12), *more), facts=facts,
        warnings=tuple(Warning_(code, "") for code in codes),
    )  # fmt: skip


def kind(found: Record) -> str:
    told = bound(found)
    assert told is not None
    return told.kind


def test_shares_are_rates_over_their_peaks() -> None:
    found = shares(record(flops_per_step=2e9, peak_flops=4e12, bytes_per_step=10_000_000, peak_bandwidth=4e10))
    assert found is not None
    assert found.compute == pytest.approx(0.5)
    assert found.memory == pytest.approx(0.25)
    assert (found.copy, found.data) == (None, None)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"flops_per_step": 2e9, "peak_flops": 4e12, "bytes_per_step": 10_000_000, "peak_bandwidth": 4e10}, "compute"),
        ({"flops_per_step": 2e8, "peak_flops": 4e12, "bytes_per_step": 30_000_000, "peak_bandwidth": 4e10}, "memory"),
        (
            {"flops_per_step": 2e9, "peak_flops": 4e12, "copied_per_step": 6_000_000, "peak_copy_bandwidth": 1e10},
            "copy",
        ),
        ({"flops_per_step": 2e6, "peak_flops": 4e12, "kernels_per_step": 100}, "host"),
        ({"flops_per_step": 2e6, "peak_flops": 4e12, "kernels_per_step": 2}, "unclear"),
    ],
)
def test_the_largest_share_names_the_bound(facts: dict[str, Any], expected: str) -> None:
    assert kind(record(**facts)) == expected


def test_a_device_that_waits_for_the_host_is_host_bound_unless_it_is_near_a_peak() -> None:
    busy: dict[str, Any] = {"flops_per_step": 2e9, "peak_flops": 4e12}
    idle: dict[str, Any] = {"flops_per_step": 2e8, "peak_flops": 4e12}
    for code in ("host-bound", "step-waits"):
        assert kind(record(codes=(code,), **idle)) == "host"
        assert kind(record(codes=(code,), **busy)) == "compute"


def test_a_step_that_mostly_waits_for_its_batch_is_host_bound() -> None:
    fetched = Series("data_time", "s", (16e-3,) * 3)  # of 20 batches: 0.8 ms of each step
    told = bound(record(more=(fetched,), data_items=160, flops_per_step=2e9, peak_flops=4e12))
    assert told is not None
    assert told.kind == "host"
    assert "80 %" in told.why


def test_where_nothing_is_known_of_peaks_nothing_is_said() -> None:
    assert bound(record()) is None
    assert bound(record(flops_per_step=1e9, peak=None, peak_bandwidth=None)) is None
