"""The parts of charts and pages: a canvas that becomes SVG, scales with round ticks, text widths, templates.

Rules: text of a record is escaped in one place (`escaped`), and nothing else of it becomes markup. Colours have names:
in the page they are the style sheet's variables, so that a chart follows light, dark and print without being drawn
again; in a picture they are the colours themselves. The tooltip of a mark is its `<title>`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from mldyno.printable import printable, shortened

DATA = Path(__file__).parent.parent / "data"
LIGHT = {
    "paper": "#ffffff", "ink": "#1c2128", "soft": "#57606a", "line": "#dde2e8", "accent": "#c04a00",
    "s1": "#3b6ea5", "s2": "#15795a", "s3": "#7a56b0", "s4": "#8a6100", "s5": "#b02a64",
    "s6": "#0a7490", "s7": "#a33b3b", "s8": "#5c6b1e",
}  # fmt: skip
"""The colours of a picture; `style.css` has the same for the page, and those of dark mode."""
SIDES = ("s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8")
SIZE = 13  # of letters
LETTER = 0.58  # of a letter's size: how wide it is on average
MOST_TICKS = 6
MOST_LINES = 3  # of a label
BETWEEN = " · "  # several numbers
FARTHEST = 3.0  # times the outermost value: an interval is cut off there


@dataclass(frozen=True)
class Look:
    """The names of colours, and the font."""

    colours: Mapping[str, str]
    font: str


IN_PAGE = Look({name: f"var(--{name})" for name in LIGHT}, "system-ui, sans-serif")
IN_PICTURE = Look(LIGHT, "sans-serif")


def escaped(text: str) -> str:
    """Escape text for HTML and XML, for an element or an attribute."""
    return escape(printable(text))


def room_of(text: str, size: float = SIZE) -> float:
    """Estimate the width of a text in pixels."""
    return len(text) * size * LETTER


def fitted(text: str, room: float, size: float = SIZE) -> str:
    """Shorten text to a width in pixels; keep the part after the last comma, which identifies it."""
    most = max(4, int(room / (size * LETTER)))
    head, comma, tail = text.rpartition(", ")
    if len(text) <= most or len(tail) + 8 > most:
        return shortened(text, most)
    return shortened(head, most - len(comma + tail)) + comma + tail


def in_lines(text: str, room: float) -> list[str]:
    """Break text into lines of a width in pixels, between words where possible; shorten what is too long."""
    letters = max(4, int(room / (SIZE * LETTER)))
    for part in (text, fitted(text, (MOST_LINES - 0.5) * room), shortened(text, MOST_LINES * letters)):
        lines = textwrap.wrap(part, letters, break_on_hyphens=False) or [""]
        if len(lines) <= MOST_LINES:
            break
    return lines[:MOST_LINES]


def pixels(value: float) -> str:
    """Format a coordinate or a length for SVG."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass
