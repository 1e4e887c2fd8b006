"""The contract of every meter, and what each must see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import ClassVar, get_args

import pytest

from mldyno import plugins
from mldyno.frameworks.fake import CLOCK
from mldyno.hardware import METERS_SHARE, SHORTEST_WINDOW, Meter, Windows
from mldyno.hardware.system import Contention
from mldyno.records import Case, Device, Series, Unit
from mldyno.worker.session import open_case

CASE, CPU = Case("mlp"), Device("cpu", "torch")


def test_every_meter_gives_series_in_si_units_and_never_a_negative_value() -> None:
    meters = plugins.meters()
    assert len({type(meter) for meter in meters}) == len(meters) >= 5
    for meter in meters:
        if not meter.start(CASE, CPU):
            continue
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
        session = open_case(Case("mlp", framework="fake", device=device, mode="infer", batch=8))
        session.warm_up(1.0)
        session.turn(0.1)
        metrics[device] = [series.metric for series in session.close().series]
    assert Picky.started == [
        ("mlp/infer/fake/cpu/fp32/b8/device", "fake CPU"),
        ("mlp/infer/fake/gpu/fp32/b8/device", "fake accelerator"),
    ]
    assert "energy" not in metrics["cpu"]
    assert "energy" in metrics["gpu"]


HOLD_AND_LET_GO = """
from mldyno.hardware.system import Memory, peak_resident, resident
from mldyno.records import Case, Device
before = resident() or peak_resident()
held = b"\\1" * (64 << 20)
del held
meter = Memory()
meter.start(Case("mlp"), Device("cpu", "torch"))
(series,) = meter.stop()
print(before, int(series.values[0]), resident() or before)
"""


def test_the_peak_of_memory_is_seen_even_when_it_has_gone_again() -> None:
    """In a process of its own: this one may have had a higher peak already."""
    done = subprocess.run([sys.executable, "-c", HOLD_AND_LET_GO], capture_output=True, text=True, check=True)
    before, peak, after = map(int, done.stdout.split())
    assert peak >= before + (63 << 20), "all of it but some pages that were there already"
    assert after < before + (32 << 20), "it has gone again"


@pytest.mark.parametrize(("held", "known"), [(1, False), (96 << 20, True)])
def test_the_peak_of_a_command_is_its_own_not_that_of_the_process_that_starts_it(held: int, known: bool) -> None:
    script = f"""
import subprocess, sys
from mldyno.hardware.system import Memory
from mldyno.records import Case, Device
ours = b"\\1" * (32 << 20)
meter = Memory()
meter.start(Case("x", framework="command"), Device("cpu", "command"))
subprocess.call([sys.executable, "-c", "held = b'1' * {held}"])
print(*(int(series.values[0]) for series in meter.stop() if series.metric == "peak_memory"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peaks = list(map(int, done.stdout.split()))
    assert peaks == [] if not known else held < peaks[0] < held + (32 << 20)


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
    began = time.process_time()
    gained = {series.metric: series.values[0] for series in spin(0.2)}
    assert 0.2 <= gained["cpu_time"] <= time.process_time() - began


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts how long a thread waits for a core")
def test_a_process_that_must_share_its_core_is_seen_to_wait() -> None:
    core = {sorted(os.sched_getaffinity(0))[0]}
    burn = f"import os; os.sched_setaffinity(0, {core!r}); print(flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) for _ in range(2)]
    before = os.sched_getaffinity(0)
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # it burns from now on
        os.sched_setaffinity(0, core)
        gained = {series.metric: series.values[0] for series in spin(0.3)}
        assert gained["run_delay"] / (gained["run_delay"] + gained["cpu_time"]) > 0.3
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.communicate()


class Slow(Meter):
    """A meter that takes its time to read, in ns."""

    def __init__(self, cost: int) -> None:
        self.cost, self.ends = cost, 0

    def start(self, case: Case, device: Device) -> bool:
        return True

    def begin_window(self) -> None:
        pass

    def end_window(self) -> None:
        CLOCK.now += self.cost
        self.ends += 1

    def stop(self) -> list[Series]:
        return []


@pytest.mark.parametrize("cost", [1_000, 1_000_000])
def test_reading_the_meters_takes_under_a_percent_of_the_time(cost: int) -> None:
    meter = Slow(cost)
    windows = Windows([meter], CLOCK, lambda: None)
    began = CLOCK()
    windows.begin()
    while CLOCK.now - began < 100 * SHORTEST_WINDOW:
        CLOCK.now += 300_000  # a block
        windows.look(CLOCK())
    assert 0 < meter.ends <= 100
    first = cost  # what a reading costs is known after the first one
    assert meter.ends * cost - first <= 1.05 * METERS_SHARE * (CLOCK.now - began)
