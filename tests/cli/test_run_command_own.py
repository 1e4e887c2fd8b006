"""`mldyno run` with files of the user's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
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


def test_code_that_did_not_change_has_nothing_to_be_compared(folder: Path, mldyno: Mldyno) -> None:
    code, _, err = mldyno("run", "my_model.py", "--against", "HEAD", *FEW)
    assert code == 1
    assert err == "mldyno: my_model.py is the same at HEAD, with all that it imports; nothing to compare.\n"
    trees = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert trees.count("\n") <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("my_model.py", "--against", "HEAD~7"), "'HEAD~7' is neither a file here nor a revision of"),
        (("mlp", "--against", "HEAD"), "--against is for one file of yours"),
        (("no_such.py",), "there is no file 'no_such.py' here; name one that exists, such as my_model.py."),
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
