"""Workloads and frameworks of other packages, by their entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mldyno import plugins
from mldyno.cli import main

WORKLOAD = """
from mldyno.records import Case
from mldyno.workloads import Workload
WORKLOAD = Workload("theirs", "Theirs", version=1, item="sample", batch=2, params=0, flops=lambda case: 0.0, build={})
"""
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with entry points onto the path."""

    def put(code: str, points: str) -> None:
        (tmp_path / "their_package.py").write_text(code)
        info = tmp_path / "their_package-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.2\nSummary: A model\n")
        (info / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(str(tmp_path))
        _forget()

    yield put
    monkeypatch.undo()
    sys.modules.pop("their_package", None)
    _forget()


def _forget() -> None:
    plugins.added.cache_clear()
    plugins._anything_added.cache_clear()


def _listed(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(["list", "workloads"])
    return capsys.readouterr().out


def test_a_package_adds_a_workload_and_the_list_says_where_it_is_from(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(WORKLOAD, "[mldyno.workloads]\ntheirs = their_package:WORKLOAD\n")
    assert plugins.workload("theirs").title == "Theirs"
    assert "A model (from the package their-package 1.2)" in _listed(capsys)


def test_a_package_can_name_the_module_that_holds_it(install: Install) -> None:
    install(WORKLOAD, "[mldyno.workloads]\ntheirs = their_package\n")
    assert plugins.workload("theirs").batch == 2


def test_what_is_built_in_cant_be_replaced(install: Install) -> None:
    install(WORKLOAD, "[mldyno.workloads]\nmlp = their_package:WORKLOAD\n")
    assert plugins.workload("mlp").title == "MLP"


def test_a_package_that_cant_be_loaded_is_one_line_and_does_no_harm_to_others(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("raise ValueError('broken')", "[mldyno.workloads]\ntheirs = their_package:WORKLOAD\n")
    assert "theirs" in _listed(capsys)
    with pytest.raises(SystemExit) as end:
        main(["run", "theirs"])
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "mldyno: theirs, from the package their-package 1.2, can't be loaded: broken; update or remove it.\n"
    )
    assert plugins.workload("mlp").title == "MLP"
