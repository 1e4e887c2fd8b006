"""The contract of every meter, and what each must see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import ClassVar, get_args

import pytest

from mldyno import plugins
from mldyno.meters.contention import Contention
from mldyno.meters.memory import Memory, peak_resident
from mldyno.records import Case, Device, Series, Unit
from mldyno.worker.session import open_case

CASE, CPU = Case("mlp"), Device("cpu", "torch")


def test_every_meter_gives_series_in_si_units_and_never_a_negative_value() -> None:
    meters = plugins.meters()
    assert len(meters) == len(plugins.names("meters"))
    for meter in meters:
        assert meter.start(CASE, CPU)
        meter.begin_window()
        meter.end_window()
        meter.end_window()
        for series in meter.stop():
            assert series.stage in ("window", "process")
            assert len(series.values) == {"window": 2, "process": 1}[series.stage]
            assert series.unit in get_args(Unit)
            assert all(value >= 0 for value in series.values)


class Picky:
    """A meter for one device only."""

    started: ClassVar[list[tuple[str, str | None]]] = []

    def start(self, case: Case, device: Device) -> bool:
        self.started.append((case.id, device.title))
        return device.name == "gpu"

    def begin_window(self) -> None:
        pass

    def end_window(self) -> None:
        pass

    def stop(self) -> list[Series]:
        return [Series("energy", "J", (1.0,), stage="process")]


def test_a_meter_learns_its_case_and_device_and_is_left_out_where_it_does_not_apply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "meters", lambda: [Picky()])
    metrics = {}
    for device in ("cpu", "gpu"):
        session = open_case(vars(Case("mlp", framework="fake", device=device, mode="infer", batch=8)))
        session.warm_up(1.0, lambda step: None)
        session.turn(0.1, None, lambda step: None)
        metrics[device] = [series["metric"] for series in session.close()["series"]]
    assert Picky.started == [
        ("mlp/infer/fake/cpu/fp32/b8/device", "fake CPU"),
        ("mlp/infer/fake/gpu/fp32/b8/device", "fake accelerator"),
    ]
    assert "energy" not in metrics["cpu"]
    assert "energy" in metrics["gpu"]


def test_the_peak_of_memory_is_seen_even_when_it_has_gone_again() -> None:
    before = peak_resident() or 0
    held = b"\1" * (64 << 20)
    del held
    meter = Memory()
    assert meter.start(CASE, CPU)
    (series,) = meter.stop()
    assert series.values[0] >= before + (40 << 20) or series.values[0] >= (64 << 20)


def spin(seconds: float) -> list[Series]:
    meter = Contention()
    assert meter.start(CASE, CPU)
    meter.begin_window()
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass
    meter.end_window()
    return meter.stop()


def test_the_time_a_process_ran_is_counted() -> None:
    gained = {series.metric: series.values[0] for series in spin(0.2)}
    assert gained["cpu_time"] == pytest.approx(0.2, rel=0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts how long a thread waits for a core")
def test_a_process_that_must_share_its_core_is_seen_to_wait() -> None:
    core = {sorted(os.sched_getaffinity(0))[0]}
    burn = "while True: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {core!r})\n{burn}"])
        for _ in range(2)
    ]
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, core)
        time.sleep(0.3)
        gained = {series.metric: series.values[0] for series in spin(0.3)}
        assert gained["run_delay"] / (gained["run_delay"] + gained["cpu_time"]) > 0.3
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.wait()
