"""Commands and models of the user's own are shown as they were typed, and found by the same words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.test_sqlite import a_record

from mldyno import api, sources
from mldyno.axes import Case, unstated
from mldyno.plan import for_command, from_text
from mldyno.records import Record, seal
from mldyno.store import Query, Store
from mldyno.store.transfer import private_copy
from mldyno.views.titles import case_name

Mldyno = Callable[..., tuple[int, str, str]]
PYTHON = "/home/me/venv/bin/python sk.py 20"


def timed(command: str, **facts: str) -> Record:
    """The record of a command, as a run makes it."""
    case = unstated(sources.name_of(command), "command")
    return seal(replace(a_record(), case=case, facts={"command": command, "item": "run", **facts}))


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_TYPED", {})


@pytest.fixture
def stored(store: Store) -> Store:
    store.append([timed("ls /"), timed(PYTHON), seal(replace(a_record(), case=Case("hf:org:name@0a1b2c3d", batch=2)))])
    store.close()
    sources._TYPED.clear()
    return store


@pytest.mark.parametrize("typed", ["ls /", PYTHON])
@pytest.mark.parametrize("words", [("table",), ("show",), ("history",), ("table", "--format", "markdown")])
def test_a_command_is_found_and_shown_as_it_was_typed(
    typed: str, words: tuple[str, ...], stored: Store, mldyno: Mldyno
) -> None:  # fmt: skip
    code, out, _ = mldyno(words[0], typed, *words[1:])
    assert code == 0
    assert typed in out
    assert sources.name_of(typed) not in out


def test_a_comparison_a_removal_and_a_report_show_it_so_too(
    stored: Store, mldyno: Mldyno, tmp_path: Path
) -> None:  # fmt: skip
    assert mldyno("compare", "ls /", PYTHON)[1].startswith(f"{PYTHON} looks 1.00x slower than ls /")
    assert mldyno("report", "--out", str(tmp_path / "report.html"))[0] == 0
    page = (tmp_path / "report.html").read_text()
    assert PYTHON in page
    assert ":home:me" not in page
    code, out, _ = mldyno("remove", PYTHON, "--yes")
    assert code == 0
    assert f"  {PYTHON}: " in out
    assert len(list(stored.stream(Query()))) == 2


def test_a_model_of_the_hub_has_its_slash(stored: Store, mldyno: Mldyno) -> None:
    for text in ("hf:org/name", "hf:org/name@0a1b2c3d", "hf:org/name@0a1b2c3d/train/torch/cpu/fp32/b2/device"):
        code, out, _ = mldyno("history", text)
        assert code == 0
        assert "  hf:org/name@0a1b2c3d/train/torch/cpu/fp32/b2/device  " in out
    assert "hf:org/name@0a1b2c3d" in mldyno("table", "hf:org/name")[1]


def test_ids_records_and_json_stay_what_they_are(stored: Store, mldyno: Mldyno) -> None:
    (record,) = api.show("ls /", stored)
    assert (record.case.workload, record.case.id) == ("ls :", "ls :/command/cpu")
    (content,) = json.loads(mldyno("show", "ls /", "--json")[1])["records"]
    assert content == json.loads(timed("ls /").text)
    (row,) = json.loads(mldyno("history", "ls /", "--json")[1])["records"]
    assert row["case"] == "ls :/command/cpu"


def test_a_record_without_the_words_is_shown_by_its_name(store: Store, mldyno: Mldyno) -> None:
    old = seal(replace(timed(":"), facts={}, case=unstated("ls :old", "command")))
    store.append([old, private_copy(timed("ls /secret"))])
    assert "  ls :old  " in mldyno("history", "ls /old")[1]
    assert "secret" not in mldyno("history")[1]


def test_no_record_gives_another_workload_its_words(store: Store) -> None:
    fact = seal(replace(timed("ls /"), case=unstated("rm :", "command")))
    own = seal(replace(a_record(), facts={"command": "rm -rf /"}))
    store.append([fact, own])
    assert [case_name(record.case) for record in store.stream(Query())] == [
        "rm :", "mlp/train/torch/cpu/fp32/b8/device",
    ]  # fmt: skip


def test_a_plan_knows_the_words_before_there_is_a_record() -> None:
    plan = for_command(["ls", "/tmp", "--", "ls", "/"])
    assert [case_name(case) for case in plan.cases] == ["ls /tmp", "ls /"]
    sources._TYPED.clear()
    assert [case_name(case) for case in from_text(plan.text()).cases] == ["ls /tmp", "ls /"]


@pytest.mark.parametrize("words", ["python sk.py 20", "/usr/bin/python sk.py 20", "python sk.py 30"])
def test_words_that_name_nothing_get_the_command_that_is_most_alike(
    words: str, stored: Store, mldyno: Mldyno
) -> None:  # fmt: skip
    for command in ("compare", "table", "show", "history", "remove"):
        assert mldyno(command, words) == (
            2, "", f"mldyno: nothing is called '{words}'. Did you mean '{PYTHON}'? "
            "`mldyno history` lists what there is.\n"
        )  # fmt: skip


def test_a_command_that_nothing_is_like_gets_no_machine_for_it(store: Store, mldyno: Mldyno) -> None:
    store.append([a_record()])
    code, _, err = mldyno("compare", "python sk.py 20")
    assert code == 2
    assert "Xeon" not in err.partition("Possible:")[0]


def test_the_shell_completes_commands_as_they_were_typed(stored: Store) -> None:
    assert stored.workloads_as_typed()[:3] == [PYTHON, "hf:org/name@0a1b2c3d", "ls /"]
