"""Whole runs on a simulated device: the known truth, copies, memory that runs out, where it wins, when it is lost.

The parent knows nothing of it: the worker's Python finds the device through PYTHONPATH.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.simulated.conftest import ISSUE, ROOM, Simulated

from mldyno import api
from mldyno.records import Record
from mldyno.stats.intervals import median
from mldyno.store import Store
from mldyno.units import show_bytes, show_percent
from mldyno.views.records import record_text

KERNELS = 7  # of a forward step of mlp: four products and three ReLUs
PER_ITEM = 2 * (1024 * 512 + 2 * 512 * 512 + 512 * 2)  # operations of such a step


def error(record: Record, known: float) -> float:
    """How far the harness is off, relative to the truth."""
    assert (record.status, record.reason) == ("ok", "")
    return abs(median(record.values("step_time")) / known - 1)


def test_a_run_reports_the_known_truth_and_tells_what_copies_cost(simulated: Simulated, store: Store) -> None:
    simulated({"kernel": 1e-3, "transfer": 5e5, "virtual": True})
    results = api.run(
        "mlp", device="gpu", mode="infer", batch=2, placement=["device", "host", "roundtrip"], steps=20, repeats=1,
        timeout=60.0, store=store,
    )  # fmt: skip
    inputs, outputs = 2 * 1024 * 4 / 5e5, 2 * 2 * 4 / 5e5  # s on their way
    there = KERNELS * 1e-3
    known = {"device": there, "host": there + 1e-3 + inputs + 2 * ISSUE}
    known["roundtrip"] = known["host"] + 1e-3 + outputs
    by_placement = {str(record.case.placement): record for record in results.records}
    for placement, truth in known.items():
        record = by_placement[placement]
        assert error(record, truth) <= 0.005
        assert (record.case.device, record.facts["device_seen"], record.checks.agrees) == ("sim", "sim:0", True)
    costs = {cost.way: cost.share.value for cost in results.answers.copies}
    assert costs == pytest.approx(
        {"in": 1 - known["device"] / known["host"], "back": 1 - known["host"] / known["roundtrip"],
         "in and back": 1 - known["device"] / known["roundtrip"]}, abs=0.005,
    )  # fmt: skip
    text = record_text(by_placement["host"])
    assert "copy-bound: 67 % of a step is copying between host and device" in text
    (peak,) = by_placement["host"].values("peak_device_memory", "process")
    assert f"peak device memory  {show_bytes(peak)} of 16.0 MiB, {show_percent(peak / ROOM)}" in text
    assert peak > 4 * 1024 * 1024


def test_a_device_that_runs_out_of_memory_gives_an_oom(simulated: Simulated, store: Store) -> None:
    simulated({"kernel": 1e-3, "virtual": True, "capacity": 3 << 20})
    (record,) = api.run("mlp", device="sim", mode="infer", batch=2, steps=10, repeats=1, store=store).records
    assert record.status == "oom"
    assert "out of memory" in record.reason


def test_the_largest_batch_on_a_device_is_the_one_that_its_memory_holds(simulated: Simulated) -> None:
    room = 2 << 20
    simulated({"kernel": 1e-3, "virtual": True, "capacity": room})
    search = api.max_batch("mnist-cnn", modes=["train"], device="sim", batch=16)["train"]
    assert search.fits is not None
    assert search.too_large is not None
    assert search.too_large.batch - search.fits.batch <= max(1, search.fits.batch // 64)
    assert search.fits.peak is not None
    assert 0.95 * room < search.fits.peak <= room
    assert "out of memory" in search.too_large.reason


def test_memory_on_a_device_is_foreseen_and_held_against_what_it_has(simulated: Simulated, store: Store) -> None:
    simulated({"kernel": 1e-3, "rate": 1e9, "virtual": True, "capacity": 64 << 20})
    plan = api.make_plan(["mlp"], {"device": ["sim"], "mode": ["infer"], "batch": ["256", "8192"]})
    small, large = api.dry_run(plan, store)
    assert (small.fits, large.fits, large.note) == (True, False, "won't fit")
    record = api.run("mlp", device="sim", mode="infer", batch=256, steps=10, repeats=1, store=store).records[0]
    assert small.memory == pytest.approx(record.values("peak_device_memory", "process")[0], rel=0.2)


def test_a_device_reads_batches_from_disk_and_has_its_kernels_counted(
    simulated: Simulated, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated({"kernel": 1e-3, "rate": 1e9, "virtual": True, "capacity": 64 << 20})
    monkeypatch.setenv("MLDYNO_DATA", str(tmp_path))
    settings: dict[str, Any] = {"data": "synthetic", "steps": 5, "repeats": 1, "budget": 0.1}
    (record,) = api.run("mnist-cnn", device="sim", mode="infer", placement="loader", store=store, **settings).records
    assert (record.status, record.reason) == ("ok", "")
    assert record.facts["data"] == "synthetic"
    assert record.checks.agrees is True
    assert record.facts["host_syncs_per_step"] == 0
    assert 0 < int(record.facts["kernels_per_step"] or 0) < 40


CPU, ACCELERATOR = {"kernel": 1e-3, "rate": 1e8}, {"kernel": 30e-3, "rate": 1e9}  # of long steps few are made


def step_on(costs: dict[str, float], batch: int) -> float:
    """Time in s of a step on a device with such costs."""
    return KERNELS * costs["kernel"] + PER_ITEM * batch / costs["rate"]


def test_where_an_accelerator_begins_to_win_is_found_within_one_step_of_a_sweep(
    simulated: Simulated, store: Store
) -> None:
    truth = (
        KERNELS * (ACCELERATOR["kernel"] - CPU["kernel"]) / (PER_ITEM / CPU["rate"] - PER_ITEM / ACCELERATOR["rate"])
    )
    assert 8 < truth < 16
    simulated({**ACCELERATOR, "cpu": CPU, "virtual": True})
    (crossover,) = api.crossover(
        "mlp", smallest=8, largest=16, device=["cpu", "sim"], mode="infer", store=store,
        steps=20, repeats=1,
    )  # fmt: skip
    for outcome in crossover.tried:
        (record,) = outcome.records
        costs = ACCELERATOR if record.case.device == "sim" else CPU
        assert error(record, step_on(costs, record.case.batch or 0)) <= 0.005
    assert (crossover.base, crossover.other, crossover.verdict) == ("cpu", "sim", "crosses")
    (crossing,) = crossover.crossings
    assert (crossing.below, crossing.above, crossing.winner) == (8, 16, 1)
    assert crossing.value == pytest.approx(truth, rel=0.02)


@pytest.mark.usefixtures("real_workers")  # each looks for the device as it starts
def test_a_device_that_disappears_is_told_and_nothing_is_measured_in_its_place(
    simulated: Simulated, store: Store, tmp_path: Path
) -> None:
    simulated({"virtual": True, "lost_after": 200, "gone": str(tmp_path / "gone")})
    settings: dict[str, Any] = {"steps": 20, "repeats": 1, "store": store, "timeout": 60.0}
    records = api.run("mlp", device="sim", mode=["train", "infer"], batch=2, **settings).records
    assert [(record.status, record.reason) for record in records] == [
        ("failed", "RuntimeError: SIM error: the device was lost"),
        ("unsupported", "no device 'sim' here; torch sees cpu"),
    ]
    assert [record.values("step_time") for record in records] == [[], []]
    assert [record.facts.get("device_seen") for record in records] in (["sim:0", None], [None, None])


def test_all_and_gpu_stand_for_the_devices_that_are_here(simulated: Simulated) -> None:
    simulated({"devices": 2})
    plan = api.make_plan(["mlp"], {"device": ["gpu", "all", "sim:1"], "mode": ["infer"]})
    assert [case.device for case in plan.cases] == ["sim", "cpu", "sim:1"]
