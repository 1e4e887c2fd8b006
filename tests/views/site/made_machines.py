"""Machines that are made, not measured: each did all cases that make the score, at a speed of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.views.report import made_records

from mldyno.analysis.scores import reference
from mldyno.records import Case, Device, Machine, Record, seal

CHIPS = ("Example Xeon", "Example Ryzen", "Example Core", "Sample M9")
CARDS = (None, "Example RTX", None, "Sample GPU")
DEVICES = (None, "cuda:0", None, "mps")


def machine(number: int) -> Machine:
    """The machine of that number; every second one has an accelerator."""
    kind = number % len(CHIPS)
    devices = [Device("cpu", "torch", CHIPS[kind])]
    if (name := DEVICES[kind]) is not None:
        devices.append(Device(name, "torch", str(CARDS[kind]), 8 << 30))
    cores = 4 << number // 4 % 4
    return replace(
        made_records.BENCH, name=f"{CHIPS[kind]} {number // 4}, {cores} cores", cpu=CHIPS[kind], cores=cores,
        devices=tuple(devices), key=f"{number:032x}",
    )  # fmt: skip


def cases(devices: Sequence[Device]) -> Iterator[Case]:
    """The cases of the score on each of these devices."""
    for device in devices:
        for case in reference().rates:
            yield replace(case, device=device.name)


def records(
    count: int, samples: int = 20, processes: int = 1, cases_each: int | None = None, **facts: Any
) -> Iterator[Record]:
    """The records of so many machines."""
    for number in range(count):
        made, dice = machine(number), random.Random(number)
        speed = {device.name: dice.uniform(0.5, 4) * (1 if device.name == "cpu" else 12) for device in made.devices}
        for case in list(cases(made.devices))[:cases_each]:
            step = dice.uniform(0.9, 1.1) / speed[case.device] / reference().rates[replace(case, device="cpu")]
            for repeat in range(processes):
                record = made_records.record(case, step, made, repeat, samples, item="image", wall_time=2.0, **facts)
                yield seal(replace(record, run=replace(record.run, id=f"run {number}", suite="quick")))
