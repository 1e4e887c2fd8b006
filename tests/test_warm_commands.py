"""A command that tests fork behaves as one that is started."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import make_outputs
from tests.warm_commands import REAL, commands

FAILING = """MLDYNO_FAKE='[{"fail": "oom"}]'"""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with commands(tmp_path_factory.mktemp("m")) as folder:
        yield str(folder / "mldyno")


def said(line: str) -> tuple[int, list[str], list[str]]:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    return done.returncode, make_outputs.masked(done.stdout), make_outputs.masked(done.stderr)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("mldyno --version", 0),
        ("mldyno run", 2),
        (f"{FAILING} mldyno run mlp --framework fake --mode infer --store failed.sqlite", 3),
        ("COLUMNS=60 mldyno list workloads", 0),
        ("printf '{}' | mldyno import -", 1),
    ],
)
def test_it_says_and_returns_what_one_that_is_started_does(
    line: str, code: int, forked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[int, list[str], list[str]]] = []
    for command in (REAL, forked):
        folder = tmp_path / str(len(answers))
        folder.mkdir()
        monkeypatch.chdir(folder)
        answers.append(said(line.replace("mldyno ", f"{command} ")))
    assert answers[0] == answers[1]
    assert answers[0][0] == code


def test_settings_that_matter_while_modules_are_imported_need_a_start(forked: str) -> None:
    times = [subprocess.run(["bash", "-c", f"{setting} {forked} --version"], capture_output=True, text=True, check=True)
             for setting in ("MLDYNO_PLAIN=1", "PYTHONPROFILEIMPORTTIME=1")]  # fmt: skip
    assert ["import time:" in done.stderr for done in times] == [False, True]
    assert times[0].stdout == times[1].stdout
