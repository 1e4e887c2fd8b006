"""Every chart, made of plain data: dots and bars in rows, lines over sizes, samples.

Rule: a chart computes nothing but positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mldyno.units import Interval, count
from mldyno.views import drawing
from mldyno.views.drawing import SIDES, Canvas, Look, Scale, fitted, in_lines, log_scale, pixels, room_of, tick

WIDE, MIDDLE, NARROW, SMALL = 860, 720, 360, 360  # pixels of a chart: alone, next to text, on a phone, in a grid
BOLD = 1.08  # width of a bold letter, relative to a plain one
BESIDE = 480  # pixels: in a wider chart labels are to the left of their marks, not above them
LINE, GAP, LABEL, HEADING, TICKS = 18, 6, 17, 30, 22  # pixels: of marks, between rows, of texts
MARKS = 0.3  # share of the width that labels leave to marks, before they break into lines


@dataclass(frozen=True)
class Mark:
    """A number in a row, with its text and tooltip."""

    number: Interval
    text: str
    hover: str
    colour: str = "s1"
    hollow: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a chart: its label and its marks."""

    label: str
    marks: Sequence[Mark]
    strong: bool = False  # whether it is highlighted

    @property
    def largest(self) -> float:
        return max(mark.number.value for mark in self.marks)


@dataclass(frozen=True)
class Rows:
    """Rows under headings: dots on one line per row, or bars on a line each."""

    groups: Sequence[tuple[str, Sequence[Row]]]
    axis: str  # the title of the axis; without it there is no axis
    legend: Sequence[tuple[str, str]] = ()  # names of the colours, if there are two or more
    bars: bool = False
    base: float | None = None  # where bars begin; for dots, a dashed line
    linear: bool = False
    compact: bool = False  # whether labels stay to the left of their marks on a phone
    widths: tuple[int, ...] = (WIDE, NARROW)

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.groups for row in rows]

    def draw(self, width: float, look: Look) -> Canvas:
        canvas, beside = Canvas(width, look), self.compact or width >= BESIDE
        lines = [[number for number, _ in line] for row in self.rows for line in self._numbers(row)]
        numbers = max(room_of(drawing.BETWEEN.join(line)) for line in lines) + 8
        longest = max(room_of(row.label) * (BOLD if row.strong else 1.0) for row in self.rows)
        labels = min(max(0.54 * width, (1 - MARKS) * width - numbers), longest + 12) if beside else 0.0
        texts = labels_in_lines(self.rows, labels - 8 if labels else width)
        scale = self._scale(labels + 8, width - numbers - 8)
        y = self._legend(canvas)
        for heading, rows in self.groups:
            for place, line in enumerate(in_lines(heading, width / BOLD) if heading else []):
                y += LABEL if place else HEADING
                canvas.text(0, y - 10, line, colour="ink", bold=True)
            for row in rows:
                y = self._row(canvas, row, next(texts), y, labels, scale)
        canvas.height = self._axis(canvas, y, scale) if self.axis else y
        return canvas

    def _numbers(self, row: Row) -> list[list[tuple[str, str]]]:
        """Return the numbers at the end of a row with their colours: a line for each bar, or one for all dots."""
        coloured = self.legend and not self.bars
        each = [(mark.text, mark.colour if coloured else "ink") for mark in row.marks]
        return [[number] for number in each] if self.bars else [each]

    def _scale(self, start: float, end: float) -> Scale:
        numbers = [mark.number for row in self.rows for mark in row.marks]
        values = [number.value for number in numbers] + ([] if self.base is None else [self.base])
        if self.linear:
            return Scale(0.0, max(values), start, end, linear=True)
        return log_scale(values, [each for number in numbers for each in number.ends or ()], start, end)

    def _legend(self, canvas: Canvas) -> float:
        """Draw the colours with their names; return where the rows begin."""
        x, y = 6.0, 0.0
        for name, colour in self.legend:
            shown = fitted(name, canvas.width - 24)
            if y == 0.0 or x + room_of(shown) + 12 > canvas.width:
                x, y = 6.0, y + LABEL + 3
            canvas.dot(x, y - 5, 4, colour)
            canvas.text(x + 10, y, shown, colour="ink")
            x += room_of(shown) + 34
        return y + GAP if y else 0.0

    def _row(self, canvas: Canvas, row: Row, label: Sequence[str], y: float, labels: float, scale: Scale) -> float:
        own = LINE * (len(row.marks) if self.bars else 1)
        above = 0 if labels else LABEL * len(label)
        beside = max(own, LABEL * len(label)) if labels else own
        bottom = y + above + beside + GAP
        top = y + above + GAP / 2 + (beside - own) / 2
        if row.strong:
            canvas.bar((0, canvas.width), (y + bottom) / 2, bottom - y, "accent", 0.1)
        ink = "ink" if row.strong or above else "soft"
        for place, line in enumerate(label):
            middle = top + own / 2 + LABEL * (place - (len(label) - 1) / 2)
            if labels:
                canvas.text(labels, middle + 4.5, line, "end", ink, row.strong)
            else:
                canvas.text(4, y + LABEL * (place + 1) - 2, line, colour=ink, bold=row.strong)
        grid = "".join(f"M{pixels(scale.at(each))} {pixels(y + above)}V{pixels(bottom)}" for each in scale.ticks)
        canvas.path(grid, "line")
        if self.base is not None:
            line = f"M{pixels(scale.at(self.base))} {pixels(y + above)}V{pixels(bottom)}"
            canvas.path(line, "soft", 1 if self.bars else 1.5, dashed=not self.bars)
        for place, mark in enumerate(row.marks):
            line_y = top + LINE * ((place if self.bars else 0) + 0.5)
            with canvas.about(f"{row.label}: {mark.hover}"):
                self._mark(canvas, mark, line_y, scale, "accent" if row.strong else mark.colour, row.strong)
        for place, numbers in enumerate(self._numbers(row)):
            canvas.texts(canvas.width - 4, top + LINE * (place + 0.5) + 4.5, numbers, row.strong)
        return bottom

    def _mark(self, canvas: Canvas, mark: Mark, y: float, scale: Scale, colour: str, strong: bool) -> None:
        value = scale.at(mark.number.value)
        if self.bars:
            canvas.bar((scale.at(self.base or 0.0), value), y, LINE - 6, colour)
        if mark.number.ends:
            low, high = map(scale.at, mark.number.ends)
            canvas.across(y, (low, high), *(("ink", 1.5) if self.bars else (colour, 6, 0.35)))
        if not self.bars:
            canvas.dot(value, y, 5.5 if strong else 4, colour, mark.hollow)

    def _axis(self, canvas: Canvas, y: float, scale: Scale) -> float:
        first = sorted(scale.ticks, key=lambda each: each != self.base)
        for x, text in drawing.uncrowded([(scale.at(each), tick(each)) for each in first]):
            canvas.text(x, y + LABEL, text, "middle")
        below = y + LABEL + TICKS
        canvas.text(canvas.width - 4, below - 4, fitted(self.axis, canvas.width), "end")
        return below


