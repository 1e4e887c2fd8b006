"""`mldyno run` with files of the user's own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from setuptools.command.editable_wheel import _finder_template  # type: ignore[import-untyped]
from tests.cli.conftest import Mldyno, steady

from mldyno import sources
from mldyno.store import Query, Store

FEW = ("--steps", "3", "--repeats", "1", "--budget", "1s", "-q", "--threads", "1")
MODEL = """
import torch
from layers import WIDTH
def build(batch_size=4):
    model = torch.nn.Sequential(torch.nn.Linear(8, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 3))
    return model, torch.randn(batch_size, 8), torch.randint(3, (batch_size,))
"""

ENDLESS = """
import os, time
def build():
    if os.fork() == 0:
        time.sleep(600)
    print("x" * 5_000_000)
    while True:
        time.sleep(1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder under git, in which the user stands, with a model that imports from it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "layers.py").write_text("WIDTH = 16")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *words], check=True)
    return tmp_path


def test_a_change_is_measured_against_a_revision_and_said_in_words(folder: Path, mldyno: Mldyno, store: Store) -> None:
    (folder / "layers.py").write_text("WIDTH = 64")

    def in_an_empty_store(*words: str) -> tuple[int, str, str]:
        store.path.unlink(missing_ok=True)
        return mldyno(*words)

    code, out, err = steady(in_an_empty_store, "run", "my_model.py", "--against", "HEAD", "--mode", "train", *FEW)
    assert code == 0, err
    assert "your change" in out
    assert "a training step" in out
    rows = [line.split("  ")[0].strip() for line in out.splitlines() if line.startswith(" my_model.py")]
    assert rows == ["my_model.py (HEAD)", "my_model.py (now)"]
    assert "on cpu, against my_model.py (HEAD); paired" in out
    assert re.search(r"my_model\.py \(HEAD\) is my_model\.py@\w{8}; my_model\.py \(now\) is my_model\.py@\w{8}", out)
    records = store.select(Query(provenances=("measured",)))
    names = {record.case.workload for record in records}
    assert len(names) == 2
    assert {sources.family(name) for name in names} == {"my_model.py"}
    assert {record.run.pairing for record in records} == {"alone", "interleaved"}
    assert all(record.checks.learned for record in records if record.alone)
    assert {record.fact("params") for record in records if record.alone} == {
        16 * 8 + 16 + 16 * 3 + 3,
        64 * 8 + 64 + 64 * 3 + 3,
    }
    assert str(folder) not in "".join(record.text for record in records)
    _, listed, _ = mldyno("history", "my_model.py")
    assert listed.count("my_model.py@") == 4
    code, out, _ = mldyno("table", "my_model.py", "--rows", "workload", "--value", "step")
    assert (code, out.count("my_model.py@")) == (0, 2)
    code, out, _ = mldyno("compare", "my_model.py", "--by", "workload")
    sentence, *doubts = out.splitlines()
    assert code == 0
    assert "paired, " in sentence
    assert all("their times in tables point the other way" in line for line in doubts)


def test_code_that_did_not_change_has_nothing_to_be_compared(folder: Path, mldyno: Mldyno) -> None:
    code, _, err = mldyno("run", "my_model.py", "--against", "HEAD", *FEW)
    assert code == 1
    imports = f"with all that it imports from {folder.name}"
    assert err == f"mldyno: my_model.py is the same at HEAD, {imports}; nothing to compare.\n"
    trees = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert trees.count("\n") <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("my_model.py", "--against", "HEAD~7"), "'HEAD~7' is neither a file here nor a revision of"),
        (("mlp", "--against", "HEAD"), "--against is for one file of yours"),
        (("no_such.py",), "there is no file 'no_such.py' here; name one that exists."),
        (("my_model.py:1x",), "'1x' can't be a function of my_model.py; write my_model.py:build."),
        (("mlp", "--no-check", "learned"), "--no-check is for models of your own"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: tuple[str, ...], said: str, folder: Path, mldyno: Mldyno) -> None:
    code, _, err = mldyno("run", *words, *FEW, "--dry-run")
    assert code in (1, 2)
    assert said in err
    assert err.count("\n") == 1


