"""A fact is one entry: what may stand in a record, what reading code may rely on, and what the docs say of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mldyno import metrics
from mldyno.metrics import DEVICE_FACTS, FACTS, LARGEST, NAMED, flaw
from mldyno.printable import LONGEST_TEXT
from mldyno.store.codec import decode

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "mldyno"
KEPT = [decode(line) for line in (ROOT / "tests/history/0.1/records.jsonl").read_text(encoding="utf-8").splitlines()]


def documented(heading: str) -> set[str]:
    """The facts in the first column of the table that follows some words in the reference."""
    table = (ROOT / "docs" / "reference.md").read_text().partition(heading)[2].partition("\n\n##")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", table.partition("|---")[2].partition("\n\n")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_fact_is_in_the_reference_and_has_an_entry() -> None:
    named = {f"NAME{end}" for end in NAMED}
    assert documented("Facts of a measured record:") | {"note"} == {*FACTS, *named}
    assert documented("### Facts of a device") == {*DEVICE_FACTS}


def reading_code() -> list[Path]:
    folders = [SOURCES / name for name in ("analysis", "views", "store", "api")]
    return [*(path for folder in folders for path in folder.rglob("*.py")), SOURCES / "runner/forecast.py",
            SOURCES / "results.py"]  # fmt: skip


@pytest.mark.parametrize("path", reading_code(), ids=lambda path: str(path.relative_to(SOURCES)))
def test_what_reads_records_asks_for_facts_that_have_an_entry_and_by_their_entry(path: Path) -> None:
    code = path.read_text()
    assert re.findall(r"(?:record|good\[0\]|records\[0\]|\br)\.facts(?:\.get\(|\[)", code) == [], "ask Record.fact"
    asked = re.findall(r"""\bfact\(["'](\w+)["']\)""", code)
    assert [name for name in asked if name not in FACTS] == []


def test_every_fact_that_was_ever_written_has_an_entry_and_fits_it() -> None:
    written = {name for record in KEPT for name in record.facts}
    assert {name for name in written if name not in FACTS and not name.endswith(tuple(NAMED))} == set()
    assert [metrics.flaws(FACTS, record.facts) for record in KEPT if metrics.flaws(FACTS, record.facts)] == []


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("wall_time", "abc", "must be a number"),
        ("wall_time", -1.0, "must be a number from 0 to 1e+09"),
        ("wall_time", 2e9, "must be a number from 0 to 1e+09"),
        ("wall_time", True, "must be a number"),
        ("wall_time", 3, ""),
        ("wall_time", None, ""),
        ("wall_time", 1e-31, "must be a number from 0 to 1e+09"),
        ("graphs", "abc", "must be a whole number"),
        ("graphs", 1.0, "must be a whole number"),
        ("data_items", 0, "must be a whole number from 1 to 1e+30"),
        ("policy_loss_first", "low", "must be a number"),
        ("fake_time", 1, "must be true or false"),
        ("item", 1, "must be text"),
        ("note", "x" * LONGEST_TEXT, ""),
        ("note", "x" * (LONGEST_TEXT + 1), "is longer than 10,000 characters"),
        ("phases", "p" * 301, "is longer than 300 characters"),
        ("of_another_version", "x", ""),
        ("of_another_version", False, ""),
        ("of_another_version", -7.5, ""),
        ("of_another_version", 10 * LARGEST, "must be a number from -1e+30 to 1e+30"),
    ],
)
def test_a_value_fits_its_entry_or_it_is_said_why_not(name: str, value: Any, reason: str) -> None:
    assert flaw(FACTS, name, value) == reason


def test_a_fact_that_is_none_of_what_it_must_be_is_not_known() -> None:
    odd = replace(KEPT[0], facts={"wall_time": "abc", "steps": 7, "of_another_version": "x"})
    assert [odd.fact(name) for name in ("wall_time", "steps", "target", "of_another_version")] == [None, 7, None, "x"]
