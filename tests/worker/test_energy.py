"""Energy of steps by a counter whose truth is known, in real time; and what is chosen among sensors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hardware.simulated import ONE_PACKAGE, PACKAGE, RAPL, Counter, CountingFile, Time, tree

from mldyno import hardware, plugins
from mldyno.axes import Case
from mldyno.hardware import SYSFS, Closed, Found, Scope, Surroundings
from mldyno.stats.intervals import median
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks
from mldyno.timing.energy import Ticks
from mldyno.worker.energy import EnergyMeter, Group, groups, unreadable

CASE = Case("mlp", framework="numpy", batch=8)
STEP_S, WATTS = 0.005, 40.0


def sensor_of(name: str, scope: Scope, device: str = "") -> Counter:
    sensor = Counter(Time())
    vars(sensor).update(name=name, scope=scope, device=device)
    return sensor


class Sleeper:
    """Steps of 5 ms that need no core."""

    def run(self, steps: int) -> None:
        time.sleep(STEP_S * steps)

    def synchronize(self) -> None:
        """All is done."""


@pytest.fixture
def meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnergyMeter:
    monkeypatch.setenv(SYSFS, str(tree(tmp_path, ONE_PACKAGE)))
    blocks = Blocks(Sleeper(), clock.now)
    blocks.size = 10
    return EnergyMeter(plugins.framework("numpy"), CASE, [], blocks)


def test_packages_are_added_up_and_other_scopes_stand_beside_them() -> None:
    domains: list[tuple[str, Scope]] = [("package-0", "package"), ("package-1", "package"), ("psys", "system")]
    rapl = Found([sensor_of(name, scope, "cpu") for name, scope in domains])
    found = {
        "powercap": rapl,
        "plug": Found([sensor_of("Shelly", "system")]),
        "hwmon": Found([sensor_of("xe", "board", "xpu:0")]),
    }
    chosen = groups(found, Case("mlp"))
    assert [(group.kind, group.scope, len(group.sensors)) for group in chosen] == [
        ("powercap", "package", 2), ("plug", "system", 1),
    ]  # fmt: skip
    on_gpu = groups(found, Case("mlp", device="xpu:0"))
    assert [group.scope for group in on_gpu] == ["board", "package", "system"]
    assert groups(found, Case("mlp", device="xpu:1"))[0].scope == "package"


def test_ranks_are_told_by_all_of_their_cards() -> None:
    cards = {"nvml": Found([sensor_of("NVML", "board", f"cuda:{number}") for number in range(2)])}
    assert len(groups(cards, Case("mlp", mode="train", device="cuda:0", ranks=2))[0].sensors) == 2
    assert len(groups(cards, Case("mlp", device="cuda:0"))[0].sensors) == 1


def test_a_steps_energy_is_its_power_times_its_time(meter: EnergyMeter, tmp_path: Path) -> None:
    with CountingFile(tmp_path / PACKAGE, WATTS):
        measured = meter.measure(1.5, 0.0, 0.6, lambda step: None)
    series = {part.metric: part for part in measured.series}
    assert median(series["power"].values) == pytest.approx(WATTS, rel=0.02)
    assert median(series["idle_power"].values) == pytest.approx(WATTS, rel=0.02)
    assert median(series["energy"].values) == pytest.approx(WATTS * STEP_S, rel=0.25)  # a sleep may last longer
    assert measured.facts["energy_scope"] == "package"
    assert measured.facts["energy_by"] == "powercap: package-0"


def test_a_sensor_that_dies_meanwhile_costs_its_energy_and_says_so(meter: EnergyMeter, tmp_path: Path) -> None:
    (tmp_path / PACKAGE).unlink()
    measured = meter.measure(0.3, 0.0, 0.0, lambda step: None)
    assert not measured.series
    assert measured.facts["energy_scope"] is None
    assert "energy_uj" in str(measured.facts["energy_lost"])


def test_without_a_sensor_nothing_is_told_and_no_time_goes_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SYSFS, str(tmp_path))
    meter = EnergyMeter(plugins.framework("numpy"), CASE, [], Blocks(Sleeper(), clock.now))
    assert meter.measure(9.0, 0.0, 9.0, lambda step: None).facts == {"energy_scope": None, "energy_lost": None}


def test_what_can_not_be_read_is_named_where_nothing_can_and_a_plug_always() -> None:
    rapl = Found(closed=[Closed(name, "package", "only root may read it", "") for name in ("package-0", "psys")])
    silent = Found(closed=[Closed("plug", "system", "the plug does not answer", "")])
    assert unreadable({"powercap": rapl, "plug": silent}, []) == [
        "package-0, psys: only root may read it", "plug: the plug does not answer",
    ]  # fmt: skip
    card = Group("hwmon", "board", [sensor_of("xe", "board")])
    assert unreadable({"powercap": rapl, "plug": silent}, [card]) == ["plug: the plug does not answer"]


def test_a_slow_sensor_beside_a_counter_does_not_lengthen_its_windows(meter: EnergyMeter, tmp_path: Path) -> None:
    battery = sensor_of("BAT0", "system")
    vars(battery).update(method="average", every_s=1.0)
    meter.groups.append(Group("battery", "system", [battery]))
    meter.ticks.append(Ticks(battery, clock.now, time.sleep))
    with CountingFile(tmp_path / PACKAGE, WATTS):
        measured = meter.measure(1.5, 0.0, 0.0, lambda step: None)
    energy = next(part for part in measured.series if part.metric == "energy")
    assert len(energy.values) > 1


@pytest.mark.parametrize(
    ("find", "reason"),
    [(lambda around: 1 / 0, "ZeroDivisionError"), (lambda around: threading.Event().wait(), "does not answer")],
    ids=["raises", "hangs"],
)
def test_a_search_for_sensors_that_fails_costs_its_own_only(
    find: Callable[[Surroundings], Found], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "SEARCH_TIMEOUT_S", 0.05)
    (closed,) = hardware.search("nvml", find, Surroundings()).closed
    assert closed.name == "nvml"
    assert reason in closed.reason


def test_in_fake_time_and_on_several_nodes_nothing_is_told(meter: EnergyMeter) -> None:
    blocks = meter.blocks
    assert EnergyMeter(plugins.framework("fake"), CASE, [], blocks).groups == []
    spread = Case("mlp", mode="train", ranks=2, nodes=2)
    assert EnergyMeter(plugins.framework("torch"), spread, [], blocks).groups == []


def test_every_file_of_sensors_can_be_asked(tmp_path: Path) -> None:
    found = plugins.sensors(Surroundings(tree(tmp_path, RAPL)))
    assert {"apple", "battery", "hwmon", "jetson", "nvml", "plug", "powercap", "powermetrics"} == set(found)
    assert [each.name for each in found["powercap"].sensors] == ["package-0", "core", "dram", "psys"]


def test_a_machine_without_sensors_has_none(tmp_path: Path) -> None:
    found = plugins.sensors(Surroundings(tmp_path))
    assert not any(each.sensors or each.closed for each in found.values())