def labels_in_lines(rows: Sequence[Row], room: float) -> Iterator[list[str]]:
    """Break each row's label into lines that fit; number the second of two that would look the same."""
    shown: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        lines = in_lines(row.label, room / (BOLD if row.strong else 1.0))
        labels = shown.setdefault(tuple(lines), [])
        if row.label not in labels:
            labels.append(row.label)
        number = labels.index(row.label) + 1
        yield lines if number == 1 else [*lines[:-1], f"{lines[-1][:-5].rstrip('… ')}… ({number})"]


def _value_axis(canvas: Canvas, title: str, across: Scale, up: Scale, ticks: Sequence[float]) -> None:
    """Draw the title, the lines and the numbers of a vertical axis."""
    canvas.text(0, 13, title)
    for each in ticks:
        canvas.across(up.at(each), (across.start, across.end), "line")
        canvas.text(across.start - 8, up.at(each) + 4.5, tick(each), "end")


@dataclass(frozen=True)
class Point:
    """A number at a size, with its tooltip."""

    x: float
    number: Interval
    hover: str


@dataclass(frozen=True)
class Lines:
    """Lines through points, both axes logarithmic; each line has its name at its end."""

    lines: Sequence[tuple[str, Sequence[Point]]]
    over: str
    axis: str
    base: float | None = None  # a dashed line
    crossings: Sequence[tuple[float, float, float]] = ()
    """The sizes at which a line crosses the base, each with the ends of its interval."""
    widths: ClassVar[tuple[int, ...]] = (SMALL,)
    HEIGHT: ClassVar[float] = 236

    def draw(self, width: float, look: Look) -> Canvas:
        canvas = Canvas(width, look, self.HEIGHT)
        points = [point for _, line in self.lines for point in line]
        names = [fitted(name, 0.3 * width) for name, _ in self.lines]
        right = BOLD * max(map(room_of, names)) + 14 if len(names) > 1 else 14
        xs = [point.x for point in points]
        across = Scale(min(xs), max(xs), 46, width - right)
        ends = [end for point in points for end in point.number.ends or () if end > 0]
        values = [point.number.value for point in points] + ([] if self.base is None else [self.base])
        up = log_scale(values, ends, self.HEIGHT - 40, 24)
        _value_axis(canvas, self.axis, across, up, up.ticks)
        for x, text in drawing.uncrowded([(across.at(size), tick(size)) for size in sorted(set(xs))]):
            canvas.text(x, self.HEIGHT - 22, text, "middle")
        canvas.text(across.end, self.HEIGHT - 4, self.over, "end")
        if self.base is not None:
            way = f"M{pixels(across.start)} {pixels(up.at(self.base))}H{pixels(across.end)}"
            canvas.path(way, "soft", 1.5, dashed=True)
        for place, (name, line) in enumerate(self.lines):
            colour = SIDES[place % len(SIDES)]
            places = [(across.at(point.x), up.at(point.number.value)) for point in line]
            canvas.path("M" + "L".join(f"{pixels(x)} {pixels(y)}" for x, y in places), colour, 2)
            for point, (x, y) in zip(line, places, strict=True):
                with canvas.about(f"{name}, {self.over} {tick(point.x)}: {point.hover}"):
                    if point.number.ends:
                        low, high = map(up.at, point.number.ends)
                        canvas.path(f"M{pixels(x)} {pixels(low)}V{pixels(high)}", colour, 1.5)
                    canvas.dot(x, y, 3, colour)
        for at, low, high in self.crossings:
            canvas.across(up.at(self.base or 1.0), (across.at(low), across.at(high)), "accent", 8, 0.3)
            canvas.dot(across.at(at), up.at(self.base or 1.0), 5.5, "accent")
        lowest = -math.inf  # a name is moved down where it would overlap the one above it
        for y, place in sorted((up.at(line[-1].number.value), place) for place, (_, line) in enumerate(self.lines)):
            lowest = max(y, lowest + drawing.SIZE + 2)
            if len(names) > 1:
                colour = SIDES[place % len(SIDES)]
                canvas.text(across.end + 8, lowest + 4.5, names[place], colour=colour, bold=True)
        return canvas


