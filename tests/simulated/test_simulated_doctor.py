"""The doctor's probes on the simulated accelerator: what it really lacks is found, and what it has works."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mldyno.analysis.symptoms import Tried
from mldyno.doctor.features import Examiner, names

HERE = Path(__file__).parent


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tries features on a simulated device with these settings."""

    def run(*features: str, **settings: Any) -> dict[str, Tried]:
        monkeypatch.setenv("PYTHONPATH", str(HERE))
        monkeypatch.setenv("MLDYNO_SIM", json.dumps({"kernel": 1e-5, "virtual": True, **settings}))
        examiner = Examiner(sys.executable, lambda: None, "torch", "sim")
        return {one.feature: one for one in examiner.examine(features or names("torch", quick=True))}

    return run


def test_what_the_device_has_works_and_autocast_that_does_nothing_there_is_seen(examined: Any) -> None:
    found = examined()
    lacking = {name: one for name, one in found.items() if one.outcome != "works"}
    assert {name: one.outcome for name, one in lacking.items()} == dict.fromkeys(
        ("autocast-fp16", "autocast-bf16"), "unsupported"
    )
    half = lacking["autocast-fp16"].reason
    assert "under autocast the product was computed in torch.float32; torch says: " in half
    assert "Disabling autocast" in half
    assert "Autocastsim" in lacking["autocast-bf16"].reason
