"""Whose a record is: a stranger's never stands in for one of this machine, whatever its machine is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import OWN_KEY, OWN_SECRET
from tests.views.report.made_records import BENCH, record

from mldyno import api
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Machine, Record, Run, Series, seal
from mldyno.results import ResultTable
from mldyno.runner.forecast import forecast
from mldyno.runner.warnings import INTERRUPTED
from mldyno.store import Query, Store
from mldyno.store.selection import LEFT_OUT

THEIR_KEY, THIRD_KEY = "a1" * 16, "b2" * 16
PLAN = api.make_plan(["mlp"], {"mode": "infer", "framework": "fake"}, {"repeats": 1})


@pytest.fixture
def mine(store: Store) -> Record:
    """What this machine has measured."""
    made = record(PLAN.cases[0], 0.00128, replace(BENCH, name="test bench", key=OWN_KEY), wall_time=1.0)
    store.append([made])
    return made


def as_if_from(machine: Machine, mine: Record, folder: Path, name: str = "theirs.jsonl", run: str = "theirs") -> str:
    """A file with the same case, measured later on another machine, and much faster."""
    fast = (Series("step_time", "s", (0.0001,) * 60),)
    theirs = replace(mine, machine=machine, series=fast, created="2026-01-02T00:00:00Z", run=Run(run))
    (folder / name).write_text(seal(theirs).text + "\n")
    return str(folder / name)


def columns(store: Store) -> list[str]:
    return [str(col[0]) for col in api.table("mlp/fake", cols=["machine"], store=store).col_keys]


def of_this_machine(store: Store) -> list[str]:
    return [record.id for record in api.history("this-machine", store=store)]


def test_a_stranger_with_a_machine_of_the_same_name_is_another_machine(
    mine: Record, store: Store, tmp_path: Path
) -> None:
    file = as_if_from(replace(mine.machine, key=THEIR_KEY), mine, tmp_path)
    api.import_([file], store)
    assert columns(store) == ["test bench", "test bench (imported)"]
    assert of_this_machine(store) == [mine.id]
    (comparison,) = api.compare("this-machine", "test bench (imported)", store=store)
    assert (comparison.base.machine, comparison.other.machine) == ("test bench", "test bench (imported)")
    (comparison,) = api.compare("this-machine", file, store=store)
    assert comparison.other.machine == "test bench (theirs.jsonl)"


@pytest.mark.parametrize("key", [OWN_KEY, None], ids=["with my key", "without a key"])
def test_what_was_imported_is_told_from_what_was_measured_whatever_it_says_of_itself(
    key: str | None, mine: Record, store: Store, tmp_path: Path
) -> None:
    api.import_([as_if_from(replace(mine.machine, key=key), mine, tmp_path, run=mine.run.id)], store)
    assert columns(store) == ["test bench", "test bench (imported)"]
    assert of_this_machine(store) == [mine.id]


def test_two_strangers_with_machines_of_one_name_are_told_apart(mine: Record, store: Store, tmp_path: Path) -> None:
    files = [
        as_if_from(replace(mine.machine, name="Apple M2", key=key), mine, tmp_path, f"{key[:2]}.jsonl")
        for key in (THEIR_KEY, THIRD_KEY)
    ]
    api.import_(files, store)
    assert columns(store) == ["Apple M2 [a1a1] (imported)", "Apple M2 [b2b2] (imported)", "test bench"]
    assert [record.machine.key for record in api.show("machine=b2b2", store=store)] == [THIRD_KEY]
    with pytest.raises(UsageError, match=r"could be any of these machines: Apple M2 \[a1a1\] \(imported\)"):
        api.show("Apple M2", store=store)
    texts = {record.text for record in store.stream(Query(heads=False)) if record.imported_from}
    assert all('"name":"Apple M2"' in text for text in texts), "records are passed on as they were written"


def test_a_store_that_came_from_another_machine_is_not_this_ones(mine: Record, store: Store) -> None:
    theirs = seal(replace(mine, machine=replace(mine.machine, key=THEIR_KEY), run=Run("theirs")))
    other = Store(store.path.with_name("copied.sqlite"))
    other.append([theirs])
    assert columns(other) == ["test bench"]
    assert of_this_machine(other) == []
    other.append([mine])
    assert columns(other) == sorted([f"test bench [{OWN_KEY[:4]}]", "test bench [a1a1]"])
    assert of_this_machine(other) == [mine.id]


def test_what_bears_the_key_of_before_is_still_this_machines(mine: Record, store: Store, tmp_path: Path) -> None:
    """Before keys were secrets, MLDYNO_MACHINE_KEY itself, or the file machine-key, was in records."""
    before = seal(
        replace(mine, machine=replace(mine.machine, key=OWN_SECRET), run=Run("old"), created="2025-01-01T00:00Z")
    )
    other = seal(replace(before, case=replace(before.case, batch=99)))
    store.append([before, other])
    assert columns(store) == ["test bench"]
    assert sorted(of_this_machine(store)) == sorted([mine.id, before.id, other.id])
    assert {record.id for record in store.stream(Query())} == {mine.id, other.id}, "the newest of each case"
    theirs = as_if_from(replace(mine.machine, key=OWN_SECRET), mine, tmp_path)
    api.import_([theirs], store)
    assert columns(store) == ["test bench", "test bench (imported)"], "who imports it is still told apart"


def test_what_older_versions_measured_here_is_still_this_machines(mine: Record, store: Store) -> None:
    before = seal(
        replace(mine, machine=replace(mine.machine, key=None), created="2025-01-01T00:00:00Z", run=Run("old"))
    )
    store.append([before])
    assert columns(store) == ["test bench"]
    assert of_this_machine(store) == [mine.id, before.id]


def test_a_forecast_takes_only_what_this_machine_has_measured(mine: Record, store: Store, tmp_path: Path) -> None:
    before = forecast(PLAN, store)
    assert before[0].known
    slow = replace(mine, facts={**mine.facts, "wall_time": 9999.0})
    api.import_([as_if_from(replace(mine.machine, key=THEIR_KEY), slow, tmp_path)], store)
    assert forecast(PLAN, store) == before
    empty = Store(tmp_path / "empty.sqlite")
    api.import_([str(tmp_path / "theirs.jsonl")], empty)
    assert not forecast(PLAN, empty)[0].known


def test_a_machine_that_has_only_interrupted_records_is_found(mine: Record, store: Store) -> None:
    other = Store(store.path.with_name("other.sqlite"))
    other.append([seal(replace(mine, warnings=(INTERRUPTED,)))])
    assert len(of_this_machine(other)) == 1


# -- what is removed ------------------------------------------------------------------------------


def test_ids_runs_machines_files_and_filters_are_removed(mine: Record, store: Store, tmp_path: Path) -> None:
    file = as_if_from(replace(mine.machine, name="other", key=THEIR_KEY), mine, tmp_path)
    for word in (file, "theirs.jsonl", "other", "theirs", "mlp/machine=other", "imported_from=theirs.jsonl"):
        api.import_([file], store)
        assert api.remove(word, store=store) == 1, word
        assert [record.id for record in store.stream(Query(heads=False))] == [mine.id]
    assert api.remove(mine.id[:8], store=store) == 1
    with pytest.raises(MldynoError, match="nothing stored for"):
        api.remove(mine.id, store=store)


def test_two_words_for_one_record_remove_it_once(mine: Record, store: Store) -> None:
    assert api.remove(mine.id, f"run={mine.run.id}", store=store) == 1


def test_published_figures_can_not_be_removed(mine: Record, store: Store) -> None:
    with pytest.raises(MldynoError, match="published figures only, which ship with mldyno and can't be removed"):
        api.remove("M1 Mac mini", store=store)
    assert api.remove("mlp", store=store) == 1


def test_who_says_no_loses_nothing(mine: Record, store: Store) -> None:
    assert api.remove(mine.id, store=store, confirm=lambda removal: len(removal.records) != 1) == 0
    assert of_this_machine(store) == [mine.id]


def test_two_machines_of_one_name_in_one_file_are_told_apart(mine: Record, store: Store, tmp_path: Path) -> None:
    files = [
        Path(as_if_from(replace(mine.machine, key=key), mine, tmp_path)).read_text() for key in (OWN_KEY, THEIR_KEY)
    ]
    (tmp_path / "both.jsonl").write_text("".join(files))
    table = api.table(str(tmp_path / "both.jsonl"), cols=["machine"], store=store)
    assert [col[0] for col in table.col_keys] == sorted([f"test bench [{OWN_KEY[:4]}]", "test bench [a1a1]"])


# -- rehearsals -----------------------------------------------------------------------------------


@pytest.fixture
def real(mine: Record, store: Store) -> Record:
    """The same case as if it was measured, beside the rehearsal, which is newer."""
    case = replace(mine.case, framework="torch")
    made = seal(replace(mine, case=case, run=Run("real"), created="2025-12-01T00:00:00Z"))
    store.append([made])
    return made


def frameworks(table: ResultTable) -> set[str]:
    return {cell.outcome.case.framework for cell in table.cells.values() if not cell.outcome.published}


def test_rehearsals_do_not_stand_beside_what_was_measured_and_one_line_says_so(
    mine: Record, real: Record, store: Store
) -> None:
    lines: list[str] = []
    assert frameworks(api.table(store=store, tell=lines.append)) == {"torch"}
    assert frameworks(api.table(["mlp", "mlp/infer"], store=store, tell=lines.append)) == {"torch"}
    assert [record.id for record in api.history(store=store, tell=lines.append)] == [real.id]
    assert [record.id for record in api.show("this-machine", store, lines.append)] == [real.id]
    with pytest.raises(MldynoError, match="nothing to compare: these are the same records"):
        api.compare("this-machine", "mlp/infer/machine=test bench", store=store, tell=lines.append)
    assert lines == [LEFT_OUT] * 5


def test_rehearsals_are_there_where_they_are_named(mine: Record, real: Record, store: Store) -> None:
    lines: list[str] = []
    assert [record.id for record in api.history("fake", store=store, tell=lines.append)] == [mine.id]
    assert [record.id for record in api.show(mine.id[:8], store, lines.append)] == [mine.id]
    assert frameworks(api.table("mlp/fake", store=store, tell=lines.append)) == {"fake"}
    assert frameworks(api.table(["mlp", "fake"], store=store)) == {"torch", "fake"}
    (comparison,) = api.compare(mine.id, real.id, store=store, tell=lines.append)
    assert comparison.other.case.framework == "torch"
    assert lines == []


def test_rehearsals_are_there_where_nothing_was_measured(mine: Record, store: Store) -> None:
    lines: list[str] = []
    assert [record.id for record in api.history(store=store, tell=lines.append)] == [mine.id]
    assert frameworks(api.table(store=store, tell=lines.append)) == {"fake"}
    assert lines == []


def test_a_file_is_read_by_the_same_rule_and_an_export_loses_nothing(
    mine: Record, real: Record, store: Store, tmp_path: Path
) -> None:
    path = str(tmp_path / "both.jsonl")
    assert api.export(path, "jsonl", store=store) == 2
    lines: list[str] = []
    assert frameworks(api.table(path, store=store, tell=lines.append)) == {"torch"}
    assert lines == [LEFT_OUT]
    assert api.remove("mlp", store=store) == 2


def test_nothing_is_said_where_nothing_was_left_out(real: Record, store: Store) -> None:
    api.remove("fake", store=store)
    lines: list[str] = []
    api.history(store=store, tell=lines.append)
    assert lines == []
