"""The charts of a report as pictures, PNG or SVG: the same drawings as in the page, in the colours of the light."""

from __future__ import annotations

from collections.abc import Iterator

from mldyno.views.charts import BOLD, LABEL
from mldyno.views.drawing import IN_PICTURE, Canvas, fitted, in_lines
from mldyno.views.report.parts import Chart
from mldyno.views.report.sections import sections_of
from mldyno.views.report.subject import Subject
from mldyno.views.report.summary import league

SCALE = 2.0  # pixels of a PNG for each of the chart
AROUND = 20  # pixels
FONT = "Source Sans Pro"
HEAD = 52  # pixels, for the title and what is drawn


def charts_of(subject: Subject) -> Iterator[Chart]:
    """Every chart of the page."""
    first = league(subject)
    if first is not None:
        yield first
    for section in sections_of(subject):
        yield from (part for part in section.single_parts if isinstance(part, Chart))


def picture_svg(chart: Chart) -> str:
    """A chart that stands alone: with its title, and a ground."""
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

    picture: bytes = resvg_py.svg_to_bytes(
        svg_string=svg, zoom=scale, font_files=[font.SourceSansPro, font.SourceSansProSemibold, font.SourceSansProBold],
        font_family=FONT, sans_serif_family=FONT, monospace_family=FONT,
    )  # fmt: skip
    return picture
