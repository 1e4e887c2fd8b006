"""One picture to post, 1200 by 630: the machine, the headlines, a chart, and the command to run it again."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from mldyno.analysis.rerun import rerun_command
from mldyno.units import count, show_bytes
from mldyno.views.charts import LIGHT, for_picture
from mldyno.views.report.about import best_headlines, figure_of
from mldyno.views.report.page import templates
from mldyno.views.report.parts import Figure
from mldyno.views.report.speeds import bar_charts
from mldyno.views.report.subject import Subject, label, work_name
from mldyno.views.sentences import shown_time, trust

WIDTH, HEIGHT = 1200, 630
ROOM = (560, 335)  # for the chart
CHART_WIDTH = 400  # as it is drawn; then it is made as large as there is room
MAX_BARS = 9
LETTER = 0.58  # of a letter's size: how wide it is on average


def card(subject: Subject) -> bytes:
    """The card as PNG."""
    import vl_convert

    picture: bytes = vl_convert.svg_to_png(card_svg(subject), scale=1.0)
    return picture


def card_svg(subject: Subject) -> str:
    """The card as SVG; whatever it says is escaped."""
    names = [machine.name for machine in subject.machines]
    title = " / ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    command = _command(subject)
    text: str = templates().get_template("card.svg").render(
        width=WIDTH, height=HEIGHT, colours=LIGHT, title=wrapped(title, 46, 1080, 2), facts=_facts(subject),
        figures=[_lines(figure) for figure in _figures(subject)], chart=_chart(subject),
        command=wrapped(f"$ {command}", 20, 1020, 2) if command else [], fake=subject.fake,
    )  # fmt: skip
    return text


def _command(subject: Subject) -> str:
    """The command that gives the first headline again; empty where there is none."""
    headlines = best_headlines(subject)
    if not headlines:
        return next(iter(subject.commands), "")
    return rerun_command([side for each in headlines[0].mean.comparisons for side in (each.base, each.other)])


def wrapped(text: str, size: int, width: int, most: int) -> list[str]:
    """The text in lines of so many pixels, in letters of a size; what does not fit ends in an ellipsis."""
    letters = int(width / (size * LETTER))
    return textwrap.wrap(text, letters, max_lines=most, placeholder=" …") or [""]


def _facts(subject: Subject) -> str:
    machine = subject.machines[0]
    if len(subject.machines) > 1:
        return f"{len(subject.machines)} machines"
    software = next((outcome.records[0].software.versions for outcome in subject.outcomes), {})
    parts = [f"{machine.system} {machine.arch}" if machine.system != "unknown" else "",
             count(machine.cores, "core") if machine.cores else "",
             show_bytes(machine.memory) if machine.memory else "",
             *(f"{name} {version}" for name, version in list(software.items())[:2])]  # fmt: skip
    return ", ".join(filter(None, parts))


def _figures(subject: Subject) -> list[Figure]:
    """The two headlines that matter most and are sure; without any, the time of the first case that has one."""
    figures = [figure_of(headline, subject) for headline in best_headlines(subject)[:2] if headline.sure]
    if figures:
        return figures
    for outcome in subject.outcomes:
        if outcome.step is not None:
            about = f"{work_name(outcome.case)}, {label(outcome.case, ('batch', 'seq', 'precision', 'device'))}"
            time, _, error = shown_time(outcome.step).partition(" ±")
            return [Figure(about, time, f"a step{f', ±{error}' if error else ''}", trust(outcome))]
    return [Figure("no number", "-", "no case has a time", "")]


def _lines(figure: Figure) -> dict[str, Any]:
    """The texts of a figure in lines that fit."""
    return {"number": figure.number, "says": wrapped(figure.says, 23, 560, 1)[0],
            "about": wrapped(figure.about, 24, 500, 2), "source": wrapped(figure.source, 18, 500, 1)[0]}  # fmt: skip


def _chart(subject: Subject) -> str:
    """The first chart of times or speed-ups, cut to what fits, as an SVG to stand within the card."""
    import vl_convert

    chart = next(bar_charts(subject, MAX_BARS), None)
    if chart is None:
        return ""
    svg: str = vl_convert.vegalite_to_svg(for_picture(chart.spec, chart.title, CHART_WIDTH))
    width, height = (float(size) for size in re.findall(r' (?:width|height)="([0-9.]+)"', svg)[:2])
    larger = min(ROOM[0] / width, ROOM[1] / height)
    sized = f'width="{width * larger}" height="{height * larger}"'
    return re.sub(r'width="[0-9.]+" height="[0-9.]+"', f'x="590" y="200" {sized}', svg, count=1)
