"""Published machines on the command line: listed, compared with this one, and around it in a suite's table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mldyno import api
from mldyno.records import seal
from mldyno.store import Store

Mldyno = Callable[..., tuple[int, str, str]]
Script = Callable[..., None]
Measured = Callable[..., None]
MLP, RESNET = "mlp/infer/torch/cpu/fp32/b128/device", "resnet50/infer/torch/cpu/fp32/b32/device"
OWN = "separate runs, own interval only"
NO_INTERVAL = "published figures have no interval, so a ratio with one may be off by an unknown amount"
MLP_TITLE, RESNET_TITLE = "MLP, inference, batch 128 on cpu", "ResNet-50, inference, batch 32 on cpu"
SUSPECT = f"suspect: M1 Mac mini, {RESNET_TITLE}: the same author measured 44 s on an M1 for the same work elsewhere"


@pytest.fixture
def measured(script: Script, store: Store, tmp_path: Path) -> Measured:
    """Puts the fake framework into the store as if torch was measured here: mlp and resnet50 at 1/2 and 4 M1 minis."""

    def measure(*targets: str, pace: float = 1.0, **axes: Any) -> None:
        script({"match": "mlp/*", "step": 0.00252 / pace}, {"match": "resnet50/*", "step": 1.03 / pace})
        rehearsal = api.run(*targets, framework="fake", repeats=1, store=Store(tmp_path / "rehearsal.sqlite"), **axes)
        store.append([seal(replace(r, case=replace(r.case, framework="torch"))) for r in rehearsal.records])

    return measure


def test_this_machine_is_compared_with_a_published_one_in_every_case_that_both_have(
    mldyno: Mldyno, measured: Measured
) -> None:
    measured("mlp", "resnet50")
    code, out, _ = mldyno("compare", "this-machine", "mini m1")
    assert code == 0
    assert out.splitlines() == [
        f"{MLP_TITLE}: M1 Mac mini (published) is 2.00x (2.00-2.00) faster than test bench [{OWN}]",
        f"{RESNET_TITLE}: M1 Mac mini (published) is 4.00x (4.00-4.00) slower than test bench [{OWN}; suspect]",
        "geometric mean of 2 cases, 1 of them doubtful: M1 Mac mini (published) is 1.41x (1.41-1.41) slower than "
        "test bench, own interval only",
        SUSPECT,
        NO_INTERVAL,
    ]


def test_the_other_way_round_says_the_same(mldyno: Mldyno, measured: Measured) -> None:
    measured("mlp", mode="infer")
    assert mldyno("compare", "M1 Mac mini", "this-machine")[1].splitlines() == [
        f"{MLP_TITLE}: test bench is 2.00x (2.00-2.00) slower than M1 Mac mini (published) [{OWN}]",
        NO_INTERVAL,
    ]


def test_a_comparison_as_json_has_the_mean_and_the_doubts(mldyno: Mldyno, measured: Measured) -> None:
    measured("mlp", "resnet50", mode="infer")
    content = json.loads(mldyno("compare", "this-machine", "M1 Mac mini", "--json")[1])
    assert [one["doubts"] for one in content["comparisons"]] == [[], [SUSPECT.replace(RESNET_TITLE, RESNET)]]
    (mean,) = content["geometric_means"]
    for name in ("ratio", "low", "high"):
        assert mean.pop(name) == pytest.approx(0.5**0.5, rel=1e-3)
    assert mean == {"base": "test bench", "other": "M1 Mac mini (published)", "cases": 2, "verdict": "slower"}


def test_two_machines_that_were_measured_have_a_mean_with_an_interval(
    mldyno: Mldyno, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured("mlp", "resnet50", mode="infer")
    monkeypatch.setenv("MLDYNO_MACHINE", "their bench")
    measured("mlp", "resnet50", mode="infer", pace=2.0)
    _, out, _ = mldyno("compare", "test bench", "their bench")
    assert out.splitlines()[-1] == (
        "geometric mean of 2 cases: their bench is 2.00x (2.00-2.00) faster than test bench"
    )


def test_a_published_machine_that_shares_no_case_says_what_it_has_and_how_to_measure_it(mldyno: Mldyno) -> None:
    code, out, err = mldyno("compare", "this-machine", "xeon")
    assert (code, out) == (1, "")
    assert err == (
        f"mldyno: 'this-machine' has no case that Intel Xeon Gold 5218R 20 threads has: {MLP}, {RESNET}; "
        "measure one here with: mldyno run mlp --mode infer --batch 128\n"
    )


def test_the_command_that_is_advised_makes_the_comparison_possible(mldyno: Mldyno, measured: Measured) -> None:
    advised = mldyno("compare", "this-machine", "RTX 3090")[2].partition("with: mldyno run ")[2].split()
    assert advised == ["mlp", "--device", "all", "--mode", "infer", "--batch", "128"]
    measured("mlp", mode="infer", batch="128", placement="device")
    code, out, _ = mldyno("compare", "this-machine", "RTX 3090")
    assert code == 0
    assert "cuda:0 NVIDIA RTX 3090 (published) is 7.64x (7.64-7.64) faster than cpu test bench" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("M1 Ultra", "'M1 Ultra' could be any of these machines: M1 Ultra 48-core GPU; M1 Ultra Mac Studio."),
        ("M4 Max", "no machine is called 'M4 Max'. Did you mean 'M3 Max 40-core GPU'? `mldyno list machines` lists"),
        ("toaster", "unknown workload, machine, case or file 'toaster'."),
    ],
)  # fmt: skip
def test_a_machine_that_is_not_clear_is_one_line(words: str, said: str, mldyno: Mldyno) -> None:
    code, out, err = mldyno("compare", "this-machine", words)
    assert (code, out) == (2, "")
    assert err.startswith(f"mldyno: {said}")
    assert err.count("\n") == 1


def test_machines_are_listed_with_their_sources_figures_and_marks(mldyno: Mldyno, measured: Measured) -> None:
    measured("mlp", mode="infer")
    lines = {
        line.partition("  ")[0]: line.partition("  ")[2].strip() for line in mldyno("list", "machines")[1].splitlines()
    }
    assert lines["test bench"] == "in your store"
    assert lines["NVIDIA RTX 3090"] == "published in m1-chips: 5 figures"
    assert lines["M2 Ultra 60-core GPU"] == (
        "published in apple-silicon-bert: 2 figures; "
        "1 figure suspect: later revision; odd: slower than the M1 Ultra row"
    )
    assert "38 figures; 12 figures superseded: withdrawn by its author" in lines["M1 Max 10-core CPU 32-core GPU 32GB"]


def test_the_list_as_json_names_the_cases_that_are_marked(mldyno: Mldyno) -> None:
    listed = {one["name"]: one for one in json.loads(mldyno("list", "machines", "--json")[1])["machines"]}
    mini = listed["M1 Mac mini"]
    assert (mini["stored"], mini["sources"], mini["figures"]) == (False, ["m1-chips"], 7)
    assert [(mark["mark"], mark["figures"], mark["cases"]) for mark in mini["marks"]] == [("suspect", 1, [RESNET])]
    assert [mark["figures"] for mark in listed["M1 Max 10-core CPU 32-core GPU 32GB"]["marks"]] == [12]


def test_a_table_leaves_out_what_was_withdrawn_and_notes_what_is_suspect(mldyno: Mldyno) -> None:
    cells = json.loads(mldyno("table", "M1 Max", "--json")[1])["cells"]
    assert len(cells) == 24
    assert not any("withdrawn" in note for cell in cells for note in cell["notes"])
    _, out, _ = mldyno("table", "resnet50", "--rows", "machine,device", "--cols", "placement")
    assert "4,120 ms [1]" in out
    assert "[1] suspect: the same author measured 44 s" in out


PLACED = "repeats = 1\n[[cases]]\nworkload = 'mlp'\nframework = 'fake'\nplacement = ['device', 'roundtrip']\n"


def test_a_suite_ends_with_this_machine_among_published_ones(mldyno: Mldyno, script: Script, tmp_path: Path) -> None:
    script({"step": 0.002})
    path = tmp_path / "own.toml"
    path.write_text(PLACED)
    code, out, _ = mldyno("run", str(path))
    assert code == 0
    lines = out.partition("\nagainst published machines:\n")[2].splitlines()
    assert lines[0] == "time of one step"
    assert [part.strip() for part in lines[2].split("   ") if part] == [
        "machine", "device", "framework", "mlp, infer, device", "mlp, infer, roundtrip",
    ]  # fmt: skip
    (ours,) = [line for line in lines if line.startswith(" test bench ")]
    assert ours.count("2.00 ms") == 2
    assert [line.split()[-2:] for line in lines if line.startswith(" Intel Xeon")] == [["ms", "[1]"]]
    assert "[1] suspect: about 10 GFLOP/s, an OpenMP spin-wait or oversubscription fault" in lines


def test_what_is_no_suite_or_was_never_published_ends_without_that_table(mldyno: Mldyno, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[[cases]]\nworkload = 'bert-tiny'\nmode = 'infer'\n")
    for target in ("mlp", str(path)):
        assert "published" not in mldyno("run", target, "--framework", "fake", "--repeats", "1")[1]


def test_a_suite_as_json_is_records_only(mldyno: Mldyno) -> None:
    _, out, _ = mldyno("run", "quick", "--framework", "fake", "--repeats", "1", "--json")
    assert all(json.loads(line)["schema"] for line in out.splitlines())
