"""Text of records in charts is data: nothing that Vega evaluates holds any of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.views.report.made_records import hostile, record

from mldyno.analysis.outcomes import outcomes
from mldyno.records import Case
from mldyno.store import reference
from mldyno.views.report.card import card_svg
from mldyno.views.report.page import page
from mldyno.views.report.pictures import charts_of, drawn
from mldyno.views.report.sections import sections_of
from mldyno.views.report.subject import Subject

TOKEN = "Zq9"
HOSTILE = f"""{TOKEN}'"\\"+alert(1)+"\\]].datum.x["{{{{7*7}}}}${{x}}<b>&"""
CONTROL = "\x1b[31m\x00\x0b\x85\u202e\ufffe\ud800"
Place = tuple[str, ...]
DATA = (("data", "values"), ("datasets", "values"))
TITLES = (("axis", "title"), ("axes", "title"), ("title", "text"))


def subject(text: str) -> Subject:
    return Subject(outcomes(hostile(text)), outcomes(reference.newest()), "2026-01-02T00:00:00Z", "0.1.0")


@pytest.fixture(scope="module")
def specs() -> dict[str, dict[str, Any]]:
    """Every chart of a report whose every name is hostile, by its name."""
    return dict(charts_of(sections_of(subject(HOSTILE))))


def places(content: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """All texts of a specification, names of its parts too, with their places."""
    if isinstance(content, dict):
        for name, part in content.items():
            yield (*place, "a name"), name
            yield from places(part, (*place, name))
    elif isinstance(content, list):
        for part in content:
            yield from places(part, place)
    elif isinstance(content, str):
        yield place, content


def evaluated(place: Place) -> bool:
    """Whether Vega may evaluate what stands there, as it may all but values, titles and descriptions."""
    data = place[-1] != "a name" and any(pair in pairwise(place) for pair in DATA)
    return not (data or place[-2:] in TITLES or place == ("description",))


def test_text_of_records_is_nothing_that_vega_evaluates(specs: dict[str, dict[str, Any]]) -> None:
    import vl_convert

    kinds = {name.partition("-")[0] for name in specs}
    assert kinds == {"speedup", "time", "precision", "placement", "scaling", "crossover", "peak", "published", "trace"}
    once = {name.partition("-")[0]: spec for name, spec in specs.items()}
    for kind, spec in [*specs.items(), *((kind, vl_convert.vegalite_to_vega(spec)) for kind, spec in once.items())]:
        texts = list(places(spec))
        assert kind.startswith("trace") or any(TOKEN in text for _, text in texts)
        assert [(kind, place, text) for place, text in texts if TOKEN in text and evaluated(place)] == []


def letters(text: str) -> set[str]:
    """What in a text is neither printable nor a line break."""
    return {letter for letter in text if not letter.isprintable() and letter != "\n"}


def test_pictures_and_the_card_are_xml_whatever_a_record_says() -> None:
    of_control = Subject(outcomes(hostile(CONTROL)), [], "2026-01-02T00:00:00Z", "0.1.0")
    charts = {name.partition("-")[0]: spec for name, spec in charts_of(sections_of(of_control))}
    for text in (*(drawn(charts[kind], "svg").decode() for kind in ("speedup", "crossover")), card_svg(of_control)):
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert letters(text) == set()


def test_a_page_holds_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.views.report.page.drawing_code", lambda: "")  # which takes seconds
    one = record(Case(f"mlp{CONTROL[:2]}", batch=8), 1e-3)
    text = page(Subject(outcomes([one]), [], "2026-01-02T00:00:00Z", "0.1.0"), [one.text])
    shown = text.partition("<body>")[2].partition("<script")[0]
    assert "mlp\ufffd[" in shown
    assert letters(shown) == set()
