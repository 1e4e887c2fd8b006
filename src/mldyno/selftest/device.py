"""The contract of a device: what mldyno promises of it and how it behaves, one trial each.

A worker carries out one of `TASKS` after the other and yields rows. A device may end the process at any time; the
parent goes on with the next task in a new process, as it does after an error that leaves the device unusable
(`still_fit`).

A task that failed or yielded nothing makes its measure missed, with the reason. What a device need not have, such as
events that tell time, is reported and not held against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mldyno import plugins
from mldyno.axes import PRECISIONS
from mldyno.selftest import device_behaviour  # noqa: F401 (it registers its trials)
from mldyno.selftest import device_promises as promises
from mldyno.selftest.measures import Measure, Row
from mldyno.selftest.setup import NOT_TRIED, TRIALS, Setup, Task, TaskResult, Trial, tidy

# One case yields three measures; see `measure_cases`.
EVENTS = Trial(promises.case, 26, "time by the device's own events / by the host's clock", "0.9 to 1.1",
               promises.judge_events, "1", nothing=promises.NO_EVENTS)  # fmt: skip
PLACES = Trial(promises.case, 27, "cases whose tensors are all on it", "100 %", promises.judge_places)
AGREEMENT = Trial(promises.case, 28, "results agree with the CPU, in each precision that it supports", "100 %",
                  promises.judge_agreement)  # fmt: skip

FEWEST_COMPARISONS = 5
CASES = tuple(f"case {precision}" for precision in PRECISIONS)
# Title, seconds on a slow machine, and tasks, in the order in which a worker carries them out.
EXERCISES: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("the device", 5.0, ("device",)),
    ("its memory", 5.0, ("memory", "overflow")),
    ("known work", 5.0, ("work",)),
    ("waiting", 3.0, ("wait",)),
    ("precisions", 7.0, CASES),  # for each precision
    ("copies", 8.0, ("placements",)),
    ("its queue", 8.0, ("queue", "lazy")),
    ("latency", 5.0, ("latency",)),
    ("its peak", 5.0, ("peak",)),
    ("sustained load", 12.0, ("sustained",)),
    ("the edge of its memory", 5.0, ("edge",)),
    ("layouts", 10.0, ("layouts",)),
    ("identical code", 2.5, ("identical",)),  # for each comparison; last, for it can be cut short
)


def exercises(framework: str, comparisons: int) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield each exercise with the time in s that it takes with a framework."""
    factors = {CASES: len(plugins.framework(framework).precisions), ("identical",): comparisons}
    return ((title, seconds * factors.get(tasks, 1), tasks) for title, seconds, tasks in EXERCISES)


def comparisons_within(seconds: float, framework: str, most: int) -> int:
    """Return how many comparisons of identical code there is time for; a few at least."""
    rest, one_more = (sum(time for _, time, _ in exercises(framework, count)) for count in (0, 1))
    return round(min(most, max(FEWEST_COMPARISONS, (seconds - rest) / (one_more - rest))))


def ids(tasks: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the measures that come from these tasks."""
    trials = (EVENTS, PLACES, AGREEMENT) if tasks[0] in CASES else [TRIALS[task] for task in tasks]
    return tuple(trial.id for trial in trials)


def measure(task: str, result: TaskResult, device: str) -> Measure:
    """Return the measure of a trial from the rows of its task."""
    return TRIALS[task].measure(result, device)


def measure_cases(results: Mapping[str, TaskResult], device: str) -> list[Measure]:
    """Return measures 26 to 28 over all precisions: the device's events, where tensors lie, agreement with the CPU."""
    rows, over = [row for of_task in results.values() for row in of_task.rows], ""
    ran = [row for row in rows if row["device_seen"] is not None]
    timed = [row for row in ran if row["events_share"] is not None]
    for task, of_task in results.items():
        if of_task.failure:
            over = of_task.failure if of_task.failure.startswith(NOT_TRIED) and not ran else over
            status = NOT_TRIED if of_task.failure.startswith(NOT_TRIED) else "ended"
            rows.append(
                {"precision": task.partition(" ")[2], "mode": None, "status": status, "reason": of_task.failure}
            )
    trials = ((EVENTS, timed), (PLACES, ran), (AGREEMENT, rows))
    return [trial.measure(TaskResult(of_trial, over), device) for trial, of_trial in trials]


def _on_device(task: Task) -> Callable[..., Iterator[Row]]:
    """Return the task, with its framework started and its device present."""

    def carry_out(framework: str, device: str, comparisons: int, detail: str) -> Iterator[Row]:
        setup = Setup(plugins.framework(framework), device, comparisons, detail)
        setup.framework.start()
        tidy()
        if task is not promises.device:  # which looks for it
            setup.check()
        yield from task(setup)

    return carry_out


TASKS = {"case": _on_device(promises.case), **{name: _on_device(trial.run) for name, trial in TRIALS.items()}}


def still_fit(framework: str, device: str, comparisons: int, detail: str) -> bool:
    """Return whether the device still computes; some errors leave it unusable until the process ends."""
    try:
        Setup(plugins.framework(framework), device, comparisons).compute()
    except Exception:
        return False
    return True
