"""`mldyno selftest --device`: the contract holds on the simulated device, and its file is what a user sends back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.simulated.conftest import Simulated

from mldyno import cli
from mldyno.axes import PRECISIONS
from mldyno.selftest.replay import SIMULATED, differing
from mldyno.selftest.result_file import read


def test_the_contract_holds_on_the_simulated_device_and_is_written_to_a_file(
    simulated: Simulated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated({"virtual": True, "kernel": 5e-3, "rate": 5e9, "transfer": 1e7, "capacity": 64 << 20})
    path = tmp_path / "result.json"
    with pytest.raises(SystemExit) as end:
        cli.main(["selftest", "--quick", "--device", "gpu", "--framework", "torch", "--export", str(path)])
    out, err = capsys.readouterr()
    assert end.value.code == 0, out
    assert "16 of 17 targets met, 1 with too few trials to judge, in " in out
    assert "simulated accelerator, 64.0 MiB" in out
    assert f"written to {path}" in err
    parts = [line.partition("  (about")[0] for line in err.splitlines()]
    assert parts[:-1] == [
        "the device", "its memory", "known work", "waiting", "precisions", "copies", "its queue", "latency",
        "its peak", "sustained load", "the edge of its memory", "layouts", "identical code",
    ]  # fmt: skip

    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["device"], found["quick"], found["findings"]) == ("sim", True, [])
    assert [device["name"] for device in found["machine"]["devices"]] == ["cpu", "sim"]
    assert found["software"]["frameworks"]["torch"]["versions"]["torch"]
    assert [process["ended"] for process in found["processes"]] == [""]
    measures = {measure["id"]: measure for measure in found["measures"]}
    assert sorted(measures) == [*range(21, 38)]
    assert all(measure["raw"] for measure in found["measures"])
    assert {number: measure["ok"] for number, measure in measures.items() if measure["ok"] is not True} == {29: None}
    assert (measures[29]["value"], measures[29]["n"]) == (0.0, 10)  # identical code, too seldom compared to judge
    assert {row["precision"] for row in measures[28]["raw"]} == set(PRECISIONS)
    assert measures[24]["value"] < 0.01
    for number, value in SIMULATED.items():  # what a replay shows beside a stranger's
        assert measures[number]["value"] == pytest.approx(value, abs=0.02), number
    assert differing(read(str(path))) == []
    step, size = 7 * 5e-3 + 128 * 2_099_200 / 5e9, 128 * 1024 * 4  # s, and B of a batch
    assert measures[30]["value"] == pytest.approx((step + 5e-3 + size / 1e7) / step, rel=0.01)
