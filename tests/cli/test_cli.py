"""Every command as a user types it: output, exit code, and help with an example."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from mldyno import cli
from mldyno.axes import AXES
from mldyno.cli import commands
from mldyno.messages import FrameworkFacts, FrameworksProbed
from mldyno.records import Device
from mldyno.selftest.measures import Measure

Script = Callable[..., None]
FAKE = ("--framework", "fake", "--repeats", "1")
Mldyno = Callable[..., tuple[int, str, str]]


def command_named(name: str) -> click.Command:
    found = cli.cli.get_command(click.Context(cli.cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", [name for names in commands().values() for name in names])
def test_the_help_of_every_command_has_an_example(name: str, mldyno: Mldyno) -> None:
    code, out, _ = mldyno(name, "--help")
    assert code == 0
    assert "Example" in out
    assert f"mldyno {name}" in out


def test_mldyno_alone_says_what_it_is_and_what_to_try(mldyno: Mldyno) -> None:
    code, out, _ = mldyno()
    assert code == 0
    assert "how fast this machine really trains" in out
    assert out.count("\n  mldyno ") == 4
    assert out.index("mldyno quick") < out.index("mldyno run")
    assert len(out.splitlines()) < 24
    assert max(map(len, out.splitlines())) <= 80


def test_every_command_has_its_place_among_what_a_user_wants(mldyno: Mldyno) -> None:
    groups = commands()
    assert sum(map(len, groups.values())) == len(cli.cli.list_commands(click.Context(cli.cli))) == 24
    for out in (mldyno()[1], mldyno("--help")[1]):
        assert all(title in out and all(name in out for name in names) for title, names in groups.items())


def test_an_option_of_mldyno_itself_that_stands_behind_the_command_is_put_in_its_place(mldyno: Mldyno) -> None:
    for option in ("--plain", "--version"):
        code, _, err = mldyno("list", option)
        assert (code, err) == (2, f"mldyno: {option} goes before the command; write: mldyno {option} list\n")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("bench", "'quick' or 'run'"), ("plot", "'report'"), ("mlp", "'run mlp'"), ("roofline", "'run roofline'")],
)
def test_a_word_of_another_tool_or_a_workload_is_answered_with_the_command(
    word: str, meant: str, mldyno: Mldyno
) -> None:
    assert mldyno(word) == (2, "", f"mldyno: unknown command '{word}'. Did you mean {meant}?\n")


def test_every_axis_has_an_option_and_its_other_names() -> None:
    options = {option for parameter in command_named("run").params for option in parameter.opts}
    assert {axis.options[0] for axis in AXES if axis.name != "workload"} <= options
    assert {"--batch-size", "--batch_size", "--seq-len", "--sequence_length"} <= options


def test_run_measures_compares_and_keeps(mldyno: Mldyno) -> None:
    code, out, err = mldyno("run", "mlp", *FAKE, "--device", "all", "--mode", "inference", "--by", "device")
    assert code == 0
    assert "time of one step" in out
    assert "gpu is 9.9" in out
    assert err.count("a step") == 2
    assert "left)" in err
    code, out, _ = mldyno("history")
    assert out.count("mlp/infer/fake") == 4
    assert out.count("measured head-to-head, in one process") == 2


def test_a_run_as_json_is_one_record_a_line(mldyno: Mldyno) -> None:
    code, out, _ = mldyno("run", "mlp", *FAKE, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert {"schema", "id", "created", "provenance", "run", "case", "status", "reason", "machine", "software", "series",
            "facts", "checks", "warnings"} <= records[0].keys()  # fmt: skip


def test_a_dry_run_shows_cases_and_their_time_and_runs_nothing(mldyno: Mldyno, tmp_path: Path) -> None:
    code, out, _ = mldyno("run", "mlp", "--batch-size", "8,16", "--dry-run")
    assert code == 0
    assert out.count("estimated") == 4
    assert "4 cases, 3 repeats or more, about" in out
    assert not (tmp_path / "records.sqlite").exists()
    assert json.loads(mldyno("run", "mlp", "--dry-run", "--json")[1])["seconds"] > 0


def test_a_dry_run_knows_from_the_last_time(mldyno: Mldyno) -> None:
    mldyno("run", "mlp", *FAKE)
    assert mldyno("run", "mlp", *FAKE, "--dry-run")[1].count("as last time") == 2


def test_a_case_that_fails_means_exit_code_three(mldyno: Mldyno, script: Script) -> None:
    script({"match": "*/infer/*", "fail": "exception"})
    code, out, _ = mldyno("run", "mlp", *FAKE)
    assert code == 3
    assert "fake failure" in out


def test_show_tells_all_of_a_case_and_of_a_record(mldyno: Mldyno) -> None:
    mldyno("run", "mlp", *FAKE, "--mode", "train")
    code, out, _ = mldyno("show", "mlp/fake/train")
    assert code == 0
    for word in ("outcome", "samples", "first step", "peak memory", "throughput", "checks", "learned: yes"):
        assert word in out
    identity = out.split()[1]
    again = json.loads(mldyno("show", identity[:10], "--json")[1])
    assert [record["id"] for record in again["records"]] == [identity]


def test_compare_speaks_of_filters_and_axes(mldyno: Mldyno) -> None:
    mldyno("run", "mlp", *FAKE, "--device", "cpu,gpu")
    code, out, _ = mldyno("compare", "mlp/fake/cpu", "mlp/fake/gpu")
    assert (code, out.count(" faster than cpu")) == (0, 2)
    code, out, _ = mldyno("compare", "mlp/fake", "--by", "mode", "--json")
    assert [one["verdict"] for one in json.loads(out)["comparisons"]] == ["faster", "faster"]


def test_compare_takes_another_machines_file(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    script({"step": 0.004})
    monkeypatch.setenv("MLDYNO_MACHINE", "their bench")
    theirs, target = str(tmp_path / "theirs.sqlite"), str(tmp_path / "theirs.jsonl")
    mldyno("run", "mlp", *FAKE, "--store", theirs)
    assert mldyno("export", target, "--store", theirs)[0] == 0
    script({"step": 0.002})
    monkeypatch.setenv("MLDYNO_MACHINE", "test bench")
    mldyno("run", "mlp", *FAKE)
    code, out, _ = mldyno("compare", target, "this-machine")
    assert code == 0
    assert out.count("test bench is 2.00x (2.00-2.00) faster than their bench [separate runs]") == 2


def test_what_differs_in_more_than_what_is_compared_is_refused_unless_asked_for(mldyno: Mldyno) -> None:
    mldyno("run", "mlp", *FAKE, "--device", "cpu,gpu", "--batch", "8")
    cases = {record["case"]: record["id"] for record in json.loads(mldyno("history", "--json")[1])["records"]}
    pair = (cases["mlp/train/fake/cpu/fp32/b8/device"], cases["mlp/infer/fake/gpu/fp32/b8/device"])
    code, _, err = mldyno("compare", *pair)
    assert code == 1
    assert "differ in device, mode as well; --anyway" in err
    assert mldyno("compare", *pair, "--anyway")[0] == 0


def test_a_framework_that_there_is_not_is_refused_with_those_that_there_are(mldyno: Mldyno) -> None:
    code, out, err = mldyno("run", "mlp", "--framework", "caffe", "--mode", "infer")
    assert (code, out) == (2, "")
    known = "command, fake, jax, mlx, numpy, onnxruntime, openvino, tensorflow, torch"
    assert err == f"mldyno: unknown framework 'caffe'. Possible: {known}.\n"


def test_a_machine_is_found_by_part_of_its_name_or_all_that_fit_are_named(mldyno: Mldyno) -> None:
    code, out, _ = mldyno("table", "V100", "--value", "time:100steps")
    assert code == 0
    assert "NVIDIA V100" in out
    code, _, err = mldyno("table", "ultra")
    assert code == 2
    assert "M1 Ultra 48-core GPU; M2 Ultra 60-core GPU; M1 Ultra Mac Studio" in err


def test_export_and_import_pass_records_on(mldyno: Mldyno, tmp_path: Path) -> None:
    mldyno("run", "mlp", *FAKE)
    target = tmp_path / "mine.jsonl"
    code, _, err = mldyno("export", str(target))
    shared = (
        "shares 2 records of 1 machine: its name, processor, versions; --private leaves command lines and paths out"
    )
    assert (code, err) == (0, f"{shared}\n2 records written to {target}\n")
    code, out, _ = mldyno("import", str(target), "--store", str(tmp_path / "other.sqlite"))
    assert (code, out) == (0, "2 new records taken, 0 there already\n")


def test_what_is_shared_is_said_and_private_copies_have_no_command_line(mldyno: Mldyno, tmp_path: Path) -> None:
    mldyno("run", "--steps", "2", "--", "true", "/home/me")
    code, out, err = mldyno("export")
    assert code == 0
    assert "home" in out
    assert err.splitlines()[0] == (
        "shares 1 record of 1 machine: its name, processor, versions, 1 command line; "
        "--private leaves command lines and paths out"
    )
    code, out, err = mldyno("export", "--private")
    assert "home" not in out
    assert json.loads(out)["facts"]["private"] is True
    assert err.splitlines()[0].endswith("its name, processor, versions; command lines and paths are left out")
    page = tmp_path / "page.html"
    code, _, err = mldyno("report", "--private", "--out", str(page))
    assert (code, err.count("command lines and paths are left out")) == (0, 1)
    assert "home" not in page.read_text()
    other = str(tmp_path / "other.sqlite")
    assert mldyno("import", str(page), "--store", other)[:2] == (0, "1 new record taken, 0 there already\n")
    assert "private command " in mldyno("history", "--store", other)[1]


@pytest.mark.parametrize("kind", ["workloads", "suites", "frameworks", "devices", "machines"])
def test_list_knows_every_kind(kind: str, mldyno: Mldyno) -> None:
    code, out, _ = mldyno("list", kind, "--json")
    assert code == 0
    assert json.loads(out)[kind]


def test_an_error_is_one_line_and_a_traceback_only_for_the_curious(
    mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = mldyno("run", "resnet5")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "Did you mean 'resnet50'?" in err
    monkeypatch.setenv("MLDYNO_DEBUG", "1")
    with pytest.raises(Exception, match="resnet5"):
        cli.main(["run", "resnet5"])


def test_a_reader_that_leaves_early_is_no_error() -> None:
    line = f"{sys.executable} -m mldyno table --value step | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("words", [["--help"], ["list"], ["--version"], []])
def test_start_up_imports_no_numbers_no_framework_and_no_charts(words: list[str]) -> None:
    heavy = ("numpy", "torch", "tensorflow", "jax", "mlx", "resvg_py", "rich", "msgspec", "psutil", "jinja2", "sqlite3",
             "hashlib")  # fmt: skip
    code = (
        "import sys\nfrom mldyno.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def loaded_by(*words: str) -> list[str]:
    code = (
        "import sys\nfrom mldyno.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "print(*(name for name in sys.modules if name.startswith('mldyno')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def test_a_table_loads_at_most_60_modules_and_nothing_that_measures() -> None:
    names = loaded_by("table", "bert-base")
    assert "mldyno.analysis.tables" in names
    assert len(names) <= 60, sorted(names)
    writing = ("client", "doctor", "messages", "plan", "runner", "selftest", "timing", "tracking", "worker")
    assert [name for name in names if name.split(".")[1:2] and name.split(".")[1] in writing] == []


def measured(ok: bool | None) -> Measure:
    return Measure(2, "identical code called different", 0.025, 0.05, "<= 5 %", ok, 200, "share", "17-67 %", "a note")


@pytest.mark.parametrize(
    ("ok", "word", "summary"),
    [
        (True, "met", "1 of 1 targets met, in "),
        (False, "MISSED", "0 of 1 targets met, 1 missed, in "),
        (None, "too few trials to judge (200)", "0 of 1 targets met, 1 with too few trials to judge, in "),
    ],
)
def test_selftest_prints_each_measure_with_its_target_and_the_peers(
    ok: bool | None, word: str, summary: str, mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldyno.selftest.table.run", lambda *arguments: iter([measured(ok)]))
    code, out, _ = mldyno("selftest")
    assert code == (3 if ok is False else 0)
    assert f" {word} " in out
    assert out.splitlines()[-1].startswith(summary)
    for word in ("2.5 %", "5.0 %", "<= 5 %", "17-67 %", "a note"):
        assert word in out
    _, out, _ = mldyno("selftest", "--quick", "--json")
    (row,) = json.loads(out)["measures"]
    assert {"id", "name", "value", "bound", "target", "ok", "n"} <= set(row)
    assert row["ok"] is ok


def test_selftest_writes_its_result_to_a_file_when_it_is_complete(
    mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = FrameworkFacts(versions={"torch": "2"}, threads=4, devices=(Device("cpu", "torch"),))
    monkeypatch.setattr("mldyno.api.examining.probe", lambda names: FrameworksProbed("3.11", {"torch": seen}))
    monkeypatch.setattr("mldyno.selftest.table.run", lambda *arguments: iter([measured(False)]))
    path = tmp_path / "result.json"
    code, _, err = mldyno("selftest", "--export", str(path))
    assert code == 3
    assert f"written to {path}" in err
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["device"], found["software"]["frameworks"]["torch"]["threads"]) == ("cpu", 4)
    assert found["machine"]["name"] == "test bench"
    assert [one["measure"] for one in found["findings"]] == [2]


def test_selftest_on_a_device_tries_every_framework_that_sees_it_pytorch_first(
    mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu = Device("cpu", "x")
    facts = {"torch": FrameworkFacts(devices=(cpu, Device("mps", "torch"))), "jax": FrameworkFacts("jax is broken"),
             "mlx": FrameworkFacts(devices=(cpu, Device("mps", "mlx"))),
             "openvino": FrameworkFacts(devices=(cpu,))}  # fmt: skip
    asked: list[Any] = []

    def probed(names: list[str], timeout: float = 0.0) -> FrameworksProbed:
        asked.append(names)
        return FrameworksProbed("3.11", facts)

    def measure_all(effort: Any, frameworks: list[str], name: str, *rest: Any) -> Iterator[Measure]:
        asked.append((frameworks, name))
        return (replace(measured(True), framework=framework) for framework in frameworks)

    monkeypatch.setattr("mldyno.api.examining.probe", probed)
    monkeypatch.setattr("mldyno.selftest.table.run_on_device", measure_all)
    path = tmp_path / "result.json"
    code, out, _ = mldyno("selftest", "--device", "gpu", "--export", str(path))
    assert code == 0
    names, (tested, device) = asked
    assert names[0] == "torch"
    assert {"jax", "mlx", "onnxruntime", "openvino", "tensorflow"} == set(names[1:])
    assert (tested, device) == (["torch", "mlx"], "mps")
    assert "21 jax: not tried: jax is broken" in out
    assert "21 openvino: not tried: it sees cpu" in out
    assert out.splitlines()[-1].startswith("2 of 4 targets met, 2 not tried, in ")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["frameworks"] == ["torch", "mlx"]
    assert found["software"]["frameworks"]["jax"]["error"] == "jax is broken"


def test_selftest_wants_a_framework_that_computes(mldyno: Mldyno) -> None:
    code, _, err = mldyno("selftest", "--framework", "fake")
    assert code == 2
    assert "--framework torch" in err
    assert mldyno("selftest", "--framework", "torhc")[0] == 2


def test_every_result_has_a_trust_line_and_every_warning_a_next_step(mldyno: Mldyno, script: Script) -> None:
    script({"step": 0.05, "noise": 0.5})
    _, out, _ = mldyno("run", "mlp", *FAKE, "--mode", "infer", "--budget", "1s", "--target", "1%")
    assert "trust mlp/infer/fake/cpu/fp32/b128/device: " in out
    assert "but target-not-reached" in out
    assert "Next: give it more time with --budget" in out
