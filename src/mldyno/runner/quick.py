"""Choose what `mldyno quick` measures: the cases of its suite that are relevant here and fit into its time.

The suite names cases by importance, some in both half precisions. One half precision is kept for each device, and none
for the CPU where there is an accelerator. Where matmuls in a half precision are slow on a device, only the smallest
case is measured in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mldyno import plugins
from mldyno.plan import Plan
from mldyno.records import Case
from mldyno.runner.forecast import Forecast, forecast
from mldyno.runner.probing import HALVES, Rates
from mldyno.store import Store
from mldyno.units import count, digits

if TYPE_CHECKING:
    from mldyno.doctor.symptoms import Setting

LONGEST_CASE_S = 35.0  # that a case may be estimated to take
LONGEST_CPU_CASE_S = 15.0  # and on a CPU, where there is an accelerator too
MOST_CASES_NAMED = 2  # of the cases that are left out; the rest is only counted
LEAST_GAIN = 0.5  # times the rate in fp32: with less than this a half precision is no use


@dataclass(frozen=True)
class Chosen:
    """The plan that is left, its forecasts, and notes about the cases that were left out."""

    plan: Plan
    forecasts: tuple[Forecast, ...]
    notes: tuple[str, ...]
    setting: Setting | None = None  # of the environment, with which it is clearly faster here


def choose(whole: Plan, store: Store, rates: Rates) -> Chosen:
    """Choose the cases of a plan that are worth their time here."""
    halves = {device: rates.half(device) for device in rates.devices}
    slow = {device for device, half in halves.items() if half and (rates.gain(device, half) or 0.0) < LEAST_GAIN}
    smallest = {
        device: min(
            (case for case in whole.cases if (case.device, case.precision) == (device, halves[device])),
            key=lambda case: plugins.workload(case.workload).flops(case), default=None,
        ) for device in slow
    }  # fmt: skip
    worth = [
        case for case in whole.cases if _is_relevant(case, rates.devices, halves) and (
            case.precision not in HALVES or case.device not in slow or case == smallest[case.device]
        )
    ]  # fmt: skip

    taken, left_out, left = [], [], math.inf if whole.limit is None else whole.limit
    forecasts = forecast(replace(whole, cases=tuple(worth)), store, rates=rates)
    for expected in forecasts:
        longest = LONGEST_CPU_CASE_S if expected.case.device == "cpu" and len(rates.devices) > 1 else LONGEST_CASE_S
        if expected.least <= min(longest, left):
            taken.append(expected)
            left -= expected.least
        else:
            left_out.append(expected.case)
    if not taken and forecasts:  # a number that takes long is better than none
        taken = [min(forecasts, key=lambda expected: expected.least)]
        left_out.remove(taken[0].case)
    notes = []
    for device, half in halves.items():  # whose half precision is slow or missing
        only = smallest.get(device)
        if half is None:
            why = next((reason for (name, _), reason in rates.refused.items() if name == device), "none was found")
            notes.append(f"no half precision works on {device}: {why}")
        elif device in slow and only is not None and (device != "cpu" or len(halves) == 1):
            times = digits(1 / (rates.gain(device, half) or 1.0), most=2)
            longer = f"matmuls in {half} take {times} times as long as in fp32 on {device}"
            notes.append(f"{longer}: only {only.workload} is measured in it")
    if left_out:
        named, more = ", ".join(case.id for case in left_out[:MOST_CASES_NAMED]), len(left_out) - MOST_CASES_NAMED
        rest = f" and {count(more, 'other case')}" if more > 0 else ""
        notes.append(f"left out, since it would take too long here: {named}{rest}")
    return Chosen(replace(whole, cases=tuple(expected.case for expected in taken)), tuple(taken), tuple(notes))


def _is_relevant(case: Case, devices: Sequence[str], halves: dict[str, str | None]) -> bool:
    """Return whether a case answers a question about this machine."""
    has_accelerator = len(devices) > 1
    if case.precision in HALVES:
        return case.precision == halves[case.device] and not (has_accelerator and case.device == "cpu")
    if case.batch == 1:  # there to be faster on one device than on another
        return has_accelerator
    return not (has_accelerator and case.device == "cpu" and case.placement == "roundtrip")  # nothing is copied there
