"""The self-test's measures as a table and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mldyno.selftest.measures import Measure
from mldyno.units import digits, show_percent, show_seconds
from mldyno.views.tables import aligned

TITLE = "how often mldyno is wrong here, at 95 % confidence"


FIELDS = ("id", "name", "value", "bound", "target", "ok", "n", "unit", "peers", "note")  # in JSON


def measure_json(measure: Measure) -> dict[str, Any]:
    """Return a measure as data; shares are fractions of 1."""
    return {name: getattr(measure, name) for name in FIELDS}


def amount(value: float | None, unit: str) -> str:
    """Show a value or a bound."""
    if value is None:
        return "-"
    if unit == "share":
        return show_percent(value)
    return show_seconds(value) if unit == "s" else digits(value, most=4)


def verdict_counts(measures: Sequence[Measure]) -> str:
    """Count the targets that are met, missed, or can't be judged."""
    met, missed, open_ = (sum(measure.ok is ok for measure in measures) for ok in (True, False, None))
    parts = [f"{met} of {len(measures)} targets met", f"{missed} missed" if missed else "",
             f"{open_} with too few trials to judge" if open_ else ""]  # fmt: skip
    return ", ".join(filter(None, parts))


def measures_table(measures: Sequence[Measure], title: str = TITLE) -> str:
    """Return all measures with the figures of peers; a measure without trials has no value."""
    header = ["", "measure", "here", "at worst", "target", "", "n", "peers"]
    body = []
    for measure in measures:
        here = amount(measure.value if measure.n else None, measure.unit)
        met = {True: "met", False: "MISSED", None: f"too few trials to judge ({measure.n:,})"}[measure.ok]
        figures = [here, amount(measure.bound, measure.unit), measure.target, met, f"{measure.n:,}"]
        body.append([str(measure.id), measure.name, *figures, measure.peers])
    notes = [f"{measure.id}: {measure.note}" for measure in measures if measure.note]
    return "\n".join([aligned(header, body, 2, title), *notes])
