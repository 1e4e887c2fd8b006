"""The parts of a section of the report: paragraphs, tables and charts, all plain data; templates escape text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mldyno.views.charts import Drawing, Row, Rows


@dataclass(frozen=True)
class Bullets:
    """Sentences as a list; those after the first `shown` unfold on demand."""

    id: str
    lines: Sequence[str]
    shown: int = 6
    kind: str = "paragraphs"

    def __bool__(self) -> bool:
        return bool(self.lines)


@dataclass(frozen=True)
class GridCell:
    """A cell of a table: its text, a number to sort by, how fast it is from 0 to 9, and whether it is doubtful."""

    text: str
    sort: float | None = None
    heat: int | None = None
    under: str = ""
    doubtful: bool = False
    head: bool = False


@dataclass(frozen=True)
class Grid:
    """A table that can be sorted by each column; one without column heads can't."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    notes: Sequence[str] = ()
    numbers: int = 1  # the first column that holds numbers
    shown: int = 50
    kind: str = "grid"


@dataclass(frozen=True)
class Chart:
    """A chart whose title states the finding."""

    id: str
    title: str
    about: str
    drawing: Drawing
    caption: str = ""
    narrow: Drawing | None = None  # a smaller drawing for phones
    kind: str = "chart"

    @property
    def described(self) -> str:
        """The chart in words, for screen readers."""
        return f"{self.title}. {self.about}. The numbers are in the table of all cases."


@dataclass(frozen=True)
class SideBySide:
    """Small charts, or small tables, in a row."""

    parts: Sequence[Chart] | Sequence[Grid]

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def kind(self) -> str:
        return f"{self.parts[0].kind}s"


Part = Bullets | Grid | Chart | SideBySide
Content = tuple[str, Sequence[Part]]  # how to read a section, if that must be said; and its parts


@dataclass(frozen=True)
class Section:
    """A section of the page: a question, its short name for the navigation, and the answer."""

    id: str
    title: str
    short: str
    lead: str
    parts: Sequence[Part]

    @property
    def single_parts(self) -> list[Part]:
        """All parts, those side by side one by one."""
        return [each for part in self.parts for each in (part.parts if isinstance(part, SideBySide) else (part,))]


def legend_of(colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the legend of names with their colours; none for a single name."""
    return list(colours.items()) if len(colours) > 1 else []


def share_bars(rows: Sequence[Row], axis: str, colours: Mapping[str, str]) -> Rows:
    """Draw bars from 0 in percent."""
    return Rows([("", rows)], axis, legend_of(colours), bars=True, base=0.0, linear=True)
