"""The published figures: machines of their own, with what was withdrawn or does not fit marked as such."""

from __future__ import annotations

from collections import Counter

import pytest

from mldyno.store import figures

M1_MAX = "M1 Max 10-core CPU 32-core GPU 32GB"


def test_every_published_machine_has_its_sources_and_figures() -> None:
    publications = figures.machines()
    assert sum(publication.figures for publication in publications.values()) == len(figures.published()) == 113
    assert (publications["M1 Mac mini"].sources, publications["M1 Mac mini"].figures) == (["m1-chips"], 7)
    assert {source for publication in publications.values() for source in publication.sources} == {
        "m2-vs-intel", "apple-silicon-bert", "m1-vs-rtx", "m1-chips",
    }  # fmt: skip


def test_marks_come_with_their_reason_and_the_cases_they_are_of() -> None:
    publications = figures.machines()
    ((mark, reason), cases), *more = publications[M1_MAX].marked.items()
    assert (mark, len(cases), more) == ("superseded", 12, [])
    assert reason.startswith("withdrawn by its author ten days later")
    assert publications["M1 Mac mini"].marked == {
        ("suspect", "the same author measured 44 s on an M1 for the same work elsewhere"):
            ["resnet50/infer/torch/cpu/fp32/b32/device"],
    }  # fmt: skip
    marked = Counter(
        mark for publication in publications.values() for (mark, _), cases in publication.marked.items() for _ in cases
    )
    assert marked == {"superseded": 12, "suspect": 4}


def test_what_was_withdrawn_is_left_out_whether_or_not_it_was_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    withdrawn = [r for r in figures.published() if ("superseded" in dict(figures.marks(r)))]
    assert len(withdrawn) == 12
    assert not {record.id for record in figures.newest()} & {record.id for record in withdrawn}
    monkeypatch.setattr(figures, "published", lambda: tuple(withdrawn))
    assert figures.newest() == []


def test_what_is_suspect_stays() -> None:
    assert sum("suspect" in dict(figures.marks(record)) for record in figures.newest()) == 4
