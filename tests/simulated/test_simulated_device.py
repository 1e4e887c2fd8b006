"""PyTorch's accelerator path on a simulated device: the known truth, memory that runs out, wrong numbers.

The parent knows nothing of it: the worker's Python finds the device through PYTHONPATH.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.simulated.conftest import ISSUE, Simulated

from mldyno import api
from mldyno.intervals import median
from mldyno.records import Record
from mldyno.store import Store

KERNELS = 7  # of a forward step of mlp: four products and three ReLUs
PER_ITEM = 2 * (1024 * 512 + 2 * 512 * 512 + 512 * 2)  # operations of such a step


@pytest.fixture
def simulate(simulated: Simulated, store: Store) -> Any:
    """Runs mlp on the simulated device with these settings."""

    def run(settings: dict[str, Any], **axes: Any) -> Record:
        simulated(settings)
        return api.run("mlp", device="sim", batch=2, store=store, steps=100, timeout=60.0, repeats=1, **axes).records[0]

    return run


def truth(kernel: float, placement: str = "device", hidden: bool = False) -> float:
    """Time of a step in s: the device's kernels, and the issue times that it has to wait for."""
    if placement == "device":
        return KERNELS * kernel + (ISSUE if hidden else 0.0)
    copies = {"host": 1, "roundtrip": 2}[placement]
    return (KERNELS + copies) * kernel + 2 * ISSUE  # the copy in, and then the first kernel, find an idle device


def error(record: Record, known: float) -> float:
    """How far the harness is off, relative to the truth."""
    assert (record.status, record.reason) == ("ok", "")
    return abs(median(record.values("step_time")) / known - 1)


def codes(record: Record) -> list[str]:
    return [warning.code for warning in record.warnings]


@pytest.mark.parametrize("placement", ["device", "host", "roundtrip"])
@pytest.mark.parametrize("kernel", [0.2e-3, 5e-3, 1.0])
def test_the_harness_reports_the_known_truth_within_half_a_percent(
    kernel: float, placement: str, simulate: Any
) -> None:
    record = simulate({"kernel": kernel, "virtual": True}, mode="infer", placement=placement)
    assert error(record, truth(kernel, placement)) <= 0.005
    assert record.checks.agrees is True
    assert record.facts["device_seen"] == "sim:0"
    assert record.facts["events_share"] == pytest.approx(1.0, abs=0.02)
    assert "late-change" not in codes(record)
    if placement == "device":
        assert record.facts["drained_share"] < 0.5
    if placement != "host":
        assert ("host-bound" in codes(record)) == (placement == "roundtrip")


@pytest.mark.parametrize("kernel", [0.2e-3, 5e-3])
def test_a_wait_hidden_in_the_step_is_part_of_the_truth_and_is_told(kernel: float, simulate: Any) -> None:
    record = simulate({"kernel": kernel, "virtual": True, "hidden": KERNELS}, mode="infer")
    assert error(record, truth(kernel, hidden=True)) <= 0.005
    (warning,) = [warning for warning in record.warnings if warning.code == "host-bound"]
    assert ".item()" in warning.hint


def test_without_the_wait_the_same_test_fails(simulate: Any) -> None:
    record = simulate({"kernel": 5e-3, "issue": 1e-3, "virtual": True, "deaf": True}, mode="infer")
    with pytest.raises(AssertionError):
        assert error(record, truth(5e-3)) <= 0.005
    assert record.status == "wrong"
    assert "was not waited for" in record.reason


def test_training_on_the_device_learns_and_agrees_with_the_cpu(simulate: Any) -> None:
    record = simulate({"kernel": 1e-3, "virtual": True}, mode="train")
    assert (record.status, record.reason) == ("ok", "")
    assert record.checks.learned is True
    assert record.checks.agrees is True
    assert record.values("peak_device_memory", "process")[0] > 4e6


def test_a_device_that_runs_out_of_memory_gives_an_oom(simulate: Any) -> None:
    record = simulate({"kernel": 1e-3, "virtual": True, "capacity": 3 << 20}, mode="infer")
    assert record.status == "oom"
    assert "out of memory" in record.reason


