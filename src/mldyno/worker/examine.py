"""Answer questions before anything is measured: frameworks, features, a case's memory, the device's rate."""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from mldyno import plugins
from mldyno.frameworks import Framework
from mldyno.hardware.system import peak_resident, resident
from mldyno.messages import CaseForecasted, FeatureTried, FrameworkFacts, FrameworksProbed, StepsTried
from mldyno.records import Case
from mldyno.timing import clock
from mldyno.worker import peaks
from mldyno.worker.ranks import own_share
from mldyno.worker.session import open_case


def probe_frameworks(frameworks: Sequence[str]) -> FrameworksProbed:
    """Return versions and devices of each framework; one that can't be started has an error."""
    return FrameworksProbed(platform.python_version(), {name: _facts(plugins.framework(name)) for name in frameworks})


def _facts(framework: Framework) -> FrameworkFacts:
    try:
        framework.start()
        return FrameworkFacts(
            versions=framework.versions(), threads=framework.threads(), devices=tuple(framework.devices()),
            support=framework.support(),
        )  # fmt: skip
    except Exception as error:
        return FrameworkFacts(error=framework.explain(error)[1])


def try_feature(framework: str, device: str, feature: str) -> FeatureTried:
    """Try a feature, and return its outcome and whether this process is fit for more; an error is an outcome too.

    An error can leave a device unusable for the rest of the process. So the plainest feature is tried again after one:
    if that fails now, nothing more may be asked of this process.
    """
    started = plugins.framework(framework)
    tried = _try(started, device, feature)
    plainest = next(iter(started.features))
    return replace(tried, fit=tried.tolerance is not None or _try(started, device, plainest).result == "works")


def _try(framework: Framework, device: str, feature: str) -> FeatureTried:
    """Return the outcome and its reason; where numbers came out, also their error."""
    try:
        framework.start()
        trial = framework.try_feature(feature, device)
    except Exception as error:
        status, reason = framework.explain(error)
        return FeatureTried("failed" if status == "oom" else "unsupported", reason, None, None, True)
    error_seen = trial.error if math.isfinite(trial.error) else None
    tried = FeatureTried("works", "", error_seen, trial.tolerance, True)
    if not trial.error <= trial.tolerance:
        return replace(tried, result="wrong", reason="" if error_seen is not None else "not a number")
    return replace(tried, result="fallback", reason=trial.fallback) if trial.fallback else tried


# -- forecasts of a case ---------------------------------------------------------------------------


MATMULS_S = 0.2  # of matmuls that show the device's rate
HEAP = 1.3  # a training's peak on the CPU over what its tensors take: measured 1.25 to 1.34, the allocator's holes
MATMUL = Case("matmul")


def forecast_case(case: Case) -> CaseForecasted:
    """Return the memory in B that a case needs on its device, and the device's matmul rate in 1/s; None if unknown."""
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
    kind = replace(MATMUL, framework=case.framework, device=case.device, precision=case.precision)
    return CaseForecasted(memory, None if device is None else _rate(kind), device.memory if device else None)


@functools.cache
def _rate(kind: Case) -> float | None:
    """Measure the matmul rate of a device in 1/s, once for each framework, device and precision.

    It is that of the usual layout: few models reach the fastest, such as that of oneDNN's convolutions.
    """
    framework = plugins.framework(kind.framework)
    usual = framework.layouts[:1]
    return peaks.peak_rate(framework, kind, framework.clock or clock.now, MATMULS_S, usual) or None


def try_steps(case: Case, steps: int, limit: int | None) -> StepsTried:
    """Run steps of the case to see whether they fit, and return the peak in B; on the CPU within `limit` B."""
    if limit is not None and case.device == "cpu":
        with suppress(ImportError, ValueError, OSError):  # the parent's watch remains
            import resource  # not on Windows

            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # Linux: so that no other program is killed for it
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
