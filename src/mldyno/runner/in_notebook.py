"""Measure a model that lives in this process: on every device, in some precisions, compiled or not.

It can't be sent to a worker: its class may be defined in a notebook. So the worker's code runs here, on copies of the
model, and runs a plan as usual.
"""

from __future__ import annotations

import copy
import gc
import itertools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mldyno import machine as machines
from mldyno import plugins, sources, trees
from mldyno.axes import Case
from mldyno.errors import MldynoError
from mldyno.messages import A, Command, Failed, Progress, TaskRow
from mldyno.plan import Plan
from mldyno.records import Record
from mldyno.runner.events import Listener
from mldyno.runner.recording import new_run_id
from mldyno.runner.run import Runner
from mldyno.sources import Source
from mldyno.store import Store
from mldyno.temporary import own_name
from mldyno.worker.client import Ended, WorkerProcess
from mldyno.worker.listen import Worker
from mldyno.worker.process_tree import reserve
from mldyno.workloads import user_models
from mldyno.workloads.user_models import code, recipes
from mldyno.workloads.user_models.frameworks import adapter_for

PRECISIONS = {"cpu": ("fp32", "bf16", "amp-bf16")}  # by a device's kind
GPU_PRECISIONS = ("fp32", "fp16", "bf16", "amp-fp16", "amp-bf16")
LARGEST_BATCH = 1 << 20  # that is tried
MEASURED_S = 2.0  # for each case, in all


class InProcessWorker(WorkerProcess):
    """The worker's code in this process, behind the interface of a worker process."""

    def __init__(self) -> None:
        super().__init__()
        self._on_progress: Any = None
        self._worker = Worker(self._report)

    def _report(self, answer: Any) -> None:
        if self._on_progress is not None and isinstance(answer, Progress | TaskRow):
            self._on_progress(answer.step if isinstance(answer, Progress) else answer.row)

    def start(self) -> None:
        """Do nothing: the process is there."""

    def request(self, command: Command[A], timeout: float, on_progress: Any = None, reset_timeout: bool = False) -> A:
        """Carry out the command here; only the user can interrupt it."""
        began, self._on_progress = time.monotonic(), on_progress
        answer: Any = self._worker.answer(command)
        self.spent += time.monotonic() - began
        if isinstance(answer, Failed):
            raise Ended(answer.status, answer.reason, fit=answer.fit)
        result: A = answer
        return result

    def wait_until_idle(self) -> None:
        """Do nothing: there is no other process."""

    def kill(self) -> None:
        """Release what the cases held, and let the garbage collector see it again."""
        self._worker.opened.clear()
        gc.unfreeze()
        gc.collect()


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch that fits on a device, estimated without running a step."""

    case: Case
    batch: int
    more: bool  # whether a larger batch may fit too


def source_of(model: Any, batch: Any, targets: Any, loss: Any, optimiser: Any) -> Source:
    """Return a model of this process as a source; raise where it can't be measured."""
    function = model[0] if isinstance(model, tuple) else model  # in JAX, a function with its parameters
    title = str(getattr(function, "__name__", type(function).__name__))
    try:
        parts = recipes.parts_of(
            tuple(part for part in (model, batch, targets, loss, optimiser) if part is not None), title
        )
        source = user_models.describe_parts(
            Source("object", title, title), copy.deepcopy(parts), plugins.start_framework
        )
    except recipes.NotUnderstood as error:
        raise MldynoError(f"{error}.") from None
    items = len(next(filter(trees.is_array, trees.leaves(parts.inputs))))
    known = replace(source, name=title, batch=items)
    resized = adapter_for(known.framework).resized
    code.register_function(known, lambda batch_size=items: resized(copy.deepcopy(parts), items, batch_size))
    sources.register(known)
    return known


def variants(source: Source, modes: Sequence[str], devices: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases that compare devices, precisions and the compiler."""
    cases, framework = [], plugins.framework(source.framework)
    for mode, device in itertools.product(modes, devices):
        plain = Case(source.name, framework=source.framework, device=device, mode=mode, batch=source.batch)  # type: ignore[arg-type]
        for precision in PRECISIONS.get(device, GPU_PRECISIONS):
            if precision in framework.precisions:
                cases.append(replace(plain, precision=precision))  # type: ignore[arg-type]
        if framework.compiles:
            cases.append(replace(plain, compile=True))
    return tuple(cases)


def measured(
    source: Source, cases: Sequence[Case], limit: float, unchecked: Sequence[str]
) -> tuple[list[Record], list[Case]]:
    """Return the records of all cases, each alone and then interleaved, and the cases left out; store nothing."""
    plan = Plan(tuple(cases), budget=MEASURED_S, repeats=1, limit=limit, sources=(source,), unchecked=tuple(unchecked))
    with tempfile.TemporaryDirectory(prefix=f"mldyno-{own_name()}-") as folder:
        runner = Runner(plan, Store(str(Path(folder) / "check.db")), new_run_id(), (), new_worker=InProcessWorker)
        return runner.execute(Listener()), runner.left_out


def largest_batches(source: Source, cases: Sequence[Case]) -> list[LargestBatch]:
    """Return the largest power of two times the batch that should fit, for each mode and device in fp32."""
    framework, batches = plugins.framework(source.framework), []
    build = framework.version_of(plugins.workload(source.name))
    sizes = {device.name: device.memory for device in framework.devices()}
    for case in cases:
        if case.precision != "fp32" or case.compile:
            continue
        left = machines.available_memory()
        room = (left - reserve() if left else None) if case.device == "cpu" else sizes.get(case.device)
        batch, fits = case.batch or 1, 0
        while room is not None and batch <= LARGEST_BATCH:
            needed = framework.forecast_memory(replace(case, batch=batch), build)
            if needed is None or needed > room:
                break
            fits, batch = batch, 2 * batch
        if fits:
            batches.append(LargestBatch(case, fits, batch > LARGEST_BATCH))
    return batches
