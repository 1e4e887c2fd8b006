"""What a shell completes: names that there are, as it can take them; quietly, and without touching anything."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.views.report.made_records import BENCH, record

from mldyno.records import Case
from mldyno.store import Store

Mldyno = Callable[..., tuple[int, str, str]]
MAIN = """
import sys
from mldyno.cli import main
try:
    main()
finally:
    heavy = [name for name in ("torch", "numpy", "rich", "altair") if name in sys.modules]
    assert not heavy, heavy
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str, mldyno: Mldyno) -> None:
    code, out, _ = mldyno("completion", shell)
    assert code == 0
    assert "_MLDYNO_COMPLETE" in out
    assert "read type" not in out, "bash would take the backslashes out of names"


def completed(words: str, current: str, shell: str = "bash") -> list[str]:
    """What a shell would offer at this point; nothing else is printed, and nothing heavy is imported."""
    place = current if shell == "fish" else str(len(words.split()) + 1)
    environment = {**os.environ, "_MLDYNO_COMPLETE": f"{shell}_complete", "COMP_WORDS": f"mldyno {words}{current}",
                   "COMP_CWORD": place}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", MAIN], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_completion_offers_commands_workloads_suites_and_values() -> None:
    assert completed("", "com") == ["compare", "completion"]
    assert completed("run ", "resnet5") == ["resnet50"]
    assert completed("run ", "roof") == ["roofline"]
    assert completed("run mlp --mode ", "tr") == ["train"]


@pytest.fixture
def kept(store: Store) -> Store:
    """A store with a workload and a machine of its own, and one with a name that nobody can type."""
    for name in ("Ada's laptop (old) $(reboot)", "\x1b[2J\nAda"):
        store.append([record(Case("their-model", batch=8), 2e-3, replace(BENCH, name=name))])
    store.close()
    return store


@pytest.mark.parametrize("words", ["compare ", "compare mlp ", "table ", "table mlp ", "show ", "report "])
def test_what_reads_the_store_offers_its_workloads_and_machines_and_the_published_ones(words: str, kept: Store) -> None:
    names = ["their-model", "Ada's laptop (old) $(reboot)", "this-machine", "resnet50", "NVIDIA V100 SXM2 16GB"]
    offered = completed(words, "", "fish")
    assert [name for name in names if offered.count(name) != 1] == []
    assert all(name.isprintable() for name in offered)


def test_capitals_do_not_matter(kept: Store) -> None:
    assert completed("table ", "ada", "fish") == ["Ada's laptop (old) $(reboot)"]


def test_bash_gets_names_as_they_are_typed_there(kept: Store) -> None:
    assert completed("table ", "Ada") == [r"Ada\'s\ laptop\ \(old\)\ \$\(reboot\)"]
    assert completed("table ", r"M1\ Mac") == [r"M1\ Mac\ mini"]


def test_a_store_named_before_is_the_one_that_is_looked_into(kept: Store, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    kept.path.rename(other)
    assert completed("show ", "their", "fish") != ["their-model"]
    assert completed(f"show --store {other} ", "their", "fish") == ["their-model"]


def test_where_no_name_begins_so_the_shell_offers_files() -> None:
    assert completed("table ", "no-such-", "fish") == ["no-such-"]


@pytest.mark.parametrize(
    "words", ["bench ", "run --nothing ", "table --rows ", "list nothing ", "--plain ", "show a b "]
)
def test_nothing_is_said_where_nothing_can_be_offered(words: str) -> None:
    completed(words, "x")


def test_a_store_that_would_have_to_be_mended_or_waited_for_is_left_alone(kept: Store, tmp_path: Path) -> None:
    with sqlite3.connect(kept.path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = kept.path.read_bytes()
    assert completed("show ", "mlp") == ["mlp"]
    assert kept.path.read_bytes() == before
    connection = sqlite3.connect(kept.path)
    connection.execute("PRAGMA user_version = 3")
    connection.execute("BEGIN EXCLUSIVE")
    assert completed("show ", "mlp") == ["mlp"]
    connection.close()
    kept.path.write_text("no store")
    assert completed("show ", "mlp") == ["mlp"]
    kept.path.unlink()
    assert completed("show ", "mlp") == ["mlp"]
    assert [path.name for path in tmp_path.iterdir()] == []
