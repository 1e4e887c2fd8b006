"""A newcomer's path without a clone: a wheel, one command outside the source tree, and the page that it names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.browser.conftest import visit
from tests.grown import Grown

ROOT = Path(__file__).parent.parent.parent
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """What the wheel holds, in a folder of its own; it is built from a copy, so that the source tree stays clean."""
    tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("unpacked")
    for name in NEEDED:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(tree),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return Grown(folder)


def test_from_the_wheel_quick_names_a_page_that_begins_with_the_score(unpacked: Grown, browser: object) -> None:
    screen = unpacked.run("quick", "--framework", "fake", "-q").splitlines()
    assert len(screen) <= 24
    assert any(line.startswith("score on gpu: training ") for line in screen)
    report = Path(screen[-1].removeprefix("report: "))
    opened = visit(browser, report)  # type: ignore[arg-type]
    text = opened.page.locator("main").inner_text()
    assert "Your GPU trains" in text
    assert opened.errors == []


def test_the_readme_of_the_wheel_is_the_projects(unpacked: Grown) -> None:
    (metadata,) = unpacked.folder.glob("mldyno-*.dist-info/METADATA")
    assert "mldyno finds out how fast your machine really trains" in metadata.read_text()