@dataclass(frozen=True)
class Samples:
    """Times of a step against the number of steps before: process, whether it is steady, steps, value."""

    dots: Sequence[tuple[int, bool, int, float]]
    axis: str
    ends: tuple[float, float]  # the range of the axis; values beyond it lie at the edge
    widths: ClassVar[tuple[int, ...]] = (SMALL,)
    HEIGHT: ClassVar[float] = 150

    def draw(self, width: float, look: Look) -> Canvas:
        canvas = Canvas(width, look, self.HEIGHT)
        steps = [step for _, _, step, _ in self.dots]
        across = Scale(min(steps), max(steps), 52, width - 8, linear=True)
        up = Scale(*self.ends, self.HEIGHT - 26, 24, linear=True)
        _value_axis(canvas, self.axis, across, up, drawing.round_steps(*self.ends, 3))
        for step, anchor in dict.fromkeys([(min(steps), "start"), (max(steps), "end")]):
            text = f"{step:,} steps" if anchor == "end" else f"{step:,}"
            canvas.text(across.at(step), self.HEIGHT - 6, text, anchor)
        ways: dict[tuple[int, bool], list[str]] = {}
        for process, steady, step, value in self.dots:
            way = f"M{pixels(across.at(step))} {pixels(up.at(value))}h0"
            ways.setdefault((process, steady), []).append(way)
        for (process, steady), dots in ways.items():  # a dot is a line without a length
            canvas.path("".join(dots), SIDES[(process - 1) % len(SIDES)], 3.5, 0.75 if steady else 0.25)
        return canvas


@dataclass(frozen=True)
class Dot:
    """One of many numbers: a share, tooltip, colour, and its name where it is called."""

    number: Interval
    hover: str
    colour: str
    label: str = ""


@dataclass(frozen=True)
class Dots:
    """A dot for each of many nodes, the largest first, with its interval as a bar; dashed lines at some values."""

    dots: Sequence[Dot]
    axis: str
    lines: Sequence[float]
    widths: ClassVar[tuple[int, ...]] = (WIDE, NARROW)
    HEIGHT: ClassVar[float] = 300
    LABELS: ClassVar[int] = 12  # dots that are named

    def draw(self, width: float, look: Look) -> Canvas:
        canvas = Canvas(width, look, self.HEIGHT)
        values = [100 * dot.number.value for dot in self.dots]
        ends = [100 * end for dot in self.dots for end in dot.number.ends or ()]
        room = max(values) - min(values) or 1.0
        low, high = max(min(ends), min(values) - room), min(max(ends), max(values) + room)
        across = Scale(0, len(self.dots) - 1, 56, width - 14, linear=True)
        dashed = [100 * line for line in self.lines]
        up = Scale(min([low, *dashed]), max([high, *dashed]), self.HEIGHT - 26, 26, linear=True)
        _value_axis(canvas, self.axis, across, up, drawing.round_steps(up.low, up.high))
        for line in dashed:
            canvas.path(f"M{pixels(across.start)} {pixels(up.at(line))}H{pixels(across.end)}", "soft", 1.5, dashed=True)
        thin = max(1.0, min(6.0, (across.end - across.start) / len(self.dots) - 1))
        for place, dot in enumerate(self.dots):
            x, y = across.at(place), up.at(100 * dot.number.value)
            with canvas.about(dot.hover):
                if dot.number.ends:
                    bottom, top = (up.at(100 * end) for end in dot.number.ends)
                    canvas.path(f"M{pixels(x)} {pixels(bottom)}V{pixels(top)}", dot.colour, thin, 0.3)
                canvas.dot(x, y, 4 if dot.label else 1.5, dot.colour)
        for place, dot in enumerate(self.dots[: self.LABELS]):
            if dot.label:
                x = across.at(place) + 9
                canvas.text(x, up.at(100 * dot.number.value) + 4.5, fitted(dot.label, across.end - x), colour="ink")
        canvas.text(across.end, self.HEIGHT - 6, f"{count(len(self.dots), 'node')}, the slowest first", "end")
        return canvas


Drawing = Rows | Lines | Samples | Dots
