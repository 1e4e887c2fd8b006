"""A tracked loop on a device that works on its own: its known truth, and what its loader really costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulated.conftest import Simulated
from tests.tracking.programs import ran, stored, written

from mldyno.analysis.breakdown import LoopParts, loop_parts
from mldyno.records import Record
from mldyno.stats.intervals import median
from mldyno.store import Store

PROGRAM = """
    import torch

    weights = torch.ones(4, 4, device="sim")
    rows = torch.ones(8)

    def loader():
        for place in range(1500):
            for _ in range({fetch}):
                rows + 1  # each takes the host a millisecond
            yield place

    for batch in mldyno.track(loader(), replay={replay}):
        for _ in range(4):
            weights @ weights  # and each of these the device
"""


def tracked(store: Store, tmp_path: Path, fetch: int, replay: bool = False) -> tuple[Record, LoopParts]:
    program = PROGRAM.replace("{fetch}", str(fetch)).replace("{replay}", str(replay))
    done = ran(str(written(tmp_path, program)))
    assert done.returncode == 0, done.stderr
    (record,) = stored(store)
    parts = loop_parts(record)
    assert parts is not None
    return record, parts


def test_steps_of_a_device_are_waited_for_once_a_block(simulated: Simulated, store: Store, tmp_path: Path) -> None:
    simulated({"kernel": 1e-3, "virtual": True, "cpu": {"kernel": 1e-3}})
    record, _ = tracked(store, tmp_path, 0)
    assert record.case.id == "train.py/tracked/sim"
    assert record.fact("block_steps") == 13  # 50 ms and no less
    assert median(record.values("step_time")) == pytest.approx(4e-3, rel=0.005)


def test_a_fetch_that_the_device_does_not_notice_is_a_wait_that_costs_nothing(
    simulated: Simulated, store: Store, tmp_path: Path
) -> None:
    simulated({"kernel": 1e-3, "virtual": True, "cpu": {"kernel": 1e-3}})
    record, parts = tracked(store, tmp_path, 1, replay=True)
    assert parts.waiting is not None
    assert parts.loader is not None
    assert parts.waiting.value == pytest.approx(0.25, abs=0.03)
    assert parts.loader.share.value == pytest.approx(0.0, abs=0.03)
    assert median(record.values("step_time")) == pytest.approx(4e-3, rel=0.03)


def test_a_fetch_that_takes_longer_than_the_device_costs_what_it_takes_longer(
    simulated: Simulated, store: Store, tmp_path: Path
) -> None:
    simulated({"kernel": 1e-3, "virtual": True, "cpu": {"kernel": 1e-3}})
    record, parts = tracked(store, tmp_path, 6, replay=True)
    assert parts.loader is not None
    assert median(record.values("step_time")) == pytest.approx(6e-3, rel=0.03)
    assert parts.loader.time.value == pytest.approx(2e-3, rel=0.1)