def test_code_that_never_returns_is_ended_and_leaves_no_process(
    folder: Path, mldyno: Mldyno, left_behind: Callable[[], set[psutil.Process]]
) -> None:
    (folder / "endless.py").write_text(ENDLESS)
    code, _, err = mldyno("run", "endless.py", "--timeout", "3s", "-q")
    assert code == 1
    late = "endless.py gave nothing within 3.00 s"
    assert err == f"mldyno: {late}; it must return a model, or be given more with --timeout.\n"
    assert left_behind() == set()


def test_a_suite_runs_no_code_unless_it_is_trusted(folder: Path, mldyno: Mldyno) -> None:
    (folder / "theirs.toml").write_text('[[cases]]\nworkload = "my_model.py"\nmode = "infer"\n')
    code, _, err = mldyno("run", "theirs.toml", "--dry-run")
    assert code == 2
    assert err == "mldyno: suite theirs.toml runs the code of my_model.py; allow it with --trust, if you trust both.\n"
    code, out, err = mldyno("run", "theirs.toml", "--trust", "--dry-run")
    assert code == 0, err
    assert "my_model.py@" in out


def test_a_suite_starts_no_interpreter_unless_it_is_trusted(folder: Path, mldyno: Mldyno) -> None:
    tool = folder / "tool"
    tool.write_text(f"#!/bin/sh\ntouch {folder}/ran\necho '[[3, 12, 9], {{}}]'\n")
    tool.chmod(0o755)
    (folder / "theirs.toml").write_text(
        '[[cases]]\nworkload = "mlp"\nframework = "fake"\nmode = "infer"\npython = "./tool"\n'
    )
    code, _, err = mldyno("run", "theirs.toml", "--dry-run")
    assert code == 2
    assert (
        err == "mldyno: suite theirs.toml: it runs the interpreter ./tool; allow it with --trust, if you trust both.\n"
    )
    assert not (folder / "ran").exists()
    code, out, err = mldyno("run", "theirs.toml", "--trust", "--dry-run")
    assert code == 0, err
    assert "mlp/infer/fake/cpu/fp32/b128/device/3.12.9" in out


def test_a_sweep_over_the_batch_of_a_file_is_planned_and_one_without_a_batch_says_what_it_needs(
    folder: Path, mldyno: Mldyno
) -> None:
    code, out, err = mldyno("crossover", "my_model.py", "--precision", "fp32,bf16", "--mode", "infer", "--dry-run")
    assert code == 0, err
    assert all(f"/b{size}/" in out for size in (1, 2)), out
    (folder / "fixed.py").write_text("import torch\ndef build(): return torch.nn.Linear(2, 2), torch.ones(3, 2)")
    code, _, err = mldyno("crossover", "fixed.py", "--precision", "fp32,bf16", "--dry-run")
    assert code == 2
    assert "fixed.py takes no batch size; its function needs a parameter such as batch_size=32" in err


def test_a_loss_that_does_not_fall_is_wrong_unless_the_user_does_without_that_check(
    folder: Path, mldyno: Mldyno, store: Store
) -> None:
    (folder / "odd.py").write_text(
        "import torch\ndef build():\n    model = torch.nn.Linear(2, 2)\n    return (model, torch.ones(3, 2), "
        "torch.ones(3, 2), lambda output, targets: -(output - targets).square().mean())"
    )
    code, out, _ = mldyno("run", "odd.py", "--mode", "train", *FEW)
    assert code == 3
    assert "wrong" in out
    code, out, _ = steady(mldyno, "run", "odd.py", "--mode", "train", "--no-check", "learned", *FEW)
    assert code == 0
    assert store.history(Query(heads=False), 1)[0].fact("not_checked") == "learning"


