"""The simulated device for any Python that a test starts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.warm_workers import without_warm_workers

from mldyno import axes

HERE = Path(__file__).parent
ISSUE = 10e-6
ROOM = 16 << 20  # B: the model and small products; those that would tell a real device's peak do not fit

Simulated = Callable[[dict[str, Any]], None]
real_workers = pytest.fixture(without_warm_workers)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    """Processes that are started see the simulated device with these settings; this one does not."""

    monkeypatch.setattr(axes, "DEVICE_KINDS", (*axes.DEVICE_KINDS, "sim"))

    def set_up(settings: dict[str, Any]) -> None:
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths = [str(HERE), *(path for path in known if path not in ("", str(HERE)))]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # time is fake; threads that wait for each other only take longer
        monkeypatch.setenv("MLDYNO_SIM", json.dumps({"issue": ISSUE, "capacity": ROOM, **settings}))

    return set_up