def test_the_largest_batch_on_a_device_is_the_one_that_its_memory_holds(simulated: Simulated) -> None:
    simulated({"kernel": 1e-6, "virtual": True, "capacity": 64 << 20})
    found = api.max_batch("mlp", device="sim", batch=256)
    for mode, search in found.items():
        assert search.fits is not None
        assert search.too_large is not None
        assert search.too_large.batch - search.fits.batch <= max(1, search.fits.batch // 64), mode
        assert search.fits.peak is not None
        assert 0.95 * (64 << 20) < search.fits.peak <= 64 << 20
        assert search.too_large.reason
    assert found["train"].fits.batch < found["infer"].fits.batch  # type: ignore[union-attr]


def test_memory_on_a_device_is_foreseen_and_held_against_what_it_has(simulated: Simulated, store: Store) -> None:
    simulated({"kernel": 1e-6, "virtual": True, "capacity": 64 << 20})
    plan = api.make_plan(["mlp"], {"device": ["sim"], "mode": ["infer"], "batch": ["256", "8192"]})
    small, large = api.foretell(plan, store)
    assert (small.fits, large.fits, large.note) == (True, False, "won't fit")
    record = api.run("mlp", device="sim", mode="infer", batch=256, steps=10, repeats=1, store=store).records[0]
    assert small.memory == pytest.approx(record.values("peak_device_memory", "process")[0], rel=0.2)


def test_a_device_reads_batches_from_disk_and_has_its_kernels_counted(
    simulated: Simulated, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated({"kernel": 1e-7, "virtual": True, "capacity": 1 << 30})
    monkeypatch.setenv("MLDYNO_DATA", str(tmp_path))
    settings: dict[str, Any] = {"data": "synthetic", "steps": 5, "repeats": 1, "budget": 0.1}
    (record,) = api.run("mnist-cnn", device="sim", mode="infer", placement="loader", store=store, **settings).records
    assert (record.status, record.reason) == ("ok", "")
    assert record.facts["data"] == "synthetic"
    assert record.checks.agrees is True
    assert record.facts["host_reads_per_step"] == 0
    assert 0 < int(record.facts["kernels_per_step"] or 0) < 40


CPU, ACCELERATOR = {"kernel": 10e-6, "rate": 1e10}, {"kernel": 300e-6, "rate": 1e11}


def step_on(costs: dict[str, float], batch: int) -> float:
    """Time in s of a step on a device with such costs."""
    return KERNELS * costs["kernel"] + PER_ITEM * batch / costs["rate"]


def test_where_an_accelerator_begins_to_win_is_found_within_one_step_of_a_sweep(
    simulated: Simulated, store: Store
) -> None:
    truth = (
        KERNELS * (ACCELERATOR["kernel"] - CPU["kernel"]) / (PER_ITEM / CPU["rate"] - PER_ITEM / ACCELERATOR["rate"])
    )
    simulated({**ACCELERATOR, "cpu": CPU, "virtual": True})
    axes: dict[str, Any] = {"device": ["cpu", "sim"], "mode": "infer"}
    effort = {"steps": 20, "repeats": 1, "budget": 0.2}
    (found,) = api.crossover("mlp", smallest=8, largest=16, settings=effort, store=store, **axes)
    for one in found.tried:
        costs = CPU if one.case.device == "cpu" else ACCELERATOR
        assert error(one.records[0], step_on(costs, one.case.batch or 0)) <= 0.005
    assert [one.verdict for one in found.comparisons] == ["slower", "faster"]
    assert all(one.how.startswith("paired") for one in found.comparisons)
    (crossing,) = found.crossings
    assert crossing.size == pytest.approx(truth, rel=0.015)  # the harness is off by 0.5 %, the straight line by as much
    assert crossing.low <= crossing.size <= crossing.high < 1.05 * crossing.low


def test_a_device_that_disappears_is_a_record_and_the_next_case_is_tried(simulated: Simulated, store: Store) -> None:
    simulated({"virtual": True, "lost_after": 200, "cpu": {"kernel": 1e-4}})
    settings: dict[str, Any] = {"steps": 20, "repeats": 1, "store": store, "timeout": 60.0}
    lost, well = api.run("mlp", device=["sim", "cpu"], mode="train", batch=2, **settings).records
    assert (lost.status, lost.reason) == ("failed", "RuntimeError: SIM error: the device was lost")
    assert (well.case.device, well.status, well.facts["device_seen"]) == ("cpu", "ok", "cpu")


def test_all_and_gpu_stand_for_the_devices_that_are_here(simulated: Simulated) -> None:
    simulated({"devices": 2})
    plan = api.make_plan(["mlp"], {"device": ["gpu", "all"], "mode": ["infer"]})
    assert [case.device for case in plan.cases] == ["sim:0", "cpu", "sim:1"]
