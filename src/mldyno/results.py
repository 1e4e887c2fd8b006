"""Results of runs, comparisons and measurements, for Python users.

Each prints as text, and shows as HTML in a notebook. Names in that HTML are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from mldyno.analysis import comparisons as comparing
from mldyno.analysis import tables as laying
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome, known_value, outcomes
from mldyno.axes import AXIS, NAMES, axis_named
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Case, Record

if TYPE_CHECKING:
    from mldyno.analysis.answers import Answers, Verdicts
    from mldyno.analysis.fleet import Group
    from mldyno.analysis.league import Division
    from mldyno.fleet.conductor import Member
    from mldyno.plan import Plan
    from mldyno.views.report.parts import Chart

MOST_LINES = 20  # of a value that is shown but not printed
FIGURES = ("step", "throughput", "first_step", "peak_memory")  # columns of a data frame, after axes and status


class Shown:
    """Base class: a prompt shows as many of its lines as fit on a screen; `print` shows all."""

    def __repr__(self) -> str:
        text = str(self)
        lines = text.splitlines()
        if len(lines) <= MOST_LINES:
            return text
        return "\n".join([*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} more lines: print it to see them"])

    def _repr_html_(self) -> str:
        return _lines_html(str(self).splitlines())


def _lines_html(lines: Sequence[str]) -> str:
    """Return lines as a list; nothing where there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _grid_html(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "") -> str:
    """Return a table whose first `left` columns lean left."""

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ["left" if place < left else "right" for place in range(len(cells))]
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True)
        )

    rows = "".join(f"<tr>{line('td', cells)}</tr>" for cells in body)
    named = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{named}<thead><tr>{line('th', header)}</tr></thead><tbody>{rows}</tbody></table>"


