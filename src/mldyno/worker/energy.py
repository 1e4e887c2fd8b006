"""The energy of a case's steps: the machine at rest, then at work in windows of half a second or more, then at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mldyno import plugins, sensors
from mldyno.frameworks import Program
from mldyno.messages import EnergyMeasured
from mldyno.records import Device, Series
from mldyno.sensors import Scope, Sensor, Surroundings
from mldyno.stats.intervals import half_width, mean
from mldyno.timing.blocks import Blocks
from mldyno.timing.energy import Progress, Watch, Watched, per_step

REST_S = 2.0  # before and after, in which the machine's own power shows
SETTLE_S = 0.5  # after which clocks and fans have followed
EDGE_S = 0.5  # of a window
FEWEST, LONGEST_S = 10, 60.0  # windows; and how long all of it may take
FIRST: dict[str, tuple[Scope, ...]] = {"cpu": ("package", "system")}
ELSE: tuple[Scope, ...] = ("board", "package", "system")
Tell = Callable[[float], None]


@dataclass
class Summed:
    """What all sensors of one scope saw together."""

    scope: Scope
    names: list[str]
    windows: list[tuple[float, float]]
    """Energy of a step in J, and its time in s, for each window."""
    rest: list[float]
    """Power in W, for each window at rest."""
    peak: float
    off: float
    """By which the edges of a window may be off, relative to it."""
    lost: list[str]


def measure(program: Program, blocks: Blocks, devices: Sequence[Device], device: str, seconds: float, target: float,
            tell: Tell) -> EnergyMeasured:  # fmt: skip
    """Energy for so many s, or until it is known to the target; where nothing can be read, nothing is told."""
    found = plugins.sensors(Surroundings(devices=devices))
    watched = [each for each in found.sensors if each.device in ("", device) or each.device == "cpu"]
    if not watched:
        return EnergyMeasured((), {"energy_scope": None})
    clock = blocks.clock
    before = _at_rest(watched, clock)
    during, progress = _at_work(program, blocks, watched, min(seconds, LONGEST_S), target, tell)
    after = _at_rest(watched, clock)
    scopes = [_summed(scope, before, during, after, progress) for scope in dict.fromkeys(each.scope for each in watched)]
    told = [each for each in scopes if each.windows]
    lost = [why for each in scopes for why in each.lost]
    if not told:
        return EnergyMeasured((), {"energy_scope": None, "energy_lost": "; ".join(dict.fromkeys(lost)) or None})
    wanted = FIRST.get(device, ELSE)
    main = next((each for scope in wanted for each in told if each.scope == scope), told[0])
    series = [part for each in told for part in _series(each, "steady" if each is main else each.scope)]
    facts = {
        "energy_scope": main.scope, "energy_by": ", ".join(main.names), "energy_error": main.off,
        "energy_lost": "; ".join(dict.fromkeys(lost)) or None,
    }  # fmt: skip
    return EnergyMeasured(tuple(series), facts)


def _at_rest(watched: Sequence[Sensor], clock: Callable[[], int]) -> list[Watched]:
    time.sleep(SETTLE_S)
    with Watch(watched, clock, time.sleep, EDGE_S) as watch:
        time.sleep(REST_S)
    return watch.results


def _at_work(
    program: Program, blocks: Blocks, watched: Sequence[Sensor], seconds: float, target: float, tell: Tell
) -> tuple[list[Watched], Progress]:
    clock, times, steps = blocks.clock, list[int](), list[int]()
    done = 0
    began = clock()
    blocks.time(blocks.size)
    with Watch(watched, clock, time.sleep, EDGE_S) as watch:
        times.append(clock())
        steps.append(done)
        while True:
            blocks.time(blocks.size)
            done += blocks.size
            times.append(clock())
            steps.append(done)
            elapsed = (times[-1] - began) / 1e9
            tell((times[-1] - times[0]) / 1e9 / done)
            if elapsed >= seconds and elapsed >= (FEWEST + 1) * EDGE_S:
                break
    return watch.results, Progress(times, steps)


def _summed(
    scope: Scope, before: Sequence[Watched], during: Sequence[Watched], after: Sequence[Watched], progress: Progress
) -> Summed:
    """Several sensors of one scope, as those of two packages, are added up, window by window."""
    at_work = [each for each in during if each.sensor.scope == scope]
    at_rest = [[*first.windows, *last.windows] for first, last in zip(before, after, strict=True)
               if first.sensor.scope == scope]  # fmt: skip
    parts = [per_step(each.windows, progress) for each in at_work]
    rows = zip(*parts, strict=False)
    windows = [
        (sum(joules / steps for joules, _, steps in row), mean([seconds / steps for _, seconds, steps in row]))
        for row in rows
    ]
    rest = [sum(window.watts for window in row) for row in zip(*at_rest, strict=False)]
    powers = [window.watts for each in at_work for window in each.windows]
    off = max((window.relative_error for each in at_work for window in each.windows), default=0.0)
    lost = [why for each in [*before, *during, *after] if each.sensor.scope == scope for why in each.lost]
    return Summed(scope, [each.sensor.name for each in at_work], windows, rest, max(powers, default=0.0), off, lost)


def _series(summed: Summed, stage: str) -> list[Series]:
    energy, times = (tuple(float(f"{value:.6g}") for value in values) for values in zip(*summed.windows, strict=True))
    power = tuple(float(f"{joules / seconds:.6g}") for joules, seconds in summed.windows)
    series = [Series("energy", "J", energy, stage=stage), Series("power", "W", power, stage=stage),
              Series("energy_step_time", "s", times, stage=stage)]  # fmt: skip
    if summed.rest:
        series.append(Series("rest_power", "W", tuple(float(f"{watts:.6g}") for watts in summed.rest), stage=stage))
    return series


def known(windows: Sequence[tuple[float, float]]) -> float:
    """How well the energy of a step is known, relative to it."""
    values = [joules for joules, _ in windows]
    return half_width(values) / mean(values) if len(values) > 1 else float("inf")


__all__ = ["measure", "sensors"]
