"""A framework's core: eight members, and the page that shows it holds a framework that measures rightly."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mldyno.frameworks import Framework, Program, Unsupported
from mldyno.records import Case, Device
from mldyno.store import Query, Store

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "add-a-framework.md"
IMPORTS = "import itertools\nimport math\nimport random\nfrom operator import mul\n"


def blocks() -> list[str]:
    """The page's framework, and what it adds to a workload."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's framework in it."""
    tree = tmp_path_factory.mktemp("tree")
    framework, build = blocks()
    shutil.copytree(ROOT / "src" / "mldyno", tree / "mldyno", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "mldyno" / "frameworks" / "plain.py").write_text(framework)
    mlp = tree / "mldyno" / "workloads" / "mlp.py"
    text = mlp.read_text().replace("from typing import Any\n", f"{IMPORTS}from typing import Any\n")
    text = text.replace("import Batch, ", "import Batch, Recipe, ")
    text = text.replace("WORKLOAD = Workload(", f"{build}\n\nWORKLOAD = Workload(")
    mlp.write_text(
        text.replace('build={"torch": PORTABLE.in_torch', 'build={"plain": plain, "torch": PORTABLE.in_torch')
    )
    return tree


def test_the_core_is_eight_members() -> None:
    assert len(Framework.__abstractmethods__ | Program.__abstractmethods__) == 8


def test_the_page_shows_it_whole_in_sixty_lines() -> None:
    framework, _ = blocks()
    assert len(framework.splitlines()) <= 60
    for name in Framework.__abstractmethods__ | Program.__abstractmethods__:
        assert f"def {name}(" in framework
        assert f"| `{name}(" in PAGE.read_text()


def test_the_framework_of_the_page_measures_a_training_that_learned_and_agrees(tree: Path) -> None:
    words = ["run", "mlp", "--framework", "plain", "--mode", "train", "--precision", "fp64", "--batch", "2"]
    store = tree / "results.sqlite"
    environment = os.environ | {"PYTHONPATH": str(tree), "MLDYNO_STORE": str(store)}
    command = [sys.executable, "-m", "mldyno", *words, "--steps", "2", "--repeats", "1"]
    subprocess.run(command, env=environment, capture_output=True, check=False)
    (record,) = Store(store).select(Query(provenances=("measured",)))
    assert record.status in ("ok", "unsteady"), record.reason  # two steps in real time may be anything
    assert len(record.values("step_time", "steady")) == 2
    assert record.software.framework == "plain"
    assert record.checks.learned is True
    assert record.checks.agrees is True
    assert 0 < (record.checks.error or 0) < 1e-5
    assert record.facts["not_checked"] == "parameters, precision, device, peak"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"device": "mps"}, "no device 'mps' here; plain sees cpu"),
        ({"precision": "fp16"}, "plain has no precision fp16; it has fp32, fp64"),
        ({"placement": "host"}, "plain has no placement host; it has device"),
        ({"compile": True}, "plain has no compiler"),
        ({"threads": 2}, "plain has no setting for the number of threads"),
        ({"ranks": 2}, "plain can't train in ranks here; torch can"),
    ],
)
def test_what_it_does_not_claim_to_have_is_refused_and_never_replaced(
    tree: Path, asked: dict[str, Any], reason: str
) -> None:
    spec = importlib.util.spec_from_file_location("mldyno.frameworks.plain", tree / "mldyno/frameworks/plain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FRAMEWORK.start()
    with pytest.raises(Unsupported, match=reason):
        module.FRAMEWORK.open(Case("mlp", framework="plain", **asked), lambda array, case: None)


def test_a_workload_without_a_build_function_for_it_is_refused() -> None:
    class Bare(Framework):
        def start(self) -> None: ...

        def versions(self) -> dict[str, str]:
            return {}

        def devices(self) -> list[Device]:
            return [Device("cpu", "bare")]

        def build_program(self, case: Case, build: Any, data: Any) -> Program:
            raise AssertionError("never asked")

    with pytest.raises(Unsupported, match="mlp has no version for test-frameworks-core"):
        Bare().open(Case("mlp"), None)
    refusals = ((Bare().matmul, "has no matmul"), (Bare().allocate, "can't allocate device memory"))
    for refused, reason in refusals:
        with pytest.raises(Unsupported, match=reason):
            refused(Case("mlp"), 8)
