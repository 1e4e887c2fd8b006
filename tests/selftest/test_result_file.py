"""The self-test's result as a file: whole or not at all, documented, and with no name of host or user in it."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from mldyno.api import examining
from mldyno.errors import MldynoError
from mldyno.messages import FrameworkFacts, FrameworksProbed
from mldyno.records import Device, Fact, Machine
from mldyno.runner.events import Interrupted
from mldyno.selftest import result_file, table
from mldyno.selftest.measures import Measure, Process, SeriesKind
from mldyno.selftest.result_file import Installed, SelftestResult
from mldyno.views.records import replay_lines

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
    software: Installed = {"python": "3.11", "frameworks": {"torch": {"versions": {"torch": "2.13.0"}, "threads": 8}}}
    processes = (Process("torch", ["device", "memory"], "failed: it was ended by SIGABRT", ["the driver is gone"]),)
    tested = SelftestResult("mps", ("torch",), True, 12.34, machine, software, tuple(measures), processes)
    result_file.write(str(path), result_file.document(tested))
    return json.loads(path.read_text(encoding="utf-8"))


def test_it_holds_the_measures_with_raw_values_and_what_was_found(tmp_path: Path) -> None:
    found = written(tmp_path / "result.json", MEASURES)
    assert (found["schema"], found["kind"], found["device"], found["seconds"]) == (2, "mldyno selftest", "mps", 12.3)
    assert found["measures"][0]["raw"] == [{"one": 1.0, "two": None}]
    assert set(found["measures"][1]) == {field.name for field in fields(Measure)}
    assert found["measures"][1]["cells"][0]["name"] == "a"
    assert found["machine"]["devices"][0]["title"] == "M3"
    finding = {"measure": 25, "framework": "", "finding": "waiting: 20 %, the target is >= 95 %", "why": "why"}
    assert found["findings"] == [finding]
    assert found["processes"][0]["printed"] == ["the driver is gone"]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_measure_of_nothing_is_no_number() -> None:
    (found,) = result_file.findings([Measure(29, "identical code", 0.0, None, "<= 5 %", False, 0, note="it was lost")])
    assert found == {
        "measure": 29,
        "framework": "",
        "finding": "identical code: nothing was measured",
        "why": "it was lost",
    }


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


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    written(path, MEASURES)
    tested = result_file.read(str(path))
    assert (tested.device, tested.frameworks, tested.seconds) == ("mps", ("torch",), 12.3)
    assert tested.measures == (replace(MEASURES[0], raw=({"one": 1.0, "two": None},)), MEASURES[1])
    assert tested.processes[0].ended == "failed: it was ended by SIGABRT"


def test_a_file_of_schema_1_is_read_with_its_framework_and_its_failures(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    found = written(path, [MEASURES[0], replace(MEASURES[1], note="no answer for 180 s")])
    for measure in found["measures"]:
        del measure["framework"], measure["failure"]
    found |= {"schema": 1, "framework": "torch", "software": {"python": "3", "versions": {"torch": "2"}, "threads": 8}}
    del found["frameworks"], found["processes"]
    path.write_text(json.dumps(found))
    tested = result_file.read(str(path))
    assert (tested.frameworks, tested.processes) == (("torch",), ())
    assert tested.software["frameworks"] == {"torch": {"versions": {"torch": "2"}, "threads": 8}}
    assert [(measure.framework, measure.failure) for measure in tested.measures] == [
        ("torch", ""), ("torch", "no answer for 180 s"),
    ]  # fmt: skip


GOOD = {"schema": 2, "kind": "mldyno selftest", "measures": []}
STRANGE = {
    "no JSON": b"\xff", "no object": b"[1]", "a number": b"3", "deep": b"[" * 100_000, "nothing": b"",
    "another kind": json.dumps({**GOOD, "kind": "x"}).encode(), "no measures": json.dumps(GOOD).encode(),
    "no schema": json.dumps({**GOOD, "schema": "2"}).encode(), "true": json.dumps({**GOOD, "schema": True}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_result_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "strange.json"
    path.write_bytes(STRANGE[name])
    with pytest.raises(MldynoError, match=r"^[^\n]*strange.json: this is no result of `mldyno selftest --export`.$"):
        result_file.read(str(path))


def test_a_result_that_is_newer_too_long_or_not_there_is_refused_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**GOOD, "schema": 3, "mldyno": "9.9\n"}))
    with pytest.raises(MldynoError, match=r"a newer mldyno \(9.9 \); update this one"):
        result_file.read(str(path))
    monkeypatch.setattr(result_file, "LONGEST_FILE", 10)
    with pytest.raises(MldynoError, match=r"longer than 10\.0 B"):
        result_file.read(str(path))
    with pytest.raises(MldynoError, match="No such file or directory"):
        result_file.read(str(tmp_path / "none.json"))
    with pytest.raises(MldynoError, match="no regular file"):
        result_file.read("/dev/zero")


def test_a_place_that_can_not_be_written_to_is_told(tmp_path: Path) -> None:
    result_file.check_place(str(tmp_path / "result.json"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MldynoError, match="No such file or directory; nothing was measured"):
        result_file.check_place(str(tmp_path / "none" / "result.json"))
    with pytest.raises(MldynoError, match="this is a folder"):
        result_file.check_place(str(tmp_path))


def test_an_interrupted_selftest_leaves_the_measures_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"

    def interrupted(*_: Any) -> Iterator[Measure]:
        yield MEASURES[0]
        raise KeyboardInterrupt

    probed = FrameworksProbed("3.11", {"torch": FrameworkFacts(versions={"torch": "2.13.0"})})
    monkeypatch.setattr(examining, "probe", lambda *_: probed)
    monkeypatch.setattr(table, "run", interrupted)
    with pytest.raises(Interrupted, match=rf"^ended by Ctrl-C; {path} holds the measures so far \(1\)\.$"):
        list(examining.selftest(export=str(path)))
    tested = result_file.read(str(path))
    assert (tested.complete, [measure.id for measure in tested.measures]) == (False, [24])
    assert "it was interrupted: further measures were not tried" in replay_lines(tested, [])


def test_a_selftest_that_is_interrupted_before_its_first_measure_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Iterator[Measure]:
        raise KeyboardInterrupt
        yield MEASURES[0]

    monkeypatch.setattr(examining, "probe", lambda *_: FrameworksProbed("3.11", {}))
    monkeypatch.setattr(table, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(examining.selftest(export=str(tmp_path / "result.json")))
    assert [*tmp_path.glob("*.json"), *tmp_path.glob("*.part")] == []
