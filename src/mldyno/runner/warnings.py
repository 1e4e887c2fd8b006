"""The closed list of warnings that a measured record can carry, each with the next step.

A warning's message has no figures that differ from case to case, so that a table can say it once.
"""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.measure.stopping import Stopping
from mldyno.records import Series, Warning_
from mldyno.units import show_percent

CONTENDED = 0.1  # share of the time that threads may wait for a core before a reader must know

INTERRUPTED = Warning_("interrupted", "the run was ended within this case", "mldyno run --resume repeats it")


def of_measurement(
    stopping: Stopping, half_width: float | None, series: Sequence[Series], virtual_time: bool
) -> list[Warning_]:
    """What a reader must know of a case that came out well; nobody gets in the way of virtual time."""
    found = []
    if stopping.steps is None and not stopping.reached(half_width):
        found.append(_target_missed(stopping.target, few=half_width is None))
    if not virtual_time and waiting_share(series) > CONTENDED:
        found.append(
            Warning_(
                "contended",
                f"its threads waited over {show_percent(CONTENDED)} of the time for a core",
                "end other programs, or give it fewer --threads: on a busy machine threads wait for each other",
            )
        )
    return found


def waiting_share(series: Sequence[Series]) -> float:
    """Of the time that the case's threads ran or could have run, the share that they waited for a core."""
    gained = {one.metric: one.values[0] for one in series if one.phase == "process" and one.values}
    delay = gained.get("run_delay", 0.0)
    wanted = gained.get("cpu_time", 0.0) + delay
    return delay / wanted if wanted else 0.0


def _target_missed(target: float, few: bool) -> Warning_:
    shown = show_percent(target)
    said = f"too few steps to know it to ±{shown}" if few else f"not known to the ±{shown} asked for"
    return Warning_("target-not-reached", said, "give it more time with --budget, or a quieter machine")
