"""PyTorch's accelerator path on a simulated device: the known truth, memory that runs out, wrong numbers.

The parent knows nothing of it: the worker's Python finds the device through PYTHONPATH.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mldyno import api
from mldyno.records import Record
from mldyno.store import Store

HERE = Path(__file__).parent
KERNELS = 7  # of a forward step of mlp: four products and three ReLUs
ISSUE = 10e-6
ROOM = 16 << 20  # B: the model and small products; those that would tell a real device's roof do not fit


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch, store: Store) -> Any:
    """Runs mlp on the simulated device with these settings."""

    def run(settings: dict[str, Any], **axes: Any) -> Record:
        monkeypatch.setenv("PYTHONPATH", str(HERE))
        monkeypatch.setenv("MLDYNO_SIM", json.dumps({"issue": ISSUE, "capacity": ROOM, **settings}))
        return api.run("mlp", device="sim", batch=2, store=store, budget=5.0, timeout=120.0, **axes).records[0]

    return run


@pytest.mark.parametrize("kernel", [0.2e-3, 5e-3, 1.0])
def test_the_harness_reports_the_known_truth_within_half_a_percent(kernel: float, simulate: Any) -> None:
    record = simulate({"kernel": kernel, "virtual": True}, mode="infer")
    assert (record.status, record.reason) == ("ok", "")
    step = sorted(record.values("step_time"))[len(record.values("step_time")) // 2]
    assert step == pytest.approx(KERNELS * kernel, rel=0.005)
    assert record.checks.agrees is True
    assert record.facts["device_seen"] == "sim:0"
    assert record.facts["drained_share"] < 0.5


def test_copies_to_and_from_the_device_are_part_of_the_step(simulate: Any) -> None:
    times = {
        place: min(simulate({"kernel": 1e-3, "virtual": True}, mode="infer", placement=place).values("step_time"))
        for place in ("device", "host", "roundtrip")
    }
    assert times["host"] - times["device"] == pytest.approx(1e-3, rel=0.2)
    assert times["roundtrip"] - times["host"] == pytest.approx(1e-3, rel=0.2)


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
