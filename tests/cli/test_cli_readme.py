"""Every command of the README, as a newcomer without a GPU runs it: its exit code and its words.

Each runs as it is written. What would take minutes is made short by options behind it, or is only planned.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from tests.cli.conftest import Mldyno, steady
from tests.test_docs import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
FAKE = "--framework fake"
SHORT = "--mode infer --threads 1 --budget 0.5s --repeats 1"
MODEL = """
import torch

def build(batch_size=4):
    return torch.nn.Linear(64, {size}), torch.randn(batch_size, 64)
"""
EXPECTED = {  # what is added, the exit code, and what must be said
    "mldyno quick": (f"{FAKE} --limit 3s", 0, r"(?s)Your GPU runs models .* faster than your CPU\n.*\nreport: "),
    "mldyno doctor": (f"--quick {FAKE}", 0, r"(?s)GPUs +none .*\nfake on cpu\n.*(\d findings?\n|no finding)"),
    "mldyno selftest": ("--help", 0, r"How often is mldyno wrong|wrong on this machine|Usage: mldyno selftest"),
    "mldyno crossover resnet18": ("--mode infer", 1, r"^mldyno: crossover compares two devices, and .* only cpu"),
    "mldyno run resnet18-cifar --framework torch,jax,tensorflow": ("--dry-run", 0, r"6 cases.*Nothing was run\.$"),
    "mldyno run mlp --energy": (f"{FAKE} --mode infer", 0, r"energy: unknown|no sensor"),
    "mldyno run resnet18-cifar --mode train --ranks 1,2,4": ("--dry-run", 0, r"3 cases.*Nothing was run\.$"),
    "mldyno run bert-base --precision fp32,amp-bf16": (f"{FAKE} --mode infer", 0, r"amp-bf16 is not worth it: "),
    "mldyno run my_model.py": (SHORT, 0, r"my_model\.py@[0-9a-f]{8}\s+infer\s+4 .* [mµn]s ±"),
    "mldyno run hf:bert-base-uncased": ("", 1, r"^mldyno: hf:bert-base-uncased is not in the local cache; "),
    "mldyno run model.onnx": (SHORT.replace("--threads 1 ", ""), 0, r"model\.onnx@[0-9a-f]{8}\s+infer"),
    "mldyno run my_model.py --against HEAD~1": (SHORT, 0, r"slower|faster|no clear difference|as long as before"),
    "mldyno run mnist-cnn --loader-workers 0,1,2,4": (f"{FAKE} --mode infer", 0, r"loader.workers"),
    "mldyno run -- python a.py -- python b.py": ("--budget 0.5s", 0, r"python b\.py .*python a\.py .*\[paired, "),
    "mldyno compare mlp --by run": ("", 0, r"separate runs"),
    "mldyno max-batch gpt2": (f"{FAKE} --mode infer", 0, r"largest batch|fits"),
    "mldyno table bert-base": ("", 0, r"M1 Max"),
    "mldyno import theirs.jsonl": ("", 0, r"2 records|records"),
    "mldyno report": ("", 0, r"report\.html"),
    "mldyno report --card card.png": ("", 0, r"card\.png"),
    "mldyno report --site FOLDER": ("", 0, r"FOLDER"),
}  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test puts a copy of its folder, from which the others copy theirs."""
    return tmp_path_factory.mktemp("readme") / "template"


@pytest.fixture
def place(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch, mldyno: Mldyno) -> Path:
    """A folder with all that the README's commands name: models, scripts, a colleague's file, some results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    if template.exists():
        shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    else:
        _fill(mldyno)
        shutil.copytree(tmp_path, template)
    return tmp_path


def _fill(mldyno: Mldyno) -> None:
    """Put all that into the current folder."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    for size in (16, 4096):
        Path("my_model.py").write_text(MODEL.format(size=size))
        subprocess.run([*git, "add", "my_model.py"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "model"], check=True)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "model.onnx")
    Path("a.py").write_text("pass")
    Path("b.py").write_text("import time; time.sleep(0.1)")
    for _ in range(2):
        mldyno("run", "mlp", "--framework", "fake", "--mode", "infer", "-q")
    mldyno("export", "theirs.jsonl")


def commands() -> list[str]:
    """The commands of mldyno in the README, each once."""
    written = re.findall(r"`(mldyno [^`]*)`", README) + re.findall(r"^\$ (mldyno .*)", README, re.MULTILINE)
    return [each for each in dict.fromkeys(written) if "--framework fake" not in each]  # which another test runs


def test_every_command_of_the_readme_is_expected_to_say_something() -> None:
    assert set(commands()) == set(EXPECTED)


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_says_what_a_newcomer_needs(command: str, place: Path, mldyno: Mldyno) -> None:
    added, code, said = EXPECTED[command]
    before, dashes, behind = command.partition(" -- ")
    words = shlex.split(f"{before} {added}{dashes}{behind}")[1:]
    ended, out, err = steady(mldyno, *words)
    assert ended == code, out + err
    assert re.search(said, out + err, re.MULTILINE), out + err
    assert "Traceback" not in out + err
