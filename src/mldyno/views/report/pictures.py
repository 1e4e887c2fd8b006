"""The charts of a report as pictures, PNG or SVG, drawn as in the page in light colours; and the card.

The card is one picture to post, 1200 by 630: the machine, its scores or findings, and the league of machines. Its
letters are large enough to be read at half its size.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from mldyno.analysis.fleet import Group
from mldyno.analysis.rerun import rerun_commands
from mldyno.analysis.scores import Score, reference
from mldyno.files import make_folder
from mldyno.records import Record
from mldyno.temporary import atomic_file
from mldyno.units import digits
from mldyno.views.charts import BOLD, LABEL, Row, Rows
from mldyno.views.drawing import IN_PICTURE, LETTER, LIGHT, SIZE, Canvas, fitted, in_lines, room_of, templates
from mldyno.views.records import FAKE_FRAMEWORK
from mldyno.views.report.page import sections_of
from mldyno.views.report.parts import Chart
from mldyno.views.report.speeds import rated_cases, speed_rows
from mldyno.views.report.subject import Subject, subject_of_records
from mldyno.views.report.summary import kinds_of_work, league, league_rows, sentences
from mldyno.views.titles import kind_title, place_title, shared_title

SCALE = 2.0  # pixels of a PNG for each of the chart
AROUND = 20  # pixels
FONT = "Source Sans Pro"
HEAD = 52  # pixels, for the title and what is drawn

WIDTH, HEIGHT, SIDE = 1200, 630, 60
LETTERS, MEDIUM, LARGE = 28, 38, 50  # pixels of the smallest letters, and of those of a name
LARGER = LETTERS / SIZE  # times as large as in the page is the chart
MOST_ROWS = 5
MOST_HEIGHT = 152.0  # of the chart, in pixels of the page
MOST_SCORES = 2
SCORE_WIDTH = 330  # pixels


def write_pictures(records: Sequence[Record], folder: str, form: str, fleet: Sequence[Group] = ()) -> list[str]:
    """Write every chart of the page to a file, PNG or SVG; return their paths."""
    place, every = make_folder(folder), charts_of(subject_of_records(records, fleet=fleet))
    return [_write(os.path.join(place, f"{chart.id}.{form}"), drawn(chart, form)) for chart in every]


def write_card(records: Sequence[Record], path: str) -> str:
    """Write one picture to post, PNG: the machine, its scores, and the league of machines; return its path."""
    return _write(path, png(card_svg(subject_of_records(records))))


def _write(path: str, content: bytes) -> str:
    with atomic_file(path) as out:
        out.write(content)
    return path


def charts_of(subject: Subject) -> Iterator[Chart]:
    """Yield every chart of the page."""
    yield from filter(None, [league(subject)])
    for section in sections_of(subject):
        yield from (part for part in section.single_parts if isinstance(part, Chart))


def picture_svg(chart: Chart) -> str:
    """Return a chart as SVG with its title and a background."""
    inner = chart.drawing.draw(chart.drawing.widths[0], IN_PICTURE)
    title = in_lines(chart.title, inner.width / BOLD)
    head = HEAD + LABEL * (len(title) - 1)
    picture = Canvas(inner.width + 2 * AROUND, IN_PICTURE, inner.height + head + 2 * AROUND)
    picture.marks.append(f'<rect width="100%" height="100%" fill="{IN_PICTURE.colours["paper"]}"/>')
    for place, line in enumerate(title):
        picture.text(AROUND, AROUND + 13 + LABEL * place, line, colour="ink", bold=True)
    picture.text(AROUND, AROUND + head - 19, fitted(chart.about, inner.width))
    picture.marks += [f'<g transform="translate({AROUND} {AROUND + head})">', *inner.marks, "</g>"]
    return picture.svg(chart.described)


def drawn(chart: Chart, form: str) -> bytes:
    """Return a chart as a picture."""
    svg = picture_svg(chart)
    return svg.encode() if form == "svg" else png(svg, SCALE)


def png(svg: str, scale: float = 1.0) -> bytes:
    """Render an SVG with the same font everywhere; system fonts serve for letters that it lacks."""
    import font_source_sans_pro as font
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(
        svg_string=svg, zoom=scale, font_files=[font.SourceSansPro, font.SourceSansProSemibold, font.SourceSansProBold],
        font_family=FONT, sans_serif_family=FONT, monospace_family=FONT,
    ))  # fmt: skip


def card_svg(subject: Subject) -> str:
    """Return the card as SVG; all text in it is escaped."""
    across = WIDTH - 2 * SIDE
    best = max(subject.scores, key=lambda score: score.value, default=None)
    scores = [each for each in subject.scores if best and place_title(each.case) == place_title(best.case)]
    several = len({score.case.framework for score in subject.scores}) > 1
    framework = [f"In {scores[0].case.framework}"] if several else []
    lines = [*framework, f"100 is {reference().machine}"] if scores else sentences(subject)
    said = " ".join(f"{line}." for line in lines)
    said = f"{FAKE_FRAMEWORK}. {said}" if subject.fake else said
    shown = scores[:MOST_SCORES]
    left = SIDE + SCORE_WIDTH * len(shown)
    size = LARGE if room_of(subject.name, LARGE) <= across else MEDIUM
    commands = rerun_commands(subject.outcomes)
    chart = _chart(subject)
    return str(templates("report").get_template("card.svg").render(
        width=WIDTH, height=HEIGHT, side=SIDE, letters=LETTERS, colours=LIGHT,
        title=wrapped(subject.name, size, across, 1)[0], size=size, facts=wrapped(subject.facts, LETTERS, across, 1)[0],
        scores=[_score(score, SIDE + SCORE_WIDTH * place) for place, score in enumerate(shown)], left=left,
        said=wrapped(said.replace("`", ""), LETTERS, WIDTH - SIDE - left, 3),
        chart=chart.marks if chart else [], larger=LARGER, top=HEIGHT - 24 - (chart.height * LARGER if chart else 0),
        command=wrapped(f"$ {commands[0]}", LETTERS, 560, 1)[0] if len(commands) == 1 else "",
    ))  # fmt: skip


def wrapped(text: str, size: int, width: float, most: int) -> list[str]:
    """Break a text into lines of a width, both in pixels; what does not fit ends in an ellipsis."""
    letters = int(width / (size * LETTER))
    return textwrap.wrap(text, letters, max_lines=most, placeholder=" …") or [""]


def _score(score: Score, x: int) -> dict[str, Any]:
    about = fitted(f"{kind_title(score.case)}, {score.case.device}", SCORE_WIDTH, LETTERS)
    error = "" if score.half_width is None else f"±{digits(score.half_width, most=2)}"
    return {"x": x, "number": digits(score.value, score.half_width), "error": error, "about": about}


def _chart(subject: Subject) -> Canvas | None:
    """Draw the largest division of the league, else the fastest cases, without an axis."""
    divisions, rated = kinds_of_work(subject), rated_cases(subject)
    models = [line for line in rated if not line[0][0].case.own_work]
    speeds = speed_rows(subject, models or rated)
    for most in range(MOST_ROWS, 0, -1):  # a label that takes two lines leaves room for fewer rows
        if divisions:
            group: tuple[str, list[Row]] = (shared_title(divisions[0].case), league_rows(divisions[0], most))
            drawn = Rows([group], "", base=1.0).draw((WIDTH - 2 * SIDE) / LARGER, IN_PICTURE)
        elif speeds:
            drawn = Rows([("Speed", speeds[:most])], "").draw((WIDTH - 2 * SIDE) / LARGER, IN_PICTURE)
        else:
            return None
        if drawn.height <= MOST_HEIGHT:
            break
    return drawn
