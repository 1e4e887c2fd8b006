"""What a framework offers here, and what becomes of one feature on a device, found out in this process."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import replace

from mldyno import plugins
from mldyno.frameworks import Framework
from mldyno.messages import FeatureTried, FrameworkFacts, FrameworksProbed


def probe(names: Sequence[str]) -> FrameworksProbed:
    """Versions and devices of each framework; one that can't be started says why."""
    return FrameworksProbed(platform.python_version(), {name: _facts(name) for name in names})


def _facts(name: str) -> FrameworkFacts:
    framework = plugins.framework(name)
    try:
        framework.start()
        return FrameworkFacts(
            versions=framework.versions(),
            threads=framework.threads(),
            devices=tuple(framework.devices()),
            support=framework.support(),
        )
    except Exception as error:
        return FrameworkFacts(error=framework.explain(error)[1])


def examine(name: str, device: str, feature: str) -> FeatureTried:
    """What came of a feature, and whether this process is still fit for others; an error is an answer too.

    An error can leave a device unusable for the rest of the process. So after one the plainest feature
    is tried again: if that fails now, nothing more may be asked here.
    """
    framework = plugins.framework(name)
    tried = _try(framework, device, feature)
    plainest = next(iter(framework.features))
    gave_numbers = tried.tolerance is not None
    return replace(tried, fit=gave_numbers or _try(framework, device, plainest).result == "works")


def _try(framework: Framework, device: str, feature: str) -> FeatureTried:
    """The result and its reason; where numbers came out, also how far off they are."""
    try:
        framework.start()
        trial = framework.try_feature(feature, device)
    except Exception as error:
        status, reason = framework.explain(error)
        return FeatureTried("failed" if status == "oom" else "unsupported", reason, None, None, True)
    error_seen = trial.error if math.isfinite(trial.error) else None
    if not trial.error <= trial.tolerance:
        return FeatureTried(
            "wrong", "" if error_seen is not None else "not a number", error_seen, trial.tolerance, True
        )
    if trial.fallback:
        return FeatureTried("fallback", trial.fallback, error_seen, trial.tolerance, True)
    return FeatureTried("works", "", error_seen, trial.tolerance, True)
