"""A result file from elsewhere, judged anew by what is expected today of that kind of device; nothing is started."""

from __future__ import annotations

from dataclasses import replace

from mldyno.printable import LONGEST_NAME, shortened
from mldyno.selftest import device
from mldyno.selftest.measures import Measure
from mldyno.selftest.result_file import SelftestResult
from mldyno.selftest.setup import TRIALS, TaskResult
from mldyno.views.records import amount

LONGEST_NOTE = 1000
UNREADABLE = "its raw figures can't be read"
# What the simulated device has, on which all of it is tried.
SIMULATED = {21: 1.0, 22: 1.0, 23: 1.0, 24: 0.0013, 25: 1.0, 26: 1.0, 27: 1.0, 28: 1.0, 29: 0.0, 32: 0.0, 33: 0.0015,
             34: 1.0, 35: 1.015, 36: 0.99, 37: 1.0}  # fmt: skip
TASKS = {trial.id: trial for trial in (*TRIALS.values(), device.EVENTS, device.PLACES, device.AGREEMENT)}


def judged_anew(measure: Measure, name: str) -> Measure:
    """Return a measure of a device as its raw rows are judged today; with the simulated device's figure as its peer."""
    trial = TASKS.get(measure.id)
    if trial is None:
        name, target, peers, note = (
            shortened(text, LONGEST_NAME) for text in (measure.name, measure.target, measure.peers, measure.note)
        )
        return replace(measure, name=name, target=target, peers=peers, note=note)
    peers = amount(SIMULATED.get(measure.id), trial.unit)
    try:
        anew = trial.measure(TaskResult([*measure.raw], measure.failure), name)
        _ = amount(anew.value, anew.unit), amount(anew.bound, anew.unit)  # raises unless they are numbers
        anew = replace(anew, note=shortened(f"{anew.note}", LONGEST_NOTE))
    except Exception:  # of rows that no self-test has written
        anew = trial.measure(TaskResult(failure=UNREADABLE), name)
    return replace(anew, framework=measure.framework, peers=peers)


def differing(tested: SelftestResult) -> list[Measure]:
    """Return the measures that differ from what is expected of this kind of device, judged anew."""
    anew = [judged_anew(measure, tested.device) for measure in tested.measures]
    return [measure for measure in anew if measure.ok is False]
