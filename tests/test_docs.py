"""The docs are true: every command, option, status, warning and suite is there, and every example runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
from docs import make_outputs
from tests.warm_commands import commands as warm_commands

from mldyno import cli, plugins, suites
from mldyno.analysis.outcomes import VALUES
from mldyno.axes import AXES
from mldyno.cli import commands
from mldyno.doctor.findings import CODES as FINDINGS
from mldyno.hardware import Meter
from mldyno.records import RECORDED_ENVIRONMENT, Case, Device, Status
from mldyno.runner.warnings import WARNING_CODES
from mldyno.store import Query, Store

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
REFERENCE = ROOT / "docs" / "reference.md"
METRIC = re.compile(r'Series\(\s*"([a-z_]+)"')


def sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def examples() -> dict[str, str]:
    """Return the blocks that say they can be run, by page and number."""
    return {
        f"{page.relative_to(ROOT)}#{number}": block
        for page in make_outputs.pages()
        for number, block in enumerate(make_outputs.blocks(page.read_text()))
    }


def programs() -> list[tuple[str, str]]:
    """The Python programs that say they can be run."""
    return [
        (f"{page.relative_to(ROOT)}#{number}", block)
        for page in PAGES
        for number, block in enumerate(re.findall(r"<!-- run -->\s*```python\n(.*?)```", page.read_text(), re.DOTALL))
    ]


def test_every_command_and_option_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    for name in (name for names in commands().values() for name in names):
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None
        assert f"mldyno {name}" in text
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or f"`{option}" in text, f"{name} {option}"


def test_every_axis_status_value_suite_and_plugin_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    words = [*(axis.name for axis in AXES), *get_args(Status), *VALUES, *suites.names()]
    words += [name for kind in ("workloads", "frameworks") for name in plugins.names(kind)]
    assert [word for word in words if f"`{word}`" not in text] == []


def started_meters() -> list[Meter]:
    return [meter for meter in plugins.meters() if meter.start(Case("mlp"), Device("cpu", "torch"))]


def test_every_warning_and_metric_is_in_the_reference() -> None:
    text, code = REFERENCE.read_text(), sources()
    words = {*WARNING_CODES, *METRIC.findall(code), "superseded", "suspect", "note"}
    words |= {series.metric for meter in started_meters() for series in meter.stop()}
    assert len(words) >= 6
    assert sorted(word for word in words if f"`{word}`" not in text) == []


def test_every_finding_is_in_the_reference_with_its_cause_and_its_cure() -> None:
    section = REFERENCE.read_text().partition("\n## Findings\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\S.* \| \S.*) \|$", section, re.MULTILINE))
    assert [code for code in FINDINGS if code not in rows] == []


def test_every_feature_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    assert [name for name in plugins.framework("torch").features if f"`{name}`" not in text] == []


def test_every_setting_of_the_environment_is_in_the_reference() -> None:
    settings = set(re.findall(r"MLDYNO_[A-Z_]+", sources())) - {"MLDYNO_COMPLETE"}
    text = REFERENCE.read_text()
    assert sorted(word for word in (*settings, *RECORDED_ENVIRONMENT) if word not in text) == []


def test_every_promise_on_security_names_tests_that_there_are() -> None:
    rows = re.findall(r"^\| .+ \| .+ \| (.+) \|$", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE)[1:]
    tests = [re.findall(r"`(tests/\S+\.py)::(test_\w+)`", row) for row in rows]
    assert len(rows) >= 10
    assert all(tests), "each promise has a test"
    missing = [f"{path}::{name}" for row in tests for path, name in row
               if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text()]  # fmt: skip
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [one for one in targets if "://" not in one and not (page.parent / one).exists()]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_is_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text())
    missing = [
        f"{target}#{anchor}"
        for target, anchor in links
        if "://" not in target and anchor not in anchors(page.parent / target if target else page)
    ]
    assert missing == []


@pytest.fixture(scope="module")
def forked_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose `mldyno` is forked."""
    with warm_commands(tmp_path_factory.mktemp("m")) as folder:
        yield folder


@pytest.mark.parametrize("place", examples())
def test_every_example_runs_and_prints_what_the_page_shows(
    place: str, forked_commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_outputs, "BIN", f"{forked_commands}:{make_outputs.BIN}")
    block = examples()[place]
    printed = make_outputs.renewed(block)  # raises where a command fails
    assert make_outputs.masked(printed) == make_outputs.masked(block), "run `make docs-outputs`"


def test_outputs_are_compared_without_what_differs_from_run_to_run() -> None:
    shown = "run 20261118T201443-105c13 of 2026-11-18 20:14 UTC: 1.00 s ±0.01 %, 23.8 MiB\n x   y\n ───────"
    other = "run 20261119T081500-0a5c13 of 2026-11-19 08:15 UTC: 1 min 30 s ±2 %, 1,024 GiB\n x  y\n ────"
    assert make_outputs.masked(shown) == make_outputs.masked(other)
    for words in ("is faster", "1.00 s left", "b16/device", "--budget 3s"):
        assert make_outputs.masked(words) != make_outputs.masked(words.replace("s", "z").replace("b16", "c16"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("$ printf 'a 1\\nb\\n'\na 2\nb\n", "$ printf 'a 1\\nb\\n'\na 1\nb\n"),
        ("$ printf 'a\\nb 1\\nc\\n'\n…\nb 2\nc\n", "$ printf 'a\\nb 1\\nc\\n'\n…\nb 1\nc\n"),
        ("$ printf 'a 1\\nb\\nc\\n'\na 2\n…\nc\n", "$ printf 'a 1\\nb\\nc\\n'\na 2\n…\nc\n"),
        ("$ printf 'a\\nb\\nc\\n'\nz\n…\nc\n", "$ printf 'a\\nb\\nc\\n'\na\nb\nc\n"),
        ("$ echo a\n", "$ echo a\n"),
        ("$ echo a\n…\n", "$ echo a\n…\n"),
    ],
    ids=["whole", "end", "parts", "parts-of-before", "none", "cut"],
)  # fmt: skip
def test_as_much_of_an_output_is_renewed_as_the_page_shows(old: str, new: str) -> None:
    assert make_outputs.renewed(old) == new


@pytest.mark.parametrize(("place", "program"), programs(), ids=[place for place, _ in programs()])
def test_every_program_runs_as_it_is_written(place: str, program: str, tmp_path: Path, store: Store) -> None:
    (tmp_path / "train.py").write_text(program)
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mldyno: train.py: " in done.stderr
    assert [record.case.id for record in store.stream(Query())] == ["train.py/tracked/cpu"]


def test_the_readme_begins_with_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert "make bench" in first_screen
    assert "make test" in first_screen


def test_the_layers_in_the_architecture_are_those_of_the_contract() -> None:
    contract = (ROOT / "pyproject.toml").read_text().partition("\nlayers = [\n")[2].partition("]")[0]
    layers = re.findall(r'"(.+)"', contract)
    page = (ROOT / "docs" / "architecture.md").read_text().partition("\n## The layers\n")[2]
    rows = re.findall(r"^\| \d+ \| (.+?) \| [^|`]+ \|$", page, re.MULTILINE)
    assert len(layers) > 5
    assert [row.replace("`", "").replace("\\|", "|") for row in rows] == layers


def test_there_are_examples_to_run() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize("path", [*PAGES, *(ROOT / "src").rglob("*.py")], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_or_module_names_a_path_of_a_machine(path: Path) -> None:
    assert not re.search(r"/(work|root|home/\w+|opt/wheels)/", path.read_text())