class Canvas:
    """The marks of a drawing, in drawing order, in pixels."""

    width: float
    look: Look
    height: float = 0.0
    marks: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", colour: str = "soft", bold: bool = False
    ) -> None:
        """Write text with its baseline at y."""
        self._text(x, y, anchor, bold, f'fill="{self.look.colours[colour]}"', escaped(text))

    def texts(self, x: float, y: float, parts: Sequence[tuple[str, str]], bold: bool = False) -> None:
        """Write texts in a row, each in its colour, ending at x."""
        spans = [f'<tspan fill="{self.look.colours[colour]}">{escaped(part)}</tspan>' for part, colour in parts]
        self._text(x, y, "end", bold, f'fill="{self.look.colours["soft"]}"', BETWEEN.join(spans))

    def _text(self, x: float, y: float, anchor: str, bold: bool, fill: str, content: str) -> None:
        weight = ' font-weight="600"' if bold else ""
        placed = f'x="{pixels(x)}" y="{pixels(y)}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
        self.marks.append(f"<text {placed} {fill}{weight}>{content}</text>")

    def path(self, way: str, colour: str, thickness: float = 1, opacity: float = 1, dashed: bool = False) -> None:
        more = f' stroke-opacity="{opacity}"' if opacity < 1 else ""
        more += ' stroke-dasharray="4 3"' if dashed else ""
        stroke = f'stroke="{self.look.colours[colour]}" stroke-width="{thickness}" stroke-linecap="round"'
        self.marks.append(f'<path d="{way}" fill="none" {stroke}{more}/>')

    def across(self, y: float, ends: tuple[float, float], colour: str, width: float = 1, opacity: float = 1) -> None:
        self.path(f"M{pixels(ends[0])} {pixels(y)}H{pixels(ends[1])}", colour, width, opacity)

    def bar(self, ends: tuple[float, float], y: float, height: float, colour: str, opacity: float = 1) -> None:
        """Draw a bar between two ends, centred on y."""
        left, right = min(ends), max(ends)
        place = f'x="{pixels(left)}" y="{pixels(y - height / 2)}" width="{pixels(right - left)}" rx="2"'
        fill = f'fill="{self.look.colours[colour]}"' + (f' fill-opacity="{opacity}"' if opacity < 1 else "")
        self.marks.append(f'<rect {place} height="{pixels(height)}" {fill}/>')

    def dot(self, x: float, y: float, radius: float, colour: str, hollow: bool = False) -> None:
        inside = self.look.colours["paper" if hollow else colour]
        stroke = f'fill="{inside}" stroke="{self.look.colours[colour]}" stroke-width="2"'
        self.marks.append(f'<circle cx="{pixels(x)}" cy="{pixels(y)}" r="{pixels(radius)}" {stroke}/>')

    @contextmanager
    def about(self, hover: str) -> Iterator[None]:
        """Give a tooltip to the marks drawn within the context."""
        self.marks.append(f"<g><title>{escaped(hover)}</title>")
        yield
        self.marks.append("</g>")

    def svg(self, described: str) -> str:
        """Return the drawing as SVG, with a description for screen readers."""
        size = f'viewBox="0 0 {pixels(self.width)} {pixels(self.height)}" width="{pixels(self.width)}"'
        text = f'font-family="{self.look.font}" font-size="{SIZE}" role="img" aria-label="{escaped(described)}"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} height="{pixels(self.height)}" {text}>'
        return "\n".join([start, *self.marks, "</svg>"])


@dataclass(frozen=True)
class Scale:
    """A map from values to positions; logarithmic, unless it is linear."""

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, clipped to the ends."""
        low, here, high = (self.low, value, self.high) if self.linear else map(_log, (self.low, value, self.high))
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Return round values between its ends."""
        return round_steps(self.low, self.high) if self.linear else log_ticks(self.low, self.high)


def _log(value: float) -> float:
    return math.log(max(value, 5e-324))


def log_scale(values: Sequence[float], ends: Sequence[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale for positive values and the ends of their intervals, with a margin."""
    low, high = min(values), max(values)
    low = min([low, *(max(each, low / FARTHEST) for each in ends)])
    high = max([high, *(min(each, high * FARTHEST) for each in ends)])
    margin = max((_log(high) - _log(low)) * 0.04, 0.05)
    return Scale(math.exp(max(_log(low) - margin, -700)), math.exp(min(_log(high) + margin, 700)), start, end)


_FINE = (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8)


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis: 1, 2, 5 and so on, or fewer where it is long."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in (_FINE, (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
        ticks = [value for value in ticks if low * 0.999 <= value <= high * 1.001]
        if len(ticks) <= MOST_TICKS:
            break
    return ticks[:: math.ceil(len(ticks) / MOST_TICKS) or 1]


def round_steps(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers at even distances between two values."""
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for part in (1, 2, 2.5, 5, 10, 20):
        step = part * power
        ticks = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        if len(ticks) <= most:
            break
    return [place * step for place in ticks]


def tick(value: float) -> str:
    """Format a round number briefly: 0.5, 20, 5k, 2M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{name}"
    return f"{value:.4g}"


def uncrowded(texts: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Drop texts that would overlap an earlier, more important one."""
    apart: list[tuple[float, str]] = []
    for x, text in texts:
        if all(abs(x - other) > (room_of(text) + room_of(known)) / 2 + 4 for other, known in apart):
            apart.append((x, text))
    return apart


@cache
def templates(folder: str) -> Any:
    """Return the templates of a folder in `data/`, which escape their values and make them printable."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(DATA / folder), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=lambda value: printable(value) if type(value) is str else value,
    )  # fmt: skip
