"""What a framework offers here: versions and devices, found out in this process."""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

from mldyno import plugins


def probe(names: list[str]) -> dict[str, Any]:
    """Versions and devices of each framework; one that can't be started says why."""
    found: dict[str, Any] = {}
    for name in names:
        framework = plugins.framework(name)
        try:
            framework.start()
            devices = [asdict(device) for device in framework.devices()]
            found[name] = {"versions": framework.versions(), "threads": framework.threads(), "devices": devices,
                           "support": framework.support()}  # fmt: skip
        except Exception as error:
            found[name] = {"error": framework.explain(error)[1]}
    return {"python": platform.python_version(), "frameworks": found}
