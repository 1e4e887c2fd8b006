"""Every chart, defined once with Altair as a function of plain rows: bars, curves, ratios over sizes, samples.

Rules: a chart draws what it is given and computes nothing. Vega-Lite makes expressions of the names and titles of
fields and of lists to sort by, so these are ours: text of a record stands in values of rows, in titles of axes and
charts, and in descriptions, which nothing evaluates. Colours come from a theme: in the page they are the style
sheet's variables, so that a chart follows light, dark and print without being drawn again; in a picture they are the
colours themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mldyno.printable import printable, printable_content

Row = Mapping[str, Any]
Spec = dict[str, Any]

LIGHT = {
    "paper": "#ffffff", "ink": "#1c2128", "soft": "#57606a", "line": "#d5dae0",
    "s1": "#4f6d8f", "s2": "#d4580c", "s3": "#1a8a66", "s4": "#7a56b0", "s5": "#a8780a", "s6": "#c0306f",
}  # fmt: skip
"""The colours of a picture; `style.css` has the same for the page, and those of the dark."""
SIDES = ("s1", "s2", "s3", "s4", "s5", "s6")
PICTURE_WIDTH = 680
FITTED = {"type": "fit-x", "contains": "padding"}  # as wide as its place, labels included
BAR = 20  # pixels of a bar with its gap
MAX_BAR_RATIO = 25.0  # times the shortest bar: a longer one would leave nothing of it to be seen
BEHIND = {"left": 2, "right": 58, "top": 4, "bottom": 4}  # pixels around, with room for numbers behind bars
MAX_TICKS = 6
_TEXT = 12


@dataclass(frozen=True)
class Theme:
    """What colours are called."""

    colours: Mapping[str, str]
    font: str = "sans-serif"

    def config(self) -> Spec:
        """The settings of Vega-Lite that all charts share."""
        ink, soft, line = (self.colours[name] for name in ("ink", "soft", "line"))
        return {
            "background": None, "font": self.font, "padding": {"left": 2, "right": 6, "top": 4, "bottom": 4},
            "view": {"stroke": None},
            "axis": {"labelColor": soft, "titleColor": soft, "gridColor": line, "domainColor": line, "tickColor": line,
                     "labelFontSize": _TEXT, "titleFontSize": _TEXT, "titleFontWeight": "normal", "labelLimit": 210},
            "legend": {"labelColor": ink, "titleColor": soft, "labelFontSize": _TEXT, "orient": "top", "title": None,
                       "labelLimit": 300, "columns": 3, "symbolType": "square"},
            "range": {"category": [self.colours[name] for name in SIDES]},
            "text": {"color": ink, "fontSize": _TEXT}, "rule": {"color": ink},
            "mark": {"color": self.colours["s1"]}, "line": {"strokeWidth": 2}, "point": {"filled": True, "size": 45},
            "style": {"crossing": {"fill": self.colours["s2"], "stroke": self.colours["s2"]}},
        }  # fmt: skip


IN_PAGE = Theme({name: f"var(--{name})" for name in LIGHT}, "system-ui, sans-serif")
IN_PICTURE = Theme(LIGHT)


def _finished(chart: Any, height: Any, described: str) -> Spec:
    """The chart as a specification as wide as its place."""
    sized = chart.properties(width="container", height=height, description=described, autosize=FITTED)
    spec: Spec = printable_content(sized.to_dict(validate=False))
    spec.pop("config", None)  # Altair's own; a theme's takes its place
    return spec


def for_picture(spec: Spec, title: str, width: int = PICTURE_WIDTH) -> Spec:
    """The same chart for a picture, which stands alone: with its title, a width, the colours themselves, a ground."""
    config = {**IN_PICTURE.config(), "background": LIGHT["paper"]}
    above = {"text": printable(title), "anchor": "start", "color": LIGHT["ink"], "fontSize": 14, "offset": 10}
    return {**spec, "title": above, "width": width, "config": config}


def _data(rows: Sequence[Row]) -> Any:
    import altair

    return altair.Data(values=[dict(row) for row in rows])


def _tips(*pairs: tuple[str, str]) -> list[Any]:
    import altair

    return [altair.Tooltip(field=field, type="nominal", title=title) for field, title in pairs]


def _placed(rows: Sequence[Row], sides: Sequence[str]) -> list[Row]:
    """Rows with the place of their side, by which sides are sorted."""
    return [{**row, "place": sides.index(row["side"])} for row in rows]


_BY_PLACE = {"field": "place", "op": "min"}


def _colour(sides: Sequence[str]) -> Any:
    import altair

    shown = altair.Undefined if len(sides) > 1 else None
    return altair.Color(field="side", type="nominal", legend=shown, sort=_BY_PLACE)


def bars(rows: Sequence[Row], sides: Sequence[str], title: str, described: str, line_at: float | None = None) -> Spec:
    """Bars with intervals, or dots on a logarithmic scale where the shortest bar could not be seen.

    A group for each `label`, in it one for each side. A row has label, side, value, low and high (None without an
    interval), end (where the number stands), number, shown (the number with its interval), trust.
    """
    known = [float(row["value"]) for row in rows if row["value"] > 0]
    if known and max(known) > MAX_BAR_RATIO * min(known):
        return _grouped(rows, sides, title, described, "dots", line_at)
    return _grouped(rows, sides, title, described, "bars", line_at)


def speedups(rows: Sequence[Row], sides: Sequence[str], title: str, described: str) -> Spec:
    """Ratios as bars from 1 to either side, on a logarithmic scale: half as fast is as long as twice as fast."""
    return _grouped(rows, sides, title, described, "from one", 1.0)


def _grouped(
    rows: Sequence[Row], sides: Sequence[str], title: str, described: str, kind: str, line_at: float | None
) -> Spec:
    import altair

    if kind != "bars":  # a logarithmic scale has no 0, where an interval may end
        least = min((float(row["value"]) for row in rows if row["value"] > 0), default=1.0) / MAX_BAR_RATIO
        rows = [{**row, "low": None if row["low"] is None else max(row["low"], least)} for row in rows]
    chosen = altair.selection_point(fields=["side"], bind="legend", name="chosen")
    base = altair.Chart(_data(_placed(rows, sides))).encode(
        y=altair.Y(field="label", type="nominal", sort=None, title=None, axis=altair.Axis(domain=False, ticks=False)),
        tooltip=_tips(("label", "case"), ("side", "of"), ("shown", "value"), ("trust", "trust")),
    )
    slots = len({row["label"] for row in rows})
    if slots < len(rows):  # else a group has but one, in the middle
        base = base.encode(yOffset=altair.YOffset(field="side", type="nominal", sort=_BY_PLACE))
        slots = round(slots * (len(sides) + 0.4))
    faded = altair.condition(chosen, altair.value(1), altair.value(0.2))
    x = altair.X(field="value", type="quantitative", **_scale(rows, kind, line_at, title))
    if kind == "dots":
        mark = base.mark_point(size=70).encode(x=x, color=_colour(sides), opacity=faded)
    else:
        mark = base.mark_bar(height={"band": 0.82}, cornerRadius=2).encode(x=x, color=_colour(sides), opacity=faded)
        mark = mark.encode(x2=altair.X2Datum(1)) if kind == "from one" else mark
    known = altair.datum.high != None  # noqa: E711 (an expression of Vega's, not a comparison)
    interval = base.transform_filter(known).mark_rule(strokeWidth=1.5).encode(
        x=altair.X(field="low", type="quantitative"), x2=altair.X2(field="high")
    )  # fmt: skip
    number = base.mark_text(align="left", dx=6).encode(
        x=altair.X(field="end", type="quantitative"), text=altair.Text(field="number", type="nominal")
    )
    layers = [mark.add_params(chosen), interval, number]
    if line_at is not None:
        at = altair.Chart(_data([{"at": line_at}])).mark_rule(strokeDash=[4, 3], opacity=0.7)
        layers.append(at.encode(x=altair.X(field="at", type="quantitative")))
    return {**_finished(altair.layer(*layers), BAR * slots, described), "padding": BEHIND}


def _scale(rows: Sequence[Row], kind: str, line_at: float | None, title: str) -> dict[str, Any]:
    """Scale and axis for the values."""
    import altair

    line = [] if line_at is None else [line_at]
    ends = [*(float(row["end"]) for row in rows), *line] or [1.0]
    if kind == "bars":
        scale = altair.Scale(domain=[0, max(ends) * 1.01], nice=False)
        return {"scale": scale, "axis": altair.Axis(tickCount=5, title=title)}
    lowest = min([*(float(row["low"] or row["value"]) for row in rows if row["value"] > 0), *line], default=1.0)
    top = max(*ends, lowest * 1.05)
    domain = [lowest / (top / lowest) ** 0.04, top * (top / lowest) ** 0.02]
    axis = altair.Axis(values=log_ticks(lowest, top), format="~g", title=title)
    return {"scale": altair.Scale(type="log", domain=domain, nice=False), "axis": axis}


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis from one value to another: 1, 2, 5 and so on, or fewer where it is long."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
        ticks = [value for value in ticks if low * 0.999 <= value <= high * 1.001]
        if len(ticks) <= MAX_TICKS:
            break
    return ticks[:: math.ceil(len(ticks) / MAX_TICKS) or 1]


def _over_sizes(rows: Sequence[Row], over: str, title: str) -> tuple[Any, Any]:
    """The two logarithmic axes of a chart over sizes."""
    import altair

    sizes = sorted({row["x"] for row in rows})
    numbers = [float(row[name]) for row in rows for name in ("value", "low", "high") if row[name]]
    x = altair.X(
        field="x", type="quantitative", scale=altair.Scale(type="log", base=2, nice=False, padding=12),
        axis=altair.Axis(values=sizes, format=",d", grid=False, labelOverlap=True, title=over),
    )  # fmt: skip
    y = altair.Y(
        field="value", type="quantitative", scale=altair.Scale(type="log", nice=False, padding=10),
        axis=altair.Axis(values=log_ticks(min(numbers), max(numbers)), format="~g", title=title),
    )  # fmt: skip
    return x, y


def curves(rows: Sequence[Row], sides: Sequence[str], titles: tuple[str, str], described: str) -> Spec:
    """Lines through points with intervals, both axes logarithmic: x, value, low, high, side, shown, trust."""
    import altair

    x, y = _over_sizes(rows, *titles)
    base = altair.Chart(_data(_placed(rows, sides))).encode(x=x, color=_colour(sides))
    tips = _tips(("side", "of"), ("x", "size"), ("shown", "value"), ("trust", "trust"))
    known = base.transform_filter(altair.datum.low != None)  # noqa: E711
    interval = known.mark_rule().encode(y=altair.Y(field="low", type="quantitative"), y2=altair.Y2(field="high"))
    chart = altair.layer(base.mark_line().encode(y=y), interval, base.mark_point().encode(y=y, tooltip=tips))
    return _finished(chart, 260, described)


def ratios(
    rows: Sequence[Row], titles: tuple[str, str], crossings: Sequence[tuple[float, float, float]], described: str
) -> Spec:
    """How many times as fast one side is as the other over sizes, and where both are equal: x, value, low, high.

    A row has side (which against which), shown and trust too.
    """
    import altair

    x, y = _over_sizes(rows, *titles)
    points = altair.Chart(_data(rows)).encode(x=x)
    tips = _tips(("side", "of"), ("x", "size"), ("shown", "times as fast"), ("trust", "how"))
    known = points.transform_filter(altair.datum.low != None)  # noqa: E711
    equal = altair.Chart(_data([{"at": 1}])).mark_rule(strokeDash=[4, 3], opacity=0.7)
    layers = [
        equal.encode(y=altair.Y(field="at", type="quantitative")),
        points.mark_line().encode(y=y),
        known.mark_rule().encode(y=altair.Y(field="low", type="quantitative"), y2=altair.Y2(field="high")),
        points.mark_point().encode(y=y, tooltip=tips),
    ]
    if crossings:
        equal_at = altair.Chart(_data([{"x": at, "from": low, "to": high, "ratio": 1} for at, low, high in crossings]))
        place = equal_at.encode(y=altair.Y(field="ratio", type="quantitative"))
        ends = {"x": altair.X(field="from", type="quantitative"), "x2": altair.X2(field="to")}
        layers.append(place.mark_rule(strokeWidth=8, opacity=0.3).encode(**ends))
        diamond = place.mark_point(shape="diamond", size=150, style="crossing")
        layers.append(diamond.encode(x=altair.X(field="x", type="quantitative")))
    return _finished(altair.layer(*layers), 240, described)


STAGES = ("warm-up", "steady")


def samples(rows: Sequence[Row], unit: str, described: str) -> Spec:
    """The time of a step against the number of steps before it: process, stage, step, value."""
    import altair

    heights = altair.Scale(zero=False, clamp=True, nice=False)
    chart = altair.Chart(_data(rows)).mark_circle(size=14).encode(
        x=altair.X(field="step", type="quantitative", title="steps done", scale=altair.Scale(nice=False, zero=False),
                   axis=altair.Axis(tickCount=4, grid=False, format="~s")),
        y=altair.Y(field="value", type="quantitative", title=unit, scale=heights, axis=altair.Axis(tickCount=4)),
        color=altair.Color(field="process", type="nominal", legend=None),
        opacity=altair.Opacity(field="stage", type="ordinal", legend=None,
                               scale=altair.Scale(domain=list(STAGES), range=[0.25, 0.75])),
        tooltip=_tips(("process", "process"), ("stage", "stage"), ("step", "steps done"), ("value", unit)),
    )  # fmt: skip
    return _finished(chart, 150, described)
