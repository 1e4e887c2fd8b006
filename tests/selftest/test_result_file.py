"""The self-test's result as a file: whole or not at all, documented, and with no name of host or user in it."""

from __future__ import annotations

import json
import math
import platform
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mldyno.errors import MldynoError
from mldyno.records import Device, Fact, Machine
from mldyno.selftest import result_file
from mldyno.selftest.measures import Measure, SeriesKind

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
MEASURES = [
    Measure(24, "known work", 0.01, None, "<= 3 %", True, 24, "share", raw=({"one": 1.0, "two": math.inf},)),
    Measure(
        25, "waiting", 0.2, 0.1, ">= 95 %", False, 4, "share", note="why", cells=(SeriesKind("a", 1.0, None, True, 3),)
    ),
]


def written(path: Path, measures: list[Measure]) -> Any:
    facts: dict[str, Fact] = {"driver": "1.2", "uuid": "GPU-5a0f", "pci_bus": "00000000:3B:00.0"}
    machine = Machine("a Mac", devices=(Device("mps", "torch", "M3", 1 << 30, facts),))
    software = {"python": "3.11", "versions": {"torch": "2.13.0"}, "threads": 8}
    content = result_file.document(measures, "mps", "torch", True, 12.34, machine, software)
    result_file.write(str(path), content)
    return json.loads(path.read_text(encoding="utf-8"))


def test_it_holds_the_measures_with_raw_values_and_what_was_found(tmp_path: Path) -> None:
    found = written(tmp_path / "result.json", MEASURES)
    assert (found["schema"], found["kind"], found["device"], found["seconds"]) == (1, "mldyno selftest", "mps", 12.3)
    assert found["measures"][0]["raw"] == [{"one": 1.0, "two": None}]
    assert set(found["measures"][1]) == {field.name for field in fields(Measure)}
    assert found["measures"][1]["cells"][0]["name"] == "a"
    assert found["machine"]["devices"][0]["title"] == "M3"
    assert found["findings"] == [{"measure": 25, "finding": "waiting: 20 %, the target is >= 95 %", "why": "why"}]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_measure_of_nothing_is_no_number() -> None:
    (found,) = result_file.findings([Measure(29, "identical code", 0.0, None, "<= 5 %", False, 0, note="it was lost")])
    assert found == {"measure": 29, "finding": "identical code: nothing was measured", "why": "it was lost"}


def test_every_field_is_in_the_reference(tmp_path: Path) -> None:
    section = REFERENCE.read_text(encoding="utf-8").partition("#### The result file")[2].partition("\n### ")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert told == set(written(tmp_path / "result.json", MEASURES))


def test_it_names_neither_the_host_nor_the_users_folder(tmp_path: Path) -> None:
    told = Measure(22, "memory", 0.0, None, "100 %", False, 2, note=f"no file {Path.home()}/models/secret")
    path = tmp_path / "result.json"
    found = written(path, [told])
    assert found["measures"][0]["note"] == "no file ~/models/secret"
    assert str(Path.home()) not in path.read_text(encoding="utf-8")
    assert platform.node() not in path.read_text(encoding="utf-8")


def test_it_says_what_a_card_is_and_not_which_one(tmp_path: Path) -> None:
    (device,) = written(tmp_path / "result.json", MEASURES)["machine"]["devices"]
    assert (device["title"], device["facts"]) == ("M3", {"driver": "1.2"})


def test_a_place_that_can_not_be_written_to_is_told(tmp_path: Path) -> None:
    result_file.check_place(str(tmp_path / "result.json"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MldynoError, match="No such file or directory; nothing was measured"):
        result_file.check_place(str(tmp_path / "none" / "result.json"))
    with pytest.raises(MldynoError, match="this is a folder"):
        result_file.check_place(str(tmp_path))
