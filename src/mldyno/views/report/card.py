"""One picture to post, 1200 by 630: the machine, its scores or what was found, and the league of machines.

Its letters are so large that it can be read at half its size.
"""

from __future__ import annotations

import textwrap
from typing import Any

from mldyno.analysis.scores import Score, reference
from mldyno.units import digits
from mldyno.views.charts import Row, Rows
from mldyno.views.drawing import IN_PICTURE, LETTER, LIGHT, SIZE, Canvas, fitted, room_of, templates
from mldyno.views.records import FAKE_FRAMEWORK
from mldyno.views.report.pictures import png
from mldyno.views.report.speeds import rated_cases, speed_rows
from mldyno.views.report.subject import Subject
from mldyno.views.report.summary import kinds_of_work, league_rows, sentences
from mldyno.views.titles import kind_title, place_title, shared_title

WIDTH, HEIGHT, SIDE = 1200, 630, 60
LETTERS, MEDIUM, LARGE = 28, 38, 50  # pixels of the smallest letters, and of those of a name
LARGER = LETTERS / SIZE  # times as large as in the page is the chart
MOST_ROWS = 5
MOST_HEIGHT = 152.0  # of the chart, in pixels of the page
MOST_SCORES = 2
SCORE_WIDTH = 330  # pixels


def card(subject: Subject) -> bytes:
    """Return the card as PNG."""
    return png(card_svg(subject))


def card_svg(subject: Subject) -> str:
    """The card as SVG; whatever it says is escaped."""
    across = WIDTH - 2 * SIDE
    scores = _scores(subject)
    said = " ".join(f"{line}." for line in ([*_framework(subject), f"100 is {reference().machine}"] if scores
                                           else sentences(subject)))  # fmt: skip
    said = f"{FAKE_FRAMEWORK}. {said}" if subject.fake else said
    beside = SIDE + SCORE_WIDTH * len(scores)
    size = LARGE if room_of(subject.name, LARGE) <= across else MEDIUM
    command = next(iter(subject.commands), "") if len(subject.commands) == 1 else ""
    chart = _chart(subject)
    text: str = templates("report").get_template("card.svg").render(
        width=WIDTH, height=HEIGHT, side=SIDE, letters=LETTERS, colours=LIGHT,
        title=wrapped(subject.name, size, across, 1)[0], size=size, facts=wrapped(subject.facts, LETTERS, across, 1)[0],
        scores=scores, beside=beside, larger=LARGER,
        said=wrapped(said.replace("`", ""), LETTERS, WIDTH - SIDE - beside, 3),
        chart=chart.marks if chart else [], top=HEIGHT - 24 - (chart.height * LARGER if chart else 0),
        command=wrapped(f"$ {command}", LETTERS, 560, 1)[0] if command else "",
    )  # fmt: skip
    return text


def wrapped(text: str, size: int, width: float, most: int) -> list[str]:
    """The text in lines of so many pixels, in letters of a size; what does not fit ends in an ellipsis."""
    letters = int(width / (size * LETTER))
    return textwrap.wrap(text, letters, max_lines=most, placeholder=" …") or [""]


def _scores(subject: Subject) -> list[dict[str, Any]]:
    """Those of the fastest device and framework."""
    return [{"x": SIDE + SCORE_WIDTH * place, "number": digits(score.value, score.half_width),
             "error": "" if score.half_width is None else f"±{digits(score.half_width, most=2)}",
             "about": fitted(f"{kind_title(score.case)}, {score.case.device}", SCORE_WIDTH, LETTERS)}
            for place, score in enumerate(_of_the_fastest(subject)[:MOST_SCORES])]  # fmt: skip


def _of_the_fastest(subject: Subject) -> list[Score]:
    best = max(subject.scores, key=lambda score: score.value, default=None)
    return [score for score in subject.scores if best and place_title(score.case) == place_title(best.case)]


def _framework(subject: Subject) -> list[str]:
    """In which framework the scores were reached, where there are several."""
    frameworks = {score.case.framework for score in subject.scores}
    return [f"In {_of_the_fastest(subject)[0].case.framework}"] if len(frameworks) > 1 else []


def _chart(subject: Subject) -> Canvas | None:
    """The largest division of the league; else the fastest cases; without an axis."""
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
