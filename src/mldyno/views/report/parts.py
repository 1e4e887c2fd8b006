"""What a section is made of: sentences, grids and charts, all plain data; text is escaped where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.views.charts import Drawing


@dataclass(frozen=True)
class Paragraphs:
    """Sentences, as a list; what is behind the first `shown` unfolds when asked for."""

    id: str
    lines: Sequence[str]
    shown: int = 6
    kind: str = "paragraphs"


@dataclass(frozen=True)
class GridCell:
    """A cell of a grid: its text, a number to sort by, how fast it is from 0 to 9, and whether it is doubtful."""

    text: str
    sort: float | None = None
    heat: int | None = None
    under: str = ""
    doubtful: bool = False
    head: bool = False


@dataclass(frozen=True)
class Grid:
    """A table that can be sorted by each of its columns; one without heads of columns is not sorted."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    notes: Sequence[str] = ()
    numbers: int = 1
    """From which column on there are numbers."""
    shown: int = 50
    kind: str = "grid"


@dataclass(frozen=True)
class Grids:
    """Tables side by side."""

    grids: Sequence[Grid]
    kind: str = "grids"


@dataclass(frozen=True)
class Chart:
    """A chart: a title that says what was found, and below it what is drawn."""

    id: str
    title: str
    about: str
    drawing: Drawing
    caption: str = ""
    narrow: Drawing | None = None
    """What is drawn on a phone, if it is less."""
    kind: str = "chart"

    @property
    def described(self) -> str:
        """What is in it for who can't see it."""
        return f"{self.title}. {self.about}. The numbers are in the table of all cases."


@dataclass(frozen=True)
class Charts:
    """Small charts side by side."""

    charts: Sequence[Chart]
    kind: str = "charts"


SectionPart = Paragraphs | Grid | Grids | Chart | Charts


@dataclass(frozen=True)
class Section:
    """A section of the page: a question, its short name for the navigation, and the answer."""

    id: str
    title: str
    short: str
    lead: str
    parts: Sequence[SectionPart]

    @property
    def single_parts(self) -> list[SectionPart]:
        """Its parts, those that stand side by side one by one."""
        single: list[SectionPart] = []
        for part in self.parts:
            single += part.charts if isinstance(part, Charts) else part.grids if isinstance(part, Grids) else [part]
        return single


@dataclass(frozen=True)
class ScoreFigure:
    """A score: of what, and the number."""

    about: str
    number: str
    ends: str
    """Of its 95 % interval."""


@dataclass(frozen=True)
class Summary:
    """The first screen: scores, what they are relative to or why there are none, what was found, and the league."""

    scores: Sequence[ScoreFigure]
    note: str
    sentences: Sequence[str]
    league: Chart | None
