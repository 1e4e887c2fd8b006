"""Functions that examine this machine, mldyno itself, and models and functions of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mldyno import machine as machines
from mldyno import plan as plans
from mldyno import plugins
from mldyno.api.running import device_names, probe
from mldyno.axes import AXIS, FAKE
from mldyno.doctor.symptoms import Checkup
from mldyno.errors import UsageError
from mldyno.results import Measurement, ModelCheck, Results
from mldyno.selftest.measures import Measure
from mldyno.settings import parsed

Progress = Callable[[str, float], None]  # gets the part that begins, and the time left in s


def selftest(
    quick: bool = False, framework: str = "torch", progress: Progress = lambda part, left: None,
    device: str = "cpu", export: str | None = None,
) -> Iterator[Measure]:  # fmt: skip
    """Measure mldyno's own errors on this machine, one after the other.

    On a device other than the CPU, test its contract instead. `export` is a file for the complete result.
    """
    from mldyno.selftest import result_file
    from mldyno.selftest import table as selftest_table

    if plugins.framework(framework).clock is not None:
        raise UsageError(f"{framework} computes nothing; the self-test times real steps: --framework torch")
    if export is not None:
        result_file.check_place(export)
    name = _device_meant(framework, device)
    ids = selftest_table.ON_ANY_MACHINE if name == "cpu" else selftest_table.ON_A_DEVICE
    effort = selftest_table.QUICK if quick else selftest_table.FULL
    measures = selftest_table.run(effort, framework, ids, progress, name)
    return measures if export is None else _exported(measures, export, name, framework, quick)


def _device_meant(framework: str, word: str) -> str:
    """Return the device that a word means; raise if it is not here. The CPU needs no probe."""
    if word == "all":
        raise UsageError("the self-test takes one device at a time, for example: --device gpu")
    name = str(AXIS["device"].parse(word))
    if name == "cpu":
        return name
    names = device_names(framework)
    if name == plans.GPU and name not in names:
        name = next((other for other in names if other != "cpu"), name)
    if name not in names:
        raise plans.absent(name, framework, names)
    return name


def _exported(measures: Iterator[Measure], path: str, device: str, framework: str, quick: bool) -> Iterator[Measure]:
    """Yield the measures; write the file after the last one."""
    from mldyno.selftest import result_file

    began = time.monotonic()
    ended: list[Measure] = []
    for measure in measures:
        ended.append(measure)
        yield measure
    probed = probe([framework])
    facts = probed.frameworks[framework]
    machine, spent = machines.describe(facts.devices), time.monotonic() - began
    software = {"python": probed.python, "versions": facts.versions or None, "threads": facts.threads}
    result_file.write(path, result_file.document(ended, device, framework, quick, spent, machine, software))


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
