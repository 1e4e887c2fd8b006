"""Functions that examine this machine, mldyno itself, and models and functions of this process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mldyno import machine as machines
from mldyno import machine_lock, plugins
from mldyno import plan as plans
from mldyno.api.running import probe
from mldyno.axes import AXIS, COMMAND, FAKE
from mldyno.doctor.symptoms import Checkup
from mldyno.errors import MldynoError, UsageError
from mldyno.messages import FrameworksProbed
from mldyno.records import recorded_environment
from mldyno.results import Measurement, ModelCheck, Results
from mldyno.selftest.measures import Measure, Process
from mldyno.settings import parsed
from mldyno.store.selection import Tell, silent

if TYPE_CHECKING:
    from mldyno.selftest.result_file import SelftestResult

Progress = Callable[[str, float], None]  # gets the part that begins, and the time left in s
LONGEST_SELFTEST_S, LONGEST_PROBE_S = 570.0, 40.0  # of a device, and of asking one framework what it sees


def selftest(
    quick: bool = False, framework: str | None = None, progress: Progress = lambda part, left: None,
    device: str = "cpu", export: str | None = None, say: Tell = silent,
) -> Iterator[Measure]:  # fmt: skip
    """Measure mldyno's own errors on this machine, one after the other; wait while another process measures.

    On a device other than the CPU, test its contract instead, with one framework or with all that see it. `export` is
    a file for the complete result.
    """
    from mldyno.selftest import result_file

    if framework is not None and plugins.framework(framework).clock is not None:
        raise UsageError(f"{framework} computes nothing; the self-test times real steps: --framework torch")
    if device == "all":
        raise UsageError("the self-test takes one device at a time, for example: --device gpu")
    if export is not None:
        result_file.check_place(export)
    return _by_itself(say, partial(_selftest, quick, framework, progress, device, export))


def _by_itself(say: Tell, measures: Callable[[], Iterator[Measure]]) -> Iterator[Measure]:
    """Yield measures while no other process measures on this machine."""
    with machine_lock.held(say):
        yield from measures()


def _selftest(
    quick: bool, framework: str | None, progress: Progress, device: str, export: str | None
) -> Iterator[Measure]:
    from mldyno.selftest import table as selftest_table

    began = time.monotonic()
    name, processes = str(AXIS["device"].parse(device)), list[Process]()
    effort = selftest_table.QUICK if quick else selftest_table.FULL
    if name == "cpu":
        tested = [framework or "torch"]
        measures = selftest_table.run(effort, tested[0], selftest_table.ON_ANY_MACHINE, progress)
        if export is None:
            return measures
        probed = probe(tested)
    else:
        probed = probe([framework] if framework else _installed(), LONGEST_PROBE_S)
        name, tested = _with_device(name, probed)
        left = LONGEST_SELFTEST_S - (time.monotonic() - began)
        measures = selftest_table.run_on_device(effort, tested, name, left, progress, processes)
        measures = itertools.chain(_unseen(name, probed), measures)
    return measures if export is None else _exported(measures, export, name, tested, quick, probed, processes)


def _installed() -> list[str]:
    """Return the frameworks that are installed and compute, PyTorch first."""
    names = [name for name in plugins.names("frameworks") if name not in (COMMAND, FAKE) and plugins.installed(name)]
    return sorted((name for name in names if not plugins.framework(name).example), key=lambda name: name != "torch")


def _with_device(word: str, probed: FrameworksProbed) -> tuple[str, list[str]]:
    """Return the device that a word means, and the frameworks that see it; raise if none does."""
    names_of = {name: [device.name for device in facts.devices] for name, facts in probed.frameworks.items()}
    others = [name for names in names_of.values() for name in names if name != "cpu"]
    device = others[0] if word == plans.GPU and others and word not in others else word
    tested = [name for name, names in names_of.items() if device in names]
    if not tested:
        framework, facts = next(iter(probed.frameworks.items()))
        if facts.error:
            raise MldynoError(f"{framework}: {facts.error}.")
        raise plans.absent(word, framework, names_of[framework])
    return device, tested


def _unseen(device: str, probed: FrameworksProbed) -> Iterator[Measure]:
    """Yield a measure that was not tried for each framework that does not see the device, with the reason."""
    from mldyno.selftest.setup import NOT_TRIED, TRIALS, TaskResult

    for name, facts in probed.frameworks.items():
        names = [each.name for each in facts.devices]
        if device not in names:
            why = facts.error or f"it sees {', '.join(names)}"
            measure = TRIALS["device"].measure(TaskResult(failure=f"{NOT_TRIED}: {why}"), device)
            yield replace(measure, framework=name)


def _exported(
    measures: Iterator[Measure], path: str, device: str, frameworks: Sequence[str], quick: bool,
    probed: FrameworksProbed, processes: Sequence[Process],
) -> Iterator[Measure]:  # fmt: skip
    """Yield the measures; write the file after the last one, or with those so far if it ends early."""
    from mldyno.runner.events import Interrupted
    from mldyno.selftest import result_file
    from mldyno.selftest.setup import plainest_case
    from mldyno.worker.client import settings_of

    began, ended = time.monotonic(), list[Measure]()

    def write(complete: bool) -> None:
        machine = machines.describe([each for facts in probed.frameworks.values() for each in facts.devices])
        of_each = {
            name: {"versions": facts.versions or None, "threads": facts.threads, "error": facts.error,
                   "environment": recorded_environment() | settings_of(plainest_case(name, device))}
            for name, facts in probed.frameworks.items()
        }  # fmt: skip
        tested = result_file.SelftestResult(
            device, tuple(frameworks), quick, time.monotonic() - began, machine,
            {"python": probed.python, "frameworks": of_each}, tuple(ended), tuple(processes), complete=complete,
        )  # fmt: skip
        result_file.write(path, result_file.document(tested))

    try:
        for measure in measures:
            ended.append(measure)
            yield measure
    except BaseException as end:
        if not ended:
            raise
        write(complete=False)
        if not isinstance(end, KeyboardInterrupt):
            raise
        by = str(end) or "Ctrl-C"
        raise Interrupted(f"ended by {by}; {path} holds the measures so far ({len(ended)}).") from None
    write(complete=True)


def replay(path: str) -> tuple[SelftestResult, list[Measure]]:
    """Return what a file of `selftest` holds, and its measures that differ from what is expected of its device."""
    from mldyno.selftest import replay, result_file

    tested = result_file.read(path)
    return tested, replay.differing(tested)


def doctor(
    quick: bool = False, noise: float | None = None, framework: str | None = None, store: str | None = None,
    progress: Progress = lambda part, left: None,
) -> Checkup:  # fmt: skip
    """Examine this machine; `noise` s are for noise (60, none if quick). `findings(checkup)` explains the result."""
    from mldyno.doctor import checkup

    return checkup.check_up(checkup.wanted(quick, noise, framework, store), progress)


def devices() -> list[dict[str, Any]]:
    """Return the devices that each framework sees, with all that is known of them, or why it can't be started.

    Omitted are simulated devices, and frameworks that are not installed, except torch.
    """
    from mldyno.views.records import device_line

    rows: list[dict[str, Any]] = []
    names = [name for name in plugins.names("frameworks") if name == "torch" or plugins.installed(name)]
    for framework, facts in probe([name for name in names if name != FAKE]).frameworks.items():
        if facts.error:
            rows.append({"name": framework, "about": facts.error, "framework": framework, "device": None})
        for device in facts.devices:
            about = {"about": device_line(device), "device": device.name}
            rows.append({**vars(device), "name": f"{framework} {device.name}", **about})
    return rows


def measure(
    step: Callable[[], Any], sync: Callable[[], Any] | None = None, name: str | None = None,
    target: float | str = 0.02, budget: float | str = 10.0,
) -> Measurement:  # fmt: skip
    """Time any function, in this process, as a case is timed; `sync` waits for the device it works on.

    It stops when the time of a step is known to `target`, or after `budget` s, which may be text: "2%", "30s". Nothing
    is stored.
    """
    from mldyno.runner.in_process import timed

    limits = parsed({"target": target, "budget": budget})
    return Measurement(timed(step, sync, name or str(getattr(step, "__name__", "step")), **limits))


def check(
    model: Any, batch: Any, targets: Any = None, loss: Any = None, optimiser: Any = None,
    modes: Sequence[str] | None = None, devices: Sequence[str] | None = None, no_check: str | Sequence[str] = (),
    limit: float = 60.0,
) -> ModelCheck:  # fmt: skip
    """Compare devices, precisions and the compiler for a model of this process, and estimate the largest batch.

    Copies of it are measured in this process; nothing is stored. After `limit` s nothing more is started.
    """
    from mldyno.runner import in_notebook

    source = in_notebook.source_of(model, batch, targets, loss, optimiser)
    names = devices or [device.name for device in plugins.framework(source.framework).devices()]
    cases = in_notebook.variants(source, modes or source.modes, names)
    unchecked = (no_check,) if isinstance(no_check, str) else tuple(no_check)
    records, left_out = in_notebook.measured(source, cases, limit, unchecked)
    results = Results(records[0].run.id, records, left_out)
    return ModelCheck(results, in_notebook.largest_batches(source, cases))
