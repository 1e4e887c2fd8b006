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


def test_what_the_device_has_works_and_what_it_lacks_is_told_in_the_frameworks_words(examined: Any) -> None:
    found = examined(refuses=["float64"], autocast="deaf")
    lacking = {name: one for name, one in found.items() if one.outcome != "works"}
    assert {name: one.outcome for name, one in lacking.items()} == dict.fromkeys(
        ("fp64", "autocast-fp16", "autocast-bf16"), "unsupported"
    )
    assert "Cannot convert a SIM Tensor to float64" in lacking["fp64"].reason
    for name in ("autocast-fp16", "autocast-bf16"):
        assert lacking[name].reason == "under autocast the product was computed in torch.float32"


def test_autocast_that_takes_effect_works_and_has_the_error_of_its_type(examined: Any) -> None:
    found = examined("fp32", "autocast-fp16", "autocast-bf16", refuses=["bfloat16"])
    assert found["autocast-fp16"].outcome == "works"
    assert found["autocast-fp16"].error > 10 * found["fp32"].error
    assert found["autocast-bf16"].outcome == "unsupported"
