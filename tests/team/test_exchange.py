"""Pushing and pulling: repeated, ended at any moment, and with records of others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import OWN_KEY
from tests.submitted import HERE, MLP, THEIR_SECRET, good, key_of, machine_of
from tests.team.conftest import items_of, records_of

from mldyno import api
from mldyno.records import seal
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import with_origin
from mldyno.team import Item, Page, Place, PlaceError, Withheld, exchange, shown
from mldyno.team.table import File, Table

ALL = Query(heads=False)


def pushed(place: Place, store: Store, private: bool = False) -> exchange.Moved:
    return exchange.push(place, store, [ALL], private, lambda done, total: None)


def pulled(place: Place, store: Store, again: bool = False) -> exchange.Moved:
    return exchange.pull(place, store, again, lambda done, total: None)


@pytest.fixture
def there(tmp_path: Path) -> Store:
    """A store of somebody else."""
    return Store(tmp_path / "there.sqlite")


def test_records_travel_as_they_were_written_and_only_once(table: Table, store: Store, there: Store) -> None:
    store.append(records_of(450))
    first, again = pushed(table, store), pushed(table, store)
    assert (first.new, first.known, again.new, again.known) == (450, 0, 0, 450)
    first, again = pulled(table, there), pulled(table, there)
    assert (first.new, again.new, again.total) == (450, 0, 0)
    assert sorted(there.texts(ALL)) == sorted(store.texts(ALL))


def test_what_is_pulled_counts_as_imported_and_as_signed_by_its_machine(
    table: Table, store: Store, there: Store
) -> None:
    with machine_of(THEIR_SECRET):
        theirs = replace(HERE, key=key_of(THEIR_SECRET))
        store.append([good(MLP, 0.01, theirs)])
        pushed(table, store)
    pulled(table, there)
    (record,) = there.stream(ALL)
    assert (record.imported_from, record.proof) == (exchange.label_of(table.name), "signed")


def test_who_pushes_records_of_another_machine_signs_nothing(table: Table, store: Store, there: Store) -> None:
    theirs = replace(HERE, name="their bench", key=key_of(THEIR_SECRET))
    store.append([good(MLP, 0.01, theirs), good(MLP, 0.01, HERE)])
    pushed(table, store)
    pulled(table, there)
    assert {record.machine.key: record.proof for record in there.stream(ALL)} == {
        key_of(THEIR_SECRET): "", OWN_KEY: "signed",
    }  # fmt: skip


def test_what_was_measured_here_stays_measured_when_it_comes_back(table: Table, store: Store) -> None:
    store.append(records_of(2))
    pushed(table, store)
    assert pulled(table, store).known == 2
    assert {record.imported_from for record in store.stream(ALL)} == {""}


def test_what_was_removed_here_comes_back_only_if_asked_for(table: Table, store: Store, there: Store) -> None:
    store.append(records_of(3))
    pushed(table, store)
    pulled(table, there)
    there.remove(there.ids(ALL)[:1], lambda owner: False)
    assert (pulled(table, there).new, pulled(table, there, again=True).new) == (0, 1)


def test_without_a_filter_only_what_was_measured_here_or_by_a_fleet_is_pushed(tmp_path: Path, store: Store) -> None:
    own, fleet, theirs = records_of(3)
    store.append([own, with_origin(fleet, "fleet:mini"), with_origin(theirs, "theirs.jsonl")])
    for what, ids in ((None, {own.id, fleet.id}), ("mlp", {own.id, fleet.id}), ("theirs.jsonl", {theirs.id})):
        given: set[str] = set()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mldyno.api.team.place_at", lambda *words, given=given, **more: Listening(given))
            api.push("https://nowhere.example", what, store)
        assert given == ids


class Listening(Place):
    """A place that only hears which records it is asked about; each of `bad` is refused."""

    name = "https://listening.example"

    def __init__(self, asked: set[str], bad: Collection[str] = ()) -> None:
        self.asked, self.bad, self.taken = asked, bad, list[str]()

    def identity(self) -> str:
        return "x"

    def missing(self, ids: Collection[str]) -> set[str]:
        self.asked |= set(ids)
        return set(ids)

    def add(self, items: Sequence[Item]) -> int:
        if faults := [(item.id, "a fault") for item in items if item.id in self.bad]:
            raise Withheld(self.name, faults)
        self.taken += [item.id for item in items]
        return len(items)

    def page(self, after: int) -> Page:
        return Page([], 0)

    def pushed(self, who: str = "", most: int = 1) -> list[object]:  # type: ignore[override]
        return []

    def withdraw(self, ids: Collection[str]) -> list[str]:
        return []


def test_a_refused_record_holds_up_no_other(store: Store) -> None:
    records = records_of(250)
    store.append(records)
    place = Listening(set(), [records[7].id, records[249].id])
    moved = pushed(place, store)
    assert (moved.new, moved.refused, moved.reasons) == (248, 2, ["a fault", "a fault"])
    assert len(place.taken) == len(set(place.taken)) == 248


def test_a_simulated_record_is_never_pushed(store: Store) -> None:
    fake = seal(replace(good(), facts={**good().facts, "fake_time": True}))
    store.append([good(), fake])
    place = Listening(set())
    assert (pushed(place, store).fake, place.taken) == (1, [good().id])


def test_private_copies_are_pushed_once_too(table: Table, store: Store, there: Store) -> None:
    store.append([seal(replace(good(), reason="in /home/ada/secret/x.py")), *records_of(1)])
    assert (pushed(table, store, private=True).new, pushed(table, store, private=True).known) == (2, 2)
    pulled(table, there)
    assert all("/home/ada" not in text for text in there.texts(ALL))


class Ends(Exception):
    pass


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_push_that_was_ended_at_any_moment_is_repeated_without_loss(
    table: Table, store: Store, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(records_of(5))
    monkeypatch.setattr(exchange, "BATCH", 1)
    left = moment

    def progress(done: int, total: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exchange.push(table, store, [ALL], False, progress)
    before = len(table.page(0).items)
    moved = pushed(table, store)
    assert (moved.known, moved.new) == (before, 5 - before)


@pytest.mark.parametrize("method", ["append", "note_pulled"])
def test_a_pull_that_was_ended_is_repeated_without_loss(
    table: Table, store: Store, there: Store, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(records_of(5))
    pushed(table, store)
    monkeypatch.setattr("mldyno.team.table.PAGE_B", 1)
    with monkeypatch.context() as patch:
        calls = iter([False, False, True])
        whole = getattr(Store, method)

        def dying(self: Store, *words: object) -> object:
            if next(calls):
                raise Ends
            return whole(self, *words)

        patch.setattr(Store, method, dying)
        with pytest.raises(Ends):
            pulled(table, there)
    pulled(table, there)
    assert sorted(there.ids(ALL)) == sorted(store.ids(ALL))


def test_a_place_that_was_made_anew_is_read_from_its_beginning(tmp_path: Path, store: Store, there: Store) -> None:
    store.append(records_of(2))
    for name, new in (("one.sqlite", 2), ("two.sqlite", 0)):
        with File(tmp_path / name) as place:
            place.add_of("ada", items_of(list(store.written(ALL))))
            moved = pulled(place, there)
            assert (moved.total, moved.new) == (2, new)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://lab/db", "postgresql://lab/db"), ("postgresql://ada@lab/db", "postgresql://ada@lab/db"),
        ("postgresql://ada:pw@lab/db?password=x", "postgresql://ada:MASKED@lab/db"),
        ("postgresql://ada:p/w@lab/db", "postgresql://ada:MASKED@lab/db"),
        ("postgresql://ada:p@w@lab/db", "postgresql://ada:MASKED@lab/db"),
        ("https://lab.example:8443/mldyno#x", "https://lab.example:8443/mldyno"), ("ada:pw@lab", "ada:MASKED@lab"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url: str, name: str) -> None:
    assert shown(url) == name
    assert "pw" not in exchange.label_of(shown(url))


def test_another_kind_of_place_is_refused(store: Store) -> None:
    for url in ("ftp://lab/x", "lab", "", "sqlite:x", "file:///etc/passwd"):
        with pytest.raises(PlaceError, match="is no place for records"):
            api.push(url, store=store)


def test_a_signature_that_was_damaged_on_the_way_proves_nothing() -> None:
    (record,) = records_of(1)
    proof = transfer.signature([record.id])
    assert transfer.signed_by(proof, record) == "signed"
    for other in ("", "x", proof[:-9], proof.replace(record.id, "0" * 32), transfer.signature(["0" * 32])):
        assert transfer.signed_by(other, record) == ""
