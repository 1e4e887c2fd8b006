"""The self-test's measures as a table and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mldyno.selftest.measures import Measure
from mldyno.units import digits, show_percent, show_seconds
from mldyno.views.tables import aligned

TITLE = "how often mldyno is wrong here, at 95 % confidence"


def measure_json(measure: Measure) -> dict[str, Any]:
    """A measure as data; shares are fractions of 1."""
    return {"id": measure.id, "name": measure.name, "value": measure.value, "bound": measure.bound,
            "target": measure.target, "ok": measure.ok, "n": measure.n, "unit": measure.unit,
            "peers": measure.peers, "note": measure.note}  # fmt: skip


def amount(value: float | None, unit: str) -> str:
    """A value or a bound as it is read."""
    if value is None:
        return "-"
    if unit == "share":
        return "0 %" if value == 0 else show_percent(value)
    return show_seconds(value) if unit == "s" else digits(value, most=4)


def verdict(measure: Measure) -> str:
    """Whether a measure meets its target, in words."""
    return {True: "met", False: "MISSED", None: f"too few trials to judge ({measure.n:,})"}[measure.ok]


def verdict_counts(measures: Sequence[Measure]) -> str:
    """How many targets are met, missed, or can't be judged."""
    met, missed, open_ = (sum(measure.ok is ok for measure in measures) for ok in (True, False, None))
    parts = [f"{met} of {len(measures)} targets met", f"{missed} missed" if missed else "",
             f"{open_} with too few trials to judge" if open_ else ""]  # fmt: skip
    return ", ".join(filter(None, parts))


def measures_table(measures: Sequence[Measure], title: str = TITLE) -> str:
    """All measures, with what the peers were measured at; one of nothing has no value."""
    header = ["", "measure", "here", "at worst", "target", "", "n", "peers"]
    body = [
        [str(measure.id), measure.name, amount(measure.value if measure.n else None, measure.unit),
         amount(measure.bound, measure.unit),
         measure.target, verdict(measure), f"{measure.n:,}", measure.peers]
        for measure in measures
    ]  # fmt: skip
    notes = [f"{measure.id}: {measure.note}" for measure in measures if measure.note]
    return "\n".join([aligned(header, body, 2, title), *notes])
