"""What a site shows: which machines there are, what they are called, and who is ranked where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.views.report import made_records
from tests.views.site import made_machines

from mldyno.records import Case, Machine, Record, seal
from mldyno.store import Query, Store
from mldyno.store.codec import with_origin
from mldyno.store.figures import newest
from mldyno.views.site.collection import Collection, collected, kind_of, shown_place, stems

MLP = Case("mlp", mode="infer", batch=128)


def a_record(name: str, key: str | None = None, step: float = 1e-3, case: Case = MLP, **facts: Any) -> Record:
    machine = replace(made_records.BENCH, name=name, key=key)
    return made_records.record(case, step, machine, samples=20, **facts)


def of(*records: Record) -> Collection:
    return collected(records, stems(records))


def test_each_machine_has_its_scores_by_device() -> None:
    entries = of(*made_machines.records(4)).entries
    assert [len(entry.devices) for entry in entries] == [1, 2, 1, 2]
    ryzen = entries[1]
    assert ryzen.devices == ["cpu", "cuda:0"]
    on_gpu, on_cpu = (ryzen.best(device, "train") for device in ("cuda:0", "cpu"))
    assert on_gpu is not None
    assert on_cpu is not None
    assert on_gpu.value > on_cpu.value
    assert ryzen.best("mps", "train") is None


def test_the_highest_score_comes_first_and_published_machines_last() -> None:
    collection = of(*made_machines.records(8), *newest())
    best = [max((s.value for s in entry.scores if s.case.device == device), default=0.0)
            for entry, device in collection.in_order]  # fmt: skip
    assert best == sorted(best, reverse=True)
    published = [entry.published for entry, _ in collection.in_order]
    assert published == sorted(published)
    assert any(published)


def test_machines_of_one_name_are_told_apart_as_in_the_store(store: Store) -> None:
    store.append(a_record("M2", key * 32) for key in "ab")
    records = list(store.stream(Query()))
    assert [entry.name for entry in of(*records).entries] == ["M2 [aaaa]", "M2 [bbbb]"]


def test_the_files_of_a_machine_keep_their_names_when_another_of_its_name_comes(store: Store) -> None:
    store.append([a_record("M2", "a" * 32)])
    before = set(stems(store.stream(Query())).values())
    store.append([a_record("M2", "b" * 32)])
    after = set(stems(store.stream(Query())).values())
    assert before < after
    assert len(after) == 2
    assert all(stem.startswith("m2-") for stem in after)


def test_an_older_record_without_a_key_is_of_the_machine_that_has_the_name(store: Store) -> None:
    store.append([a_record("M2", "a" * 32)])
    before = stems(store.stream(Query()))
    store.append([a_record("M2", case=replace(MLP, batch=64))])
    assert stems(store.stream(Query())) == before


def test_that_it_was_imported_is_said_only_where_it_tells_machines_apart() -> None:
    imported = with_origin(a_record("M2", "a" * 32), "theirs.jsonl")
    assert [entry.name for entry in of(imported).entries] == ["M2"]
    names = {entry.name for entry in of(imported, a_record("M2", "b" * 32)).entries}
    assert names == {"M2", "M2 (imported)"}


def test_a_published_machine_stays_apart_from_a_measured_one_of_its_name() -> None:
    theirs = newest()[0]
    entries = of(theirs, a_record(theirs.machine.name)).entries
    assert [entry.published for entry in entries] == [False, True]
    assert len({entry.stem for entry in entries}) == 2


def test_only_the_same_work_is_ranked_together_the_fastest_first() -> None:
    slow, fast = a_record("slow", step=2e-3), a_record("fast", step=1e-3)
    other = a_record("fast", case=replace(MLP, batch=64))
    compiled = a_record("compiled", step=5e-4, case=replace(MLP, compile=True))
    newer = a_record("newer", case=replace(MLP, version=2))
    rankings = of(slow, fast, other, compiled, newer).rankings
    assert [[entry.name for entry, _, _ in ranking.ranked] for ranking in rankings] == [
        ["compiled", "fast", "slow"], ["newer"], ["fast"],
    ]  # fmt: skip
    titles = ["MLP, inference, batch 128", "MLP, inference, batch 128, version 2", "MLP, inference, batch 64"]
    assert [ranking.title for ranking in rankings] == titles
    assert shown_place(rankings[0].ranked[0][1].case) == "cpu, compiled"


def test_what_failed_or_is_doubted_is_ranked_nowhere() -> None:
    failed = made_records.record(MLP, None)
    suspect = next(record for record in newest() if any(warning.code == "suspect" for warning in record.warnings))
    collection = of(failed, suspect)
    assert len(collection.entries) == 2
    assert collection.rankings == []
    assert all(collection.ranking(outcome) is None for entry in collection.entries for outcome in entry.outcomes)


@pytest.mark.parametrize(("device", "kind"), [("cuda:1", "cuda"), ("cpu", "cpu"), ("<b>", "other")])
def test_a_device_is_of_a_known_kind_or_another(device: str, kind: str) -> None:
    assert kind_of(device) == kind


def test_a_name_of_any_characters_makes_a_file_name_that_is_safe() -> None:
    records = [a_record(name) for name in ("../../etc/passwd", "CON", "ü" * 300, 'a\\b:c*?"<>|', " ", "日本")]
    names = stems(records).values()
    assert len(set(names)) == len(records)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and 12 <= len(name) <= 60 for name in names)


def test_a_machine_is_shown_as_it_was_when_last_seen() -> None:
    old = a_record("M2")
    new = replace(old, created="2027-01-01T00:00:00Z", machine=replace(old.machine, power="battery"))
    assert of(new, old).entries[0].newest.machine == new.machine
    assert isinstance(of(new).entries[0].newest.machine, Machine)


def test_a_device_that_a_machine_does_not_have_is_no_row_of_the_index() -> None:
    here = a_record("box")
    absent = replace(a_record("box", case=replace(MLP, device="cuda:0")), status="unsupported", series=())
    failed = replace(a_record("box", case=replace(MLP, device="xpu")), status="failed", series=())
    collection = of(*(seal(record) for record in (here, absent, failed)))
    assert [device for _, device in collection.in_order] == ["cpu", "xpu"]
    assert "cuda:0" in collection.entries[0].devices, "its page has the case, with the reason"
