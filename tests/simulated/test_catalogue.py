"""The contract of the catalogue: on an accelerator every workload runs in every mode and placement.

As a script (`make catalogue`) this file does the same with networks of their own sizes, and prints what is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.simulated.conftest import HERE, ISSUE

from mldyno import plugins
from mldyno.axes import PRECISIONS
from mldyno.frameworks.torch import Torch

UNSUPPORTED = (  # what the device, or the workload, lacks
    "has no data set on disk; take placement device, host or roundtrip",
    "Could not run 'aten::_thnn_fused_lstm_cell'",
    "tf32 is a mode of CUDA's matmuls; sim has none",
    "it multiplies nothing, so that",
    "which no gradient scaler serves",
)


def outcomes(*arguments: str) -> list[dict[str, Any]]:
    """What came of every case, in one process."""
    paths = os.pathsep.join([str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    settings = {"virtual": True, "transfer": 1e9, "issue": ISSUE, "capacity": 1 << 36}
    environment = {**os.environ, "PYTHONPATH": paths, "MLDYNO_SIM": json.dumps(settings), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(HERE / "catalogue.py"), *arguments]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases: list[dict[str, Any]] = json.loads(done.stdout)
    return cases


def faults(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cases that are neither right on the device, and as on the CPU, nor unsupported for a known reason."""
    return [
        case for case in cases
        if not (case["status"] == "unsupported" and any(reason in case["reason"] for reason in UNSUPPORTED))
        and not (case["status"] == "ok" and case["checks"]["agrees"] and case["device_seen"] == "sim:0")
    ]  # fmt: skip


def test_every_workload_runs_on_the_device_in_every_mode_and_placement_and_agrees_with_the_cpu() -> None:
    cases = outcomes()
    assert faults(cases) == []
    ran = {(case["workload"], case["mode"], case.get("placement")) for case in cases if case["status"] == "ok"}
    built = {name: plugins.workload(name) for name in plugins.names("workloads") if name != "cnn-224"}
    expected = {
        (name, mode, placement)
        for name, workload in built.items() if "torch" in workload.build and name != "lstm"
        for mode in workload.modes
        for placement in Torch.placements if placement != "loader" or workload.data
    }  # fmt: skip
    assert {each for each in ran if each[2]} == expected
    precisions = {case["precision"] for case in cases if case["status"] == "ok" and "precision" in case}
    assert precisions == {*PRECISIONS} - {"tf32"}


if __name__ == "__main__":
    cases = outcomes("whole")
    print(*faults(cases), f"{len(cases)} cases, {len(faults(cases))} not as expected", sep="\n")
    sys.exit(bool(faults(cases)))
