"""Charts are sound XML whatever a record says, and draw what they are given where it belongs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tests.views.report.made_records import hostile, record

from mldyno.analysis.outcomes import outcomes
from mldyno.records import Case
from mldyno.store import figures
from mldyno.units import Interval
from mldyno.views.charts import NARROW, WIDE, Lines, Mark, Point, Row, Rows, Samples
from mldyno.views.drawing import IN_PAGE, IN_PICTURE, SIZE
from mldyno.views.report.page import page
from mldyno.views.report.pictures import LETTERS, card_svg, charts_of, picture_svg, wrapped
from mldyno.views.report.subject import Subject, subject_of

TOKEN = "Zq9"
HOSTILE = f"""{TOKEN}'"\\"+alert(1)+"\\]].datum.x["{{{{7*7}}}}${{x}}<b>&--></script>"""
CONTROL = "\x1b[31m\x00\x0b\x85\u202e\ufffe\ud800"


def subject(text: str) -> Subject:
    return subject_of(outcomes(hostile(text)), outcomes(figures.newest()), "2026-01-02T00:00:00Z", "0.1.0")


def letters(text: str) -> set[str]:
    """What in a text is neither printable nor a line break."""
    return {letter for letter in text if not letter.isprintable() and letter != "\n"}


@pytest.mark.parametrize("text", [HOSTILE, CONTROL])
def test_pictures_and_the_card_are_xml_whatever_a_record_says(text: str) -> None:
    whole = subject(text)
    pictures = {chart.id: picture_svg(chart) for chart in charts_of(whole)}
    assert {name.partition("-")[0] for name in pictures} == {
        "league", "speeds", "ratio", "peak", "copies", "crossover", "growth", "trace"
    }  # fmt: skip
    for svg in (*pictures.values(), card_svg(whole)):
        root = ElementTree.fromstring(svg)
        assert root.tag.endswith("svg")
        assert letters(svg) == set()
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {"svg", "g", "title", "text", "tspan", "path", "rect", "circle"}
        names = {name for element in root.iter() for name in element.attrib}
        assert not [name for name in names if name.startswith("on") or "href" in name or name == "style"]


def test_text_of_records_is_in_no_attribute_but_a_description() -> None:
    for chart in charts_of(subject(HOSTILE)):
        for width in chart.drawing.widths:
            root = ElementTree.fromstring(chart.drawing.draw(width, IN_PAGE).svg(chart.described))
            assert TOKEN in "".join(root.itertext()) + root.attrib["aria-label"]
            for element in root.iter():
                assert not [name for name, value in element.attrib.items() if TOKEN in value and name != "aria-label"]


def test_a_page_holds_no_control_characters() -> None:
    one = record(Case(f"mlp{CONTROL[:2]}", batch=8), 1e-3)
    text = page(subject_of(outcomes([one]), [], "2026-01-02T00:00:00Z", "0.1.0"), [one.text])
    shown = text.partition("<body>")[2].partition("<script")[0]
    assert "mlp\ufffd[" in shown
    assert letters(shown) == set()


def rows(**more: object) -> Rows:
    marks = [Mark(Interval(10.0, 9.0, 11.0), "10/s", "ten"), Mark(Interval(1000.0), "1,000/s", "a thousand", "s2")]
    return Rows([("Training", [Row("MLP, batch 8", marks), Row("ours", [marks[0]], strong=True)])], "items", **more)  # type: ignore[arg-type]


def test_a_row_has_its_label_its_numbers_and_what_it_says_when_pointed_at() -> None:
    for width in (WIDE, NARROW):
        root = ElementTree.fromstring(rows(legend=[("cpu", "s1"), ("gpu", "s2")]).draw(width, IN_PICTURE).svg("dots"))
        texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
        assert {"Training", "MLP, batch 8", "10/s · 1,000/s", "cpu", "gpu", "items", "100"} <= set(texts)
        titles = [element.text for element in root.iter() if element.tag.endswith("title")]
        assert titles == ["MLP, batch 8: ten", "MLP, batch 8: a thousand", "ours: ten"]


def test_nothing_is_drawn_outside_of_a_chart() -> None:
    samples = Samples([(1, False, 1, 99.0), (1, True, 5, 1.0), (2, True, 9, 1.1)], "ms a step", (0.9, 1.2))
    rising, single = (
        [Point(1, Interval(1, 0.5, 2), "one"), Point(8, Interval(5), "five")],
        [Point(1, Interval(2), "two")],
    )
    lines = Lines([("a", rising), ("b", single)], "batch", "x")
    charts = (rows(), rows(bars=True, base=1.0), rows(bars=True, base=0.0, linear=True), lines, samples)
    for chart in charts:
        for width in chart.widths:
            canvas = chart.draw(width, IN_PICTURE)
            svg = canvas.svg("a chart")
            xs = [float(x) for x in re.findall(r' c?x="(-?[0-9.]+)"', svg)]
            ys = [float(y) for y in re.findall(r' c?y="(-?[0-9.]+)"', svg)]
            assert 0 <= min(xs) <= max(xs) <= canvas.width
            assert 0 <= min(ys) <= max(ys) <= canvas.height


def test_the_letters_of_a_card_can_be_read_at_half_its_size() -> None:
    svg = card_svg(subject(""))
    sizes = [float(size) for size in re.findall(r'font-size="([0-9.]+)"', svg)]
    (larger,) = map(float, re.findall(r"scale\(([0-9.]+)\)", svg))
    assert min(size * (larger if size == SIZE else 1) for size in sizes) == pytest.approx(LETTERS)
    assert LETTERS >= 28


def test_text_of_a_card_ends_in_an_ellipsis_where_it_does_not_fit() -> None:
    assert wrapped("a b", 20, 100, 1) == ["a b"]
    assert wrapped("long words " * 20, 20, 300, 2)[-1].endswith("…")
