"""What a case would take, before it is measured: its memory, estimated or tried out, and the device's rate."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from mldyno import plugins
from mldyno.messages import CaseForecasted, StepsTried
from mldyno.meters.memory import peak_resident, resident
from mldyno.records import Case
from mldyno.timing import clock
from mldyno.worker import peaks
from mldyno.worker.ranks import own_share
from mldyno.worker.session import open_case

MATMULS_S = 0.2  # of matmuls that show the device's rate
HEAP = 1.3  # a training's peak on the CPU over what its tensors take: measured 1.25 to 1.34, the allocator's holes
KIND = Case("matmul")


def forecast_case(case: Case) -> CaseForecasted:
    """Memory in B that the case needs on its device, and the rate of matmuls there in 1/s; None if unknown."""
    framework = plugins.framework(case.framework)
    framework.start()
    if case.threads:
        framework.limit_threads(case.threads)
    share, ranks = (own_share(case, 0), case.ranks or 1) if case.in_ranks else (case, 1)
    memory = framework.forecast_memory(share, framework.version_of(plugins.workload(case.workload)))
    if memory is not None and case.device == "cpu" and framework.clock is None:
        own = round(memory * (HEAP if case.mode == "train" else 1)) + (resident() or 0)  # the framework itself
        memory = ranks * own
    device = next((device for device in framework.devices() if device.name == case.device), None)
    kind = replace(KIND, framework=case.framework, device=case.device, precision=case.precision)
    return CaseForecasted(memory, None if device is None else _rate(kind), device.memory if device else None)


@functools.cache
def _rate(kind: Case) -> float | None:
    """Of matmuls on a kind of case's device, in 1/s; measured once."""
    framework = plugins.framework(kind.framework)
    return peaks.of(framework, kind, framework.clock or clock.now, MATMULS_S) or None


def try_steps(case: Case, steps: int, limit: int | None) -> StepsTried:
    """Do so many steps of the case to see that they fit, and give the peak in B; on the CPU in `limit` B at most."""
    if limit is not None and case.device == "cpu":
        _keep_to(limit)
    framework = plugins.framework(case.framework)
    framework.start()
    framework.limit_memory(case)
    program = open_case(case).program
    program.run(steps)
    program.synchronize()
    losses = program.losses() or {}
    if not all(math.isfinite(loss) for loss in losses.values()):
        raise MemoryError("its results are no numbers, as where a device drops work for which it has no memory")
    return StepsTried(peak_resident() if case.device == "cpu" else program.device_peak())


def _keep_to(limit: int) -> None:
    """Let the system refuse memory beyond so many B, so that no other program has to give way (Linux)."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    except (ImportError, ValueError, OSError):
        return  # the parent's watch remains
