"""What was timed apart from the step, in words: phases of it, its data, epochs, whole processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mldyno.analysis.estimates import of_metric
from mldyno.analysis.outcomes import Outcome
from mldyno.units import count, digits, show_error, show_percent, show_seconds


def phase_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each outcome that has something beside its step to tell."""
    found = []
    for outcome in outcomes:
        told = "; ".join(_told(outcome)) if outcome.status == "ok" else ""
        if told:
            found.append(f"{outcome.case.id}: {told}")
    return found


def _told(outcome: Outcome) -> Iterator[str]:
    facts = outcome.good[0].facts
    for name in outcome.phases:
        time, rate = of_metric(outcome.good, f"{name}_time"), outcome.figure(f"throughput:{name}")
        if time is not None:
            each = f", {digits(rate.value)} {facts.get('item')}s/s" if rate is not None else ""
            yield f"{name} {show_seconds(time.value, time.half_width)}{show_error(time.value, time.half_width)}{each}"
    waits = outcome.waits_for_data()
    if waits is not None:
        accuracy = facts.get("accuracy")
        seen = f", accuracy {show_percent(float(accuracy))}" if isinstance(accuracy, int | float) else ""
        yield f"{show_percent(waits)} of a step goes into getting its batch ({facts.get('data')} data{seen})"
    if facts.get("end_to_end"):
        cold, warm = outcome.figure("first_step"), outcome.figure("step")
        if cold is not None and warm is not None:
            ratio = digits(cold.value / warm.value, most=3)
            yield f"the first run took {show_seconds(cold.value)}, {ratio} times as long as the later ones"
    reads = facts.get("host_syncs_per_step")
    if outcome.phases and isinstance(reads, int) and facts.get("kernels_per_step"):
        yield f"{count(int(facts['kernels_per_step'] or 0), 'kernel')} and {count(reads, 'host read')} a step"
