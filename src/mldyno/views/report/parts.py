"""What a section is made of: sentences, grids and charts, all plain data; text is escaped where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Paragraphs:
    """Sentences, as a list; what is behind the first `shown` unfolds when asked for."""

    id: str
    lines: Sequence[str]
    shown: int = 6
    kind: str = "paragraphs"


@dataclass(frozen=True)
class Figure:
    """One large number: what it is about, the number, what it says, and where it comes from."""

    about: str
    number: str
    says: str
    source: str


@dataclass(frozen=True)
class Figures:
    """Large numbers side by side."""

    figures: Sequence[Figure]
    kind: str = "figures"


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
class Chart:
    """A chart: its specification, its title, and what is in it for who can't see it."""

    id: str
    title: str
    spec: dict[str, Any]
    alt: str
    caption: str = ""
    kind: str = "chart"


@dataclass(frozen=True)
class Traces:
    """Samples of each case, drawn with the specification for their unit, into which they are put then."""

    id: str
    specs: dict[str, dict[str, Any]]
    traces: Sequence[dict[str, Any]]
    shown: int = 12
    kind: str = "traces"


SectionPart = Paragraphs | Figures | Grid | Chart | Traces


@dataclass(frozen=True)
class Section:
    """A section of the page; one without parts says why there are none."""

    id: str
    title: str
    lead: str
    parts: Sequence[SectionPart] = ()
