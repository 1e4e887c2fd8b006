"""`mldyno selftest --replay`: a stranger's result is shown with what differs, and starts nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Mldyno

from mldyno.records import Device, Machine
from mldyno.selftest import result_file
from mldyno.selftest.measures import Measure, Process
from mldyno.selftest.result_file import Installed, SelftestResult

WAIT = {"issued": 0.001, "waited": 0.002, "read": 0.02}


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A file from a GPU whose wait does not wait, on which a process died."""
    card = Device("cuda:0", "torch", "RTX 9999", 1 << 34, {"driver": "9\u202e", "power_limit": "x"})
    machine = Machine("a box\x1b[31m", devices=(card,))
    software: Installed = {"python": "3.12", "frameworks": {"torch": {"versions": {"torch": "3.0"}, "threads": 8,
                "environment": {"NVIDIA_TF32_OVERRIDE": "1"}}}}  # fmt: skip
    died = Process("torch", ["device", "memory"], "failed: it was ended by SIGABRT", ["CUDA error\x07: gone", "bye"])
    lazy = {"whole": 0.02, "left": 1e-4}
    measures = tuple(
        Measure(number, "", 0.0, None, "", True, 1, raw=(row,), framework="torch")
        for number, row in ((25, WAIT), (32, lazy))
    )
    measures += (Measure(21, "", 0.0, None, "", None, 0, framework="jax", failure="not tried: it sees cpu"),)
    content = result_file.document(
        SelftestResult("cuda:0", ("torch",), True, 9.0, machine, software, measures, (died,))
    )
    path = tmp_path / "stranger.json"
    result_file.write(str(path), content)
    return path


def test_a_replay_shows_what_differs_the_software_and_the_last_words(stranger: Path, mldyno: Mldyno) -> None:
    code, out, err = mldyno("selftest", "--replay", str(stranger))
    assert (code, err) == (3, "")
    assert "what differs from what is expected of cuda" in out
    assert "simulated device" in out
    assert "10 %" in out
    for words in ("\ntorch cuda:0: RTX 9999, ",
                  "\ntorch: versions torch 3.0, threads 8, environment NVIDIA_TF32_OVERRIDE 1\n",
                  "torch, process of device, memory: failed: it was ended by SIGABRT", "  bye"):  # fmt: skip
        assert words in out
    assert out.splitlines()[-1] == "1 of 3 measures differ from what is expected of cuda."
    assert "\nnot tried: jax 21\n" in out
    assert all(letter.isprintable() or letter == "\n" for letter in out)


def test_a_replay_that_differs_in_nothing_says_so(stranger: Path, mldyno: Mldyno) -> None:
    content = json.loads(stranger.read_text())
    del content["measures"][0]
    stranger.write_text(json.dumps(content))
    code, out, _ = mldyno("selftest", "--replay", str(stranger))
    assert code == 0
    assert out.splitlines()[-1] == "0 of 2 measures differ from what is expected of cuda."


def test_a_replay_starts_nothing_and_takes_no_other_option(
    stranger: Path, mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    _, out, _ = mldyno("selftest", "--replay", str(stranger), "--json")
    content = json.loads(out)
    assert (content["device"], [row["id"] for row in content["measures"]]) == ("cuda:0", [25])
    for words in (["--device", "gpu"], ["--quick"], ["--export", "x.json"], ["--framework", "torch"]):
        code, _, err = mldyno("selftest", "--replay", str(stranger), *words)
        assert (code, err.count("\n")) == (2, 1)
        assert "leave the other options out" in err
