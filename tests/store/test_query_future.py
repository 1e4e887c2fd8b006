"""A clock that was once in 2099: what was measured then is the newest of nothing, and is named with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests import submitted
from tests.submitted import HERE, MLP, good

from mldyno import api
from mldyno.records import Record, Run, seal
from mldyno.store import Query, Store
from mldyno.store.codec import BadRecord, decode

Mldyno = Callable[..., tuple[int, str, str]]
NOW = good()
LATE = seal(replace(good(step=0.002, round_=3), created="2099-01-01T00:00:00.000Z", run=Run("r2099")))
ALONE = seal(replace(good(replace(MLP, batch=7)), created="2099-01-01T00:00:00.000Z", run=Run("r2099")))
LINE = (
    "left out: 2 records with a date in the future (2099-01-01T00:00:00.000Z): the clock was wrong; remove with: "
    f"mldyno remove {LATE.id[:10]} {ALONE.id[:10]}"
)


@pytest.fixture(params=["before", "after"])
def filled(request: pytest.FixtureRequest, store: Store) -> Store:
    """A store in which the clock was wrong before or after a record that was measured at its time."""
    for record in [NOW, LATE, ALONE] if request.param == "after" else [LATE, ALONE, NOW]:
        store.append([record])
    return store


def ids(records: list[Record]) -> list[str]:
    return [record.id for record in records]


def measured(store: Store, **equal: str) -> list[str]:
    return ids(store.select(Query(equal, provenances=("measured",))))


def test_it_is_not_the_newest_of_its_case(filled: Store) -> None:
    assert measured(filled) == [NOW.id]
    assert measured(filled, machine="test bench", workload="mlp") == [NOW.id]


def test_a_later_record_with_the_right_date_is(filled: Store) -> None:
    later = seal(replace(good(round_=1), created="2026-03-01T00:00:00Z", run=Run("r3")))
    filled.append([later])
    assert measured(filled) == [later.id]


def test_of_a_run_in_which_the_clock_was_set_the_rest_counts(filled: Store) -> None:
    same = seal(replace(good(step=0.002, round_=4), created="2026-02-01T00:00:00Z", run=replace(LATE.run, repeat=1)))
    filled.append([same])
    assert measured(filled) == [same.id]


def test_each_command_that_reads_says_what_it_leaves_out_and_how_to_remove_it(filled: Store) -> None:
    lines: list[str] = []
    for read in (api.table, api.show):
        lines.clear()
        read("mlp", store=filled, tell=lines.append)
        assert lines == [LINE]
    lines.clear()
    api.compare("mlp", by="run", store=filled, tell=lines.append)
    assert lines == [LINE]
    assert ids(api.history(store=filled))[:2] == [ALONE.id, LATE.id], "history shows it, for whoever looks"
    assert api.remove(LATE.id[:10], ALONE.id[:10], store=filled) == 2
    lines.clear()
    api.table("mlp", store=filled, tell=lines.append)
    assert lines == []


def test_what_export_and_submit_write_is_taken_elsewhere(filled: Store, tmp_path: Path) -> None:
    lines: list[str] = []
    assert api.export(str(tmp_path / "all.jsonl"), "jsonl", store=filled, tell=lines.append) == 1
    assert lines[0] == LINE
    assert api.import_([str(tmp_path / "all.jsonl")], Store(tmp_path / "other.sqlite")) == (1, 1)
    lines.clear()
    path, count = api.submit(str(tmp_path / "mine.jsonl"), store=filled, tell=lines.append)
    assert count == 1
    assert lines[0] == LINE
    assert api.check_submissions([path]) == (1, [])


@pytest.mark.parametrize("created", ["20261118T100000Z", "2026-W47-3", "2026-11-18x10:00:00", "2026-11-18T10:00:00é"])
def test_a_date_of_another_form_which_would_be_greater_than_any_is_refused(created: str) -> None:
    with pytest.raises(BadRecord, match="is not a time such as"):
        decode(seal(replace(submitted.good(machine=HERE), created=created)).text)
