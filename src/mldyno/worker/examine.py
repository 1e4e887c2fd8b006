"""Tries one feature on a device, in this process: whatever becomes of the process is the answer."""

from __future__ import annotations

import math
from typing import Any

from mldyno import plugins
from mldyno.frameworks import Framework


def examine(name: str, device: str, feature: str) -> dict[str, Any]:
    """What came of a feature, and whether this process is still fit for others; an error is an answer too.

    An error can leave a device unusable for the rest of the process. So after one the plainest feature
    is tried again: if that fails now, nothing more may be asked here.
    """
    framework = plugins.framework(name)
    found = _tried(framework, device, feature)
    plainest = next(iter(framework.features))
    fit = "error" in found or _tried(framework, device, plainest).get("result") == "works"
    return {"error": None, "tolerance": None, "reason": "", **found, "fit": fit}


def _tried(framework: Framework, device: str, feature: str) -> dict[str, Any]:
    """The result and its reason; where numbers came out, also how far off they are."""
    try:
        framework.start()
        trial = framework.try_feature(feature, device)
    except Exception as error:
        status, reason = framework.explain(error)
        return {"result": "failed" if status == "oom" else "unsupported", "reason": reason}
    numbers = {"error": trial.error if math.isfinite(trial.error) else None, "tolerance": trial.tolerance}
    if not trial.error <= trial.tolerance:
        return {"result": "wrong", "reason": "" if numbers["error"] is not None else "not a number", **numbers}
    if trial.fallback:
        return {"result": "fallback", "reason": trial.fallback, **numbers}
    return {"result": "works", **numbers}
