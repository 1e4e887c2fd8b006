"""Every chart, defined once with Altair as a function of plain rows: bars, curves, ratios over sizes, samples.

Rules: a chart draws what it is given and computes nothing; text is data, never markup. Colours come from a
theme: in the page they are the style sheet's variables, so that a chart follows light, dark and print without
being drawn again; in a picture they are the colours themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
                     "labelFontSize": _TEXT, "titleFontSize": _TEXT, "titleFontWeight": "normal", "labelLimit": 170},
            "legend": {"labelColor": ink, "titleColor": soft, "labelFontSize": _TEXT, "orient": "top", "title": None,
                       "labelLimit": 300, "columns": 3, "symbolType": "square"},
            "range": {"category": [self.colours[name] for name in SIDES]},
            "text": {"color": ink, "fontSize": _TEXT}, "rule": {"color": ink}, "bar": {"cornerRadiusEnd": 2},
            "line": {"strokeWidth": 2}, "point": {"filled": True, "size": 45},
        }  # fmt: skip


IN_PAGE = Theme({name: f"var(--{name})" for name in LIGHT}, "system-ui, sans-serif")
IN_PICTURE = Theme(LIGHT)


def _finished(chart: Any, height: Any, described: str) -> Spec:
    """The chart as a specification as wide as its place."""
    sized = chart.properties(width="container", height=height, description=described, autosize=FITTED)
    found: Spec = sized.to_dict(validate=False)
    found.pop("config", None)  # Altair's own; a theme's takes its place
    return found


def for_picture(spec: Spec, width: int = PICTURE_WIDTH) -> Spec:
    """The same chart for a picture: with a width of its own, the colours themselves, and a ground."""
    config = {**IN_PICTURE.config(), "background": LIGHT["paper"]}
    return {**spec, "width": width, "config": config}


def _data(rows: Sequence[Row]) -> Any:
    import altair

    return altair.Data(values=[dict(row) for row in rows])


def _tips(*pairs: tuple[str, str]) -> list[Any]:
    import altair

    return [altair.Tooltip(field=field, type="nominal", title=title) for field, title in pairs]


def _colour(sides: Sequence[str], legend: bool = True) -> Any:
    import altair

    shown = altair.Undefined if legend and len(sides) > 1 else None
    return altair.Color(field="side", type="nominal", scale=altair.Scale(domain=list(sides)), legend=shown, sort=None)


def bars(rows: Sequence[Row], sides: Sequence[str], title: str, described: str, line_at: float | None = None) -> Spec:
    """Bars with intervals: a group of bars for each `label`, one of them for each side; longer is more.

    A row has label, side, value, low and high (None without an interval), shown (the number in words), trust.
    """
    import altair

    chosen = altair.selection_point(fields=["side"], bind="legend", name="chosen")
    base = altair.Chart(_data(rows)).encode(
        y=altair.Y(field="label", type="nominal", sort=None, title=None, axis=altair.Axis(domain=False, ticks=False)),
        yOffset=altair.YOffset(field="side", type="nominal", sort=list(sides)),
        tooltip=_tips(("label", "case"), ("side", "of"), ("shown", "value"), ("trust", "trust")),
    )
    scale = altair.Scale(zero=True, nice=False, padding=1)
    bar = base.mark_bar(height={"band": 0.82}).encode(
        x=altair.X(field="value", type="quantitative", title=title, scale=scale, axis=altair.Axis(tickCount=5)),
        color=_colour(sides),
        opacity=altair.condition(chosen, altair.value(1), altair.value(0.2)),
    )
    known = altair.datum.low != None  # noqa: E711 (an expression of Vega's, not a comparison)
    interval = base.transform_filter(known).mark_rule(strokeWidth=1.5).encode(
        x=altair.X(field="low", type="quantitative"), x2=altair.X2(field="high")
    )  # fmt: skip
    number = base.mark_text(align="left", dx=5).encode(
        x=altair.X(field="end", type="quantitative"), text=altair.Text(field="shown", type="nominal")
    )
    layers = [bar.add_params(chosen), interval, number]
    if line_at is not None:
        at = altair.Chart(_data([{"at": line_at}])).mark_rule(strokeDash=[4, 3], opacity=0.7)
        layers.append(at.encode(x=altair.X(field="at", type="quantitative")))
    chart = altair.layer(*layers)
    # The numbers behind the bars need room that the scale does not know of.
    longest = max((float(row["end"]) for row in rows), default=1.0)
    chart.layer[0].encoding.x.scale = altair.Scale(domain=[0, max(longest, line_at or 0.0) * 1.28], nice=False)
    return _finished(chart, altair.Step(BAR), described)


def curves(rows: Sequence[Row], sides: Sequence[str], titles: tuple[str, str], described: str) -> Spec:
    """Lines through points with intervals, both axes logarithmic: x, value, low, high, side, shown, trust."""
    import altair

    x = altair.X(
        field="x", type="quantitative", title=titles[0], scale=altair.Scale(type="log", base=2, nice=False, padding=12),
        axis=altair.Axis(values=sorted({row["x"] for row in rows}), format=",d", grid=False, labelOverlap=True),
    )  # fmt: skip
    y = altair.Y(
        field="value", type="quantitative", title=titles[1], scale=altair.Scale(type="log", nice=False, padding=10),
        axis=altair.Axis(tickCount=5, format="~s"),
    )  # fmt: skip
    base = altair.Chart(_data(rows)).encode(x=x, color=_colour(sides))
    tips = _tips(("side", "of"), ("x", titles[0]), ("shown", "value"), ("trust", "trust"))
    known = base.transform_filter(altair.datum.low != None)  # noqa: E711
    interval = known.mark_rule().encode(y=altair.Y(field="low", type="quantitative"), y2=altair.Y2(field="high"))
    chart = altair.layer(base.mark_line().encode(y=y), interval, base.mark_point().encode(y=y, tooltip=tips))
    return _finished(chart, 260, described)


def ratios(
    rows: Sequence[Row], over: str, other: str, base: str, crossings: Sequence[tuple[float, float, float]],
    described: str,
) -> Spec:  # fmt: skip
    """How many times as fast one side is as the other over sizes, and where both are equal: x, value, low, high."""
    import altair

    x = altair.X(
        field="x", type="quantitative", title=over, scale=altair.Scale(type="log", base=2, nice=False, padding=12),
        axis=altair.Axis(values=sorted({row["x"] for row in rows}), format=",d", grid=False, labelOverlap=True),
    )  # fmt: skip
    y = altair.Y(
        field="value", type="quantitative", title=f"times as fast as {base}",
        scale=altair.Scale(type="log", nice=False, padding=10), axis=altair.Axis(tickCount=5, format="~g"),
    )  # fmt: skip
    points = altair.Chart(_data(rows)).encode(x=x)
    tips = _tips(("x", over), ("shown", f"{other} against {base}"), ("trust", "how"))
    known = points.transform_filter(altair.datum.low != None)  # noqa: E711
    layers = [
        altair.Chart(_data([{"at": 1}])).mark_rule(strokeDash=[4, 3], opacity=0.7).encode(
            y=altair.Y(field="at", type="quantitative")
        ),
        points.mark_line(color=altair.Undefined).encode(y=y),
        known.mark_rule().encode(y=altair.Y(field="low", type="quantitative"), y2=altair.Y2(field="high")),
        points.mark_point().encode(y=y, tooltip=tips),
    ]  # fmt: skip
    if crossings:
        met = altair.Chart(_data([{"x": at, "from": low, "to": high, "one": 1} for at, low, high in crossings]))
        place = met.encode(y=altair.Y(field="one", type="quantitative"))
        range_ = place.mark_rule(strokeWidth=7, opacity=0.35).encode(
            x=altair.X(field="from", type="quantitative"), x2=altair.X2(field="to")
        )
        layers += [
            range_,
            place.mark_point(shape="diamond", size=130).encode(x=altair.X(field="x", type="quantitative")),
        ]
    return _finished(altair.layer(*layers), 240, described)


PHASES = ("warm-up", "steady")


def samples(rows: Sequence[Row], unit: str, described: str) -> Spec:
    """The time of a step against the number of steps before it: process, phase, step, value."""
    import altair

    chart = altair.Chart(_data(rows)).mark_circle(size=14, opacity=0.65).encode(
        x=altair.X(field="step", type="quantitative", title="steps done", scale=altair.Scale(nice=False, zero=False),
                   axis=altair.Axis(tickCount=4, grid=False, format="~s")),
        y=altair.Y(field="value", type="quantitative", title=unit, scale=altair.Scale(zero=False),
                   axis=altair.Axis(tickCount=4)),
        color=altair.Color(field="process", type="nominal", legend=None),
        opacity=altair.Opacity(field="phase", type="nominal", legend=None,
                               scale=altair.Scale(domain=list(PHASES), range=[0.25, 0.75])),
        tooltip=_tips(("process", "process"), ("phase", "phase"), ("step", "steps done"), ("value", unit)),
    )  # fmt: skip
    return _finished(chart, 150, described)
