"""What a framework offers here: versions and devices, found out in this process."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from mldyno import plugins
from mldyno.messages import FrameworkFacts, FrameworksProbed


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
