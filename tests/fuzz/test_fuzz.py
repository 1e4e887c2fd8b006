"""Whatever `import` takes, every reading command shows; `make fuzz` looks for ten minutes, here a hundred must do."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz import hunt, readers
from tests.fuzz.mutations import CHANGES, mutated, seeds

from mldyno.errors import ImportFileError
from mldyno.records import Record, canonical, content_id
from mldyno.store import Store, transfer
from mldyno.store.codec import BadRecord, decode, decode_stored
from mldyno.views.records import record_text

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.jsonl"))
ORIGINALS = seeds()
STEPS = {"metric": "step_time", "unit": "s"}
HAZARDS: dict[str, dict[str, Any]] = {
    "steps in words": {"facts": {"steps": "many"}},
    "steps as a fraction": {"facts": {"steps": 0.5}},
    "a loop of no steps": {"facts": {"steps": 0}, "series": [{"metric": "loop_time", "unit": "s", "values": [1.0]}]},
    "a loop of yes steps": {
        "facts": {"steps": True},
        "series": [{"metric": "loop_time", "unit": "s", "values": [1.0]}],
    },
    "a step that takes no time": {"series": [{**STEPS, "values": [0.0] * 20}]},
    "steps that take for ever": {"series": [{**STEPS, "values": [1e308, 1e307] * 20}]},
    "steps that take nothing": {"series": [{**STEPS, "values": [5e-324] * 20}]},
    "a step time in bytes": {"series": [{"metric": "step_time", "unit": "B", "values": [1.0] * 20}]},
    "items in words": {"facts": {"items_per_step": "all", "flops_per_step": "many", "first_step": "slow"}},
    "no items": {"facts": {"items_per_step": 0, "flops_per_step": 0, "first_step": 0}},
    "negative facts": {"facts": {"items_per_step": -1, "flops_per_step": -1.0, "first_step": -1.0, "wall_time": -1}},
    "huge facts": {"facts": {"flops_per_step": 1e308, "first_step": 1e308, "wall_time": 1e308}},
    "time in words": {"facts": {"wall_time": "abc"}},
    "graphs in words": {"facts": {"graphs": "abc", "compile_time": 1.0}},
    "no items of data": {
        "facts": {"data_items": 0, "items_per_step": 8},
        "series": [{**STEPS, "values": [0.1]}, {"metric": "data_time", "unit": "s", "values": [0.1]}],
    },
    "data in no time": {
        "facts": {"data_items": 8, "items_per_step": 8},
        "series": [{**STEPS, "values": [0.1]}, {"metric": "data_time", "unit": "s", "values": [0.0]}],
    },
    "whole numbers for samples": {"series": [{**STEPS, "values": [1, 2]}]},
    "no samples": {"series": [{**STEPS, "values": []}]},
    "nothing but what must be": {"series": [], "facts": {}, "software": {}, "checks": {}, "warnings": []},
    "a metric called as a value is": {"series": [{"metric": "throughput", "unit": "s", "values": [1.0]}]},
    "a metric of no name": {"series": [{"metric": "", "unit": "s", "values": [1.0]}]},
    "a metric of two lines": {"series": [{"metric": "a\nb", "unit": "s", "values": [1.0]}]},
    "markup": {"facts": {"note": "[red]x[/red]"}, "warnings": [{"code": "[b]", "message": "[/b]|\x1b[31m"}]},
    "an endless reason": {"status": "failed", "reason": "x" * 1_000_000},
    "an endless fact": {"facts": {"note": "x" * 1_000_000}},
    "control characters": {
        "reason": "\x1b]0;title\x07\u202e", "status": "failed",
        "software": {"versions": {"torch\n": "2\x1b[2J"}, "env": {"A\0": "\x9b"}},
    },
    "a time without a zone": {"created": "2026-01-31"},
    "a far zone": {"created": "2026-01-31T12:00:00+23:59"},
    "an interrupted run": {"warnings": [{"code": "interrupted", "message": ""}]},
}  # fmt: skip


@pytest.fixture(autouse=True)
def errors_come_out() -> Iterator[None]:
    with hunt.as_a_test():
        yield


def all_can_be_read(texts: list[str], folder: Path) -> None:
    """Read them in every way; fails with the one that can't be."""
    if culprits := hunt.at_fault(texts, folder):
        named, error = culprits
        raise AssertionError(f"can't be read: {named}") from error


def odd(name: str) -> str:
    """The text of an odd record, each of a case of its own."""
    content = {**ORIGINALS[-1], **HAZARDS[name]}
    content["case"] = {**content["case"], "batch": 1 + list(HAZARDS).index(name)}
    return canonical({**content, "id": content_id(content)})


def taken(text: str) -> bool:
    """Whether the decoder takes a text."""
    try:
        decode(text)
    except BadRecord:
        return False
    return True


def test_a_hundred_changed_records_are_refused_or_shown_in_every_way(tmp_path: Path) -> None:
    batch = hunt.batch_of(20_000, ORIGINALS)
    assert min(len(batch.taken), batch.refused) >= 20, "both ways were tried"
    all_can_be_read(batch.taken, tmp_path)


def test_what_could_not_be_shown_once_and_what_is_odd_is_refused_or_shown(tmp_path: Path) -> None:
    kept = [text for path in CORPUS for text in path.read_text(encoding="utf-8").splitlines()]
    all_can_be_read([text for text in (*kept, *map(odd, HAZARDS)) if taken(text)], tmp_path)


def test_what_an_earlier_version_took_unchecked_is_shown(tmp_path: Path) -> None:
    store = Store(tmp_path / "old.sqlite")
    unchecked = [decode_stored(odd(name)) for name in ("time in words", "graphs in words", "no items of data")]
    assert store.append(unchecked) == len(unchecked)
    store.close()
    readers.read_store(store.path, tmp_path)


REFUSED = ("steps in words", "a step that takes no time", "huge facts", "time in words", "graphs in words",
           "no items of data", "an endless reason", "an endless fact")  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_is_not_what_it_must_be_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(odd(name) + "\n", encoding="utf-8")
    with pytest.raises(ImportFileError) as refusal:
        list(transfer.read(str(path)))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 500


# -- the hunt itself -------------------------------------------------------------------------------


def test_a_seed_gives_the_same_records_every_time_and_another_gives_others() -> None:
    texts = [mutated(seed, ORIGINALS) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert all(json.loads(text)["id"] == content_id(json.loads(text)) for text in texts)


def test_every_change_changes_something() -> None:
    changed = {change.__name__: 0 for change in CHANGES}
    for seed, change in enumerate(CHANGES * 5):
        content = json.loads(json.dumps(ORIGINALS[-1 - seed]))
        change(random.Random(seed), content)
        changed[change.__name__] += content != ORIGINALS[-1 - seed]
    assert [name for name, count in changed.items() if not count] == []


def test_the_one_record_that_can_not_be_shown_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = hunt.batch_of(30_000, ORIGINALS, 20).taken
    culprit = decode(texts[5]).id

    def stumbling(record: Record) -> str:
        if record.id == culprit:
            raise ZeroDivisionError
        return record_text(record)

    monkeypatch.setattr(readers, "record_text", stumbling)
    monkeypatch.setattr(readers, "_read_tables", lambda *_: None)
    monkeypatch.setattr(readers, "_read_report", lambda *_: None)
    culprits = hunt.at_fault(texts, tmp_path)
    assert culprits is not None
    assert culprits[0] == [texts[5]]