class ResultComparison(Comparison):
    """A comparison of two cases, shown as a sentence."""

    def __str__(self) -> str:
        from mldyno.views.claims import sentence

        return sentence(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return Comparisons([self])._repr_html_()


class Comparisons(Shown, list[ResultComparison]):
    """Comparisons, one a line, then their means and answers."""

    answers: Answers | None = None

    def __init__(self, comparisons: Iterable[Comparison] = ()) -> None:
        super().__init__(ResultComparison(**vars(comparison)) for comparison in comparisons)

    @property
    def means(self) -> list[Mean]:
        """The geometric means of those between two machines."""
        return comparing.between_machines(self)

    def __str__(self) -> str:
        from mldyno.views.answers import answer_section
        from mldyno.views.claims import fastest_frameworks, footers, mean_sentence

        steps = [comparison for comparison in self if comparison.value == "step"]
        lines = [*map(str, self), *fastest_frameworks(steps), *map(str, map(mean_sentence, self.means)), *footers(self)]
        return "\n".join([*lines, *(answer_section(self.answers) if self.answers else [])])

    def _repr_html_(self) -> str:
        """Return a row for each comparison: factor, verdict, and how it was made."""
        from mldyno.views.claims import arms, footers, times
        from mldyno.views.titles import case_name

        body = []
        for each in self:
            other, base = arms(each)
            way = "faster" if each.ratio >= 1 else "slower"
            body.append([case_name(each.other.case), base, other, f"{times(each)} {way}", each.verdict, each.how])
        header = ["case", "base", "other", "the other is", "verdict", "how"]
        return f"<div>{_grid_html(header, body, len(header))}{_lines_html(footers(self))}</div>"


class ResultTable(Shown, laying.Table):
    """Cells on axes."""

    @classmethod
    def laid(
        cls, cases: Sequence[Outcome], rows: Sequence[str], cols: Sequence[str], value: str, by: str | None,
        warnings_too: bool,
    ) -> ResultTable:  # fmt: skip
        """Lay outcomes out on the axes that a user names; raise where these make no table."""
        if value == "score":
            from mldyno.analysis.scores import score_table

            return cls(**vars(score_table(cases)))
        down, across = ([axis_named(word, ("machine",)) for word in words] for words in (rows, cols))
        if both := set(down) & set(across):
            raise UsageError(f"an axis can't be both a row and a column: {', '.join(both)}.")
        along = axis_named(by, ("machine",)) if by else None
        return cls(**vars(laying.lay_out(cases, down, across, value, warnings_too=warnings_too, by=along)))

    def to(self, form: str) -> str:
        """Return the table as text: terminal, markdown, csv, json or latex."""
        from mldyno.errors import unknown
        from mldyno.views.tables import FORMATS, render

        if form not in FORMATS:
            raise unknown("format", form, FORMATS)
        return render(self, form)

    def __str__(self) -> str:
        return self.to("terminal")

    def _repr_html_(self) -> str:
        from mldyno.views.tables import grid, note_lines, title_of

        header, body, notes = grid(self)
        table = _grid_html(header, body, len(self.rows), title_of(self))
        return f"<div>{table}{_lines_html(note_lines(notes))}</div>"


@dataclass(frozen=True, repr=False)
class Picture:
    """A chart of the report, as a notebook shows it."""

    chart: Chart

    def __repr__(self) -> str:
        return self.chart.described

    def _repr_svg_(self) -> str:
        from mldyno.views.report.pictures import picture_svg

        return picture_svg(self.chart)


@dataclass(repr=False)
class Results(Shown):
    """The records of a run, ready to be compared and laid out."""

    run: str
    everything: list[Record] = field(default_factory=list)
    left_out: list[Case] = field(default_factory=list)  # cases that the limit of the run left no time for
    plan: Plan | None = None  # the plan of the run; None if the records come from elsewhere
    placed: laying.Table | None = None  # the run of a suite among published figures of the same work

    @property
    def records(self) -> list[Record]:
        """The records of cases measured alone: one for each case and repeat."""
        return [record for record in self.everything if record.alone]

    @property
    def outcomes(self) -> list[Outcome]:
        return outcomes(self.everything)

    @property
    def all_ok(self) -> bool:
        """True if every case succeeded, even if other programs took the memory of some of its processes."""
        good = {record.case for record in self.records if record.status == "ok"}
        return all(record.status == "ok" or (record.crowded_out and record.case in good) for record in self.records)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def compare(self, by: str | None = None) -> Comparisons:
        """Compare the cases along one axis; by default the only one in which they differ."""
        varied = [name for name in NAMES if len({getattr(outcome.case, name) for outcome in self.outcomes}) > 1]
        if not by and len(varied) != 1:
            which = f"the cases differ in {', '.join(varied)}" if varied else "there is only one case"
            raise UsageError(f"{which}; name the axis to compare along, such as by='device'.")
        axis = axis_named(by) if by else varied[0]
        return Comparisons(comparing.compared(comparing.along(self.outcomes, axis)))

    def export(self, path: str, form: str = "jsonl", private: bool = False) -> int:
        """Write the records to a file that can be imported; return how many."""
        from mldyno.store import transfer

        texts = (record.text for record in self.everything)
        return transfer.write(map(transfer.private_text, texts) if private else texts, path, form)

    save = export

    @property
    def answers(self) -> Answers:
        """The answers that the cases give: crossovers, precisions, copies, growth with the length."""
        from mldyno.analysis.answers import answers

        return answers(self.outcomes)

    def table(
        self, rows: Sequence[str] = (), cols: Sequence[str] = (), value: str | None = None, by: str | None = None
    ) -> ResultTable:
        """Lay the cases out on axes, without their warnings, which the trust lines have."""
        wanted = value or ("speedup" if by else "step")
        wanted = known_value(wanted, {series.metric for record in self.records for series in record.series})
        return ResultTable.laid(self.outcomes, rows, cols, wanted, by, warnings_too=False)

    def report(self, path: str = "report.html", context: Sequence[Record] = ()) -> str:
        """Write the report of this run as a page that works offline, with other machines; return its path."""
        from mldyno.views.report.page import write_page

        return write_page(self.everything, path, context)

    @property
    def charts(self) -> list[Picture]:
        """The charts of this run's report, without those of single samples."""
        from mldyno.views.report.pictures import charts_of
        from mldyno.views.report.subject import subject_of_records

        charts = charts_of(subject_of_records(self.everything))
        return [Picture(chart) for chart in charts if not chart.id.startswith("trace-")]

    def to_pandas(self) -> Any:
        """Return a data frame with one row for each case: its axes, status and figures, in SI units."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise MldynoError("pandas is not installed; install it with: pip install pandas") from None
        rows = []
        for outcome in self.outcomes:
            case = {name: getattr(outcome.case, name) for name in NAMES}
            figures = {name: outcome.figure(name) for name in FIGURES}
            values = {name: figure and figure.value for name, figure in figures.items()}
            step = figures["step"]
            known = {"machine": outcome.machine, **case, "status": outcome.status, "reason": outcome.reason}
            ends = {"step_low": step and step.low, "step_high": step and step.high}
            rows.append({**known, "step": None, **ends, **values})
        return pandas.DataFrame(rows)

    def __str__(self) -> str:
        from mldyno.views.screens import run_screen

        if not self.everything:
            return "no results"
        if (plan := self.plan) is None:
            return "\n".join(run_screen(self.outcomes))
        lines = run_screen(self.outcomes, plan.by, plan.sources, bool(plan.commands), plan.energy, self.placed)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from mldyno.views.outcomes import trust_lines

        if not self.everything:
            return str(self)
        charts = self.charts if len(self) > 1 else []
        drawings = "".join(f"<div>{chart._repr_svg_()}</div>" for chart in charts)
        return f"<div>{self.table()._repr_html_()}{_lines_html(trust_lines(self.outcomes))}{drawings}</div>"


@dataclass(repr=False, kw_only=True)
class QuickResults(Results):
    """Results of `quick`, shown as one screen."""

    notes: list[str]  # what was omitted or changed, and why
    verdicts: Verdicts
    standings: list[Division]  # this machine among other machines, for each work that they share
    page: str  # where the report is, or why there is none

    def __str__(self) -> str:
        from mldyno.views.screens import screen

        return "\n".join(screen(self.outcomes, self.verdicts, self.standings, self.notes, self.page))


@dataclass(repr=False, kw_only=True)
class FleetResults(Results):
    """Results of a run on several hosts, and how each of them ended."""

    hosts: list[Member]
    on: str  # the words that named them

    @property
    def all_ok(self) -> bool:
        ended = all(member.state == "done" and not member.left_out for member in self.hosts)
        return ended and super().all_ok

    def __str__(self) -> str:
        from mldyno.fleet.in_words import MOST_SHOWN, summary
        from mldyno.views.outcomes import trust_line

        many = self.everything and len(self.hosts) > MOST_SHOWN
        shown = trust_line(self.outcomes) if many else super().__str__()
        return "\n".join([shown, "", *summary(self.hosts, self.on)])


@dataclass(frozen=True, repr=False)
class FleetNodes(Shown):
    """Which nodes of a run on several machines are slow; `again` is the command that measures them once more."""

    run: str
    groups: Sequence[Group]
    again: str

    def __str__(self) -> str:
        from mldyno.views.fleet import lines, tables

        shown = [*tables(self.groups), *lines(self.groups, self.again)]
        return "\n".join(shown) or f"no node of run {self.run} has a time of a step; `mldyno history` says why"


@dataclass(frozen=True, repr=False)
class Measurement(Shown):
    """The time of a function: its record, and the estimate from it."""

    record: Record

    @property
    def outcome(self) -> Outcome:
        return Outcome((self.record,))

    @property
    def step(self) -> Estimate | None:
        """The time of one call in s, with its interval; None where it never was steady."""
        return self.outcome.figure("step")

    @property
    def first_step(self) -> float:
        """The time of the very first call in s."""
        return float(self.record.fact("first_step") or 0.0)

    def compare(self, other: Measurement) -> ResultComparison | None:
        """Return how many times as fast the other is; the interval is wide, since the two are separate runs."""
        return next(iter(Comparisons(comparing.compared([(self.outcome, other.outcome)]))), None)

    def __str__(self) -> str:
        from mldyno.views.outcomes import trust
        from mldyno.views.records import headline

        return f"{self.record.case.workload}: {headline(self.record)} ({trust(self.outcome)})"


@dataclass(frozen=True, repr=False)
class ModelCheck(Shown):
    """The speed of a model of this process in different ways, and the largest batch that should fit."""

    results: Results
    largest: Sequence[Any]  # estimates: a case, its batch, and whether a larger one may fit too

    @property
    def table(self) -> ResultTable:
        """The time of each way, a row each."""
        return self.results.table(rows=("mode", "device", "precision", "compile"), cols=())

    @property
    def lines(self) -> list[str]:
        """The comparisons and the largest batches in words."""
        from mldyno.views.screens import statements
        from mldyno.views.titles import case_name

        said = statements(self.results.outcomes)
        for each in self.largest:
            least, mode = "at least " if each.more else "", AXIS["mode"].say(each.case.mode)
            said.append(f"largest batch in {mode} on {each.case.device}: {least}{each.batch:,} [estimated, fp32]")
        if self.results.left_out:
            names = ", ".join(map(case_name, self.results.left_out))
            said.append(f"left out when the time was over: {names}; allow more with limit=")
        return said

    def __str__(self) -> str:
        return "\n".join([str(self.table), "", *self.lines])

    def _repr_html_(self) -> str:
        return f"<div>{self.table._repr_html_()}{_lines_html(self.lines)}</div>"