PACKAGED = """
import torch
from own_package.sizes import WIDTH
def build(batch_size=4): return torch.nn.Linear(8, WIDTH), torch.randn(batch_size, 8)
"""


@pytest.fixture
def packaged(folder: Path) -> Path:
    """The same repository with a package beside the folder of the file under test, which was changed since."""
    for place, text in (
        ("bench/gpt.py", PACKAGED),
        ("own_package/__init__.py", ""),
        ("own_package/sizes.py", "WIDTH = 16"),
    ):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text(text)
    for words in (["add", "."], ["commit", "-qm", "second"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words], check=True)
    (folder / "own_package" / "sizes.py").write_text("WIDTH = 64")
    return folder


def editable(folder: Path) -> str:
    """The Python of an environment in which the package is installed for editing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], check=True)
    (packages,) = (folder / ".venv" / "lib").glob("python3*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    finder = _finder_template("__editable__.own_package-0.1", {"own_package": str(folder / "own_package")}, {})
    (packages / "__editable___own_package_0_1_finder.py").write_text(finder)
    name = "__editable___own_package_0_1_finder"
    (packages / "__editable__.own_package-0.1.pth").write_text(f"import {name}; {name}.install()")
    return str(folder / ".venv" / "bin" / "python")


@pytest.mark.parametrize("found_by", ["PYTHONPATH", "an editable install"])
def test_a_package_beside_the_file_is_measured_as_it_was_and_as_it_is(
    found_by: str, packaged: Path, mldyno: Mldyno, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    python: tuple[str, ...] = ()
    if found_by == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", ".")
    else:
        python = ("--python", editable(packaged))
    few = [word for word in FEW if word != "-q"]
    code, out, err = steady(mldyno, "run", "bench/gpt.py", "--against", "HEAD", *python, *few)
    assert code == 0, err
    assert "an inference step" in out
    assert err.count("gpt.py is measured in inference only: ") == 1, "the same for both versions"
    records = store.select(Query(provenances=("measured",)))
    assert len({record.case.workload for record in records}) == 2
    assert {record.fact("params") for record in records if record.alone} == {16 * 9, 64 * 9}


def test_a_module_that_only_the_working_tree_has_is_named(
    packaged: Path, mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    (packaged / "bench" / "gpt.py").write_text("import own_package._version\n" + PACKAGED)
    (packaged / ".gitignore").write_text("_version.py")
    for words in (["add", "."], ["commit", "-qm", "third"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words], check=True)
    (packaged / "own_package" / "_version.py").write_text("")
    code, _, err = mldyno("run", "bench/gpt.py", "--against", "HEAD", *FEW)
    assert code == 1
    assert err == (
        "mldyno: gpt.py (HEAD): own_package._version (own_package/_version.py) is in the other version's tree only; "
        "put it into a second checkout, and name the file there with --against.\n"
    )


def test_a_package_in_the_folder_where_the_user_stands_is_found_by_the_line_that_is_said(
    packaged: Path, mldyno: Mldyno
) -> None:
    code, _, err = mldyno("run", "bench/gpt.py", "--dry-run")
    assert code == 1
    assert err == (
        "mldyno: gpt.py, line 3: No module named 'own_package'; "
        "it is in this folder; write bench.gpt:build, which imports from here.\n"
    )
    code, out, err = mldyno("run", "bench.gpt:build", "--dry-run")
    assert code == 0, err
    assert "bench.gpt:build@" in out


def test_different_files_are_compared_by_their_names(folder: Path, mldyno: Mldyno) -> None:
    for name in ("small", "large"):
        (folder / f"{name}.py").write_text(MODEL)
    _, out, _ = steady(mldyno, "run", "small.py", "large.py", "--by", "workload", "--mode", "infer", *FEW)
    assert "your change" not in out
    assert re.search(r"large\.py@\w{8} (is|and small)|between large\.py@\w{8} and small\.py@", out)
