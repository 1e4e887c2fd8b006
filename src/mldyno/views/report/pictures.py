"""The charts of a report as pictures, PNG or SVG, by vl-convert: the same definitions as in the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mldyno.views.charts import STAGES, for_picture
from mldyno.views.report.parts import Chart, Section, Traces

SCALE = 2.0  # pixels of a PNG for each of the chart


def charts_of(sections: Sequence[Section]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name and a specification for each chart, samples of the first cases among them."""
    for section in sections:
        for part in section.parts:
            if isinstance(part, Chart):
                yield part.id, for_picture(part.spec, part.title)
            elif isinstance(part, Traces):
                for number, trace in enumerate(part.traces[: part.shown]):
                    yield f"trace-{number}", for_picture(filled(part.specs[trace["unit"]], trace), trace["title"])


def filled(spec: dict[str, Any], trace: dict[str, Any]) -> dict[str, Any]:
    """The chart of samples with the samples of one case in it, as the page does it."""
    rows = [{"process": process, "stage": STAGES[steady], "step": step, "value": value}
            for process, steady, step, value in trace["rows"]]  # fmt: skip
    height = {**spec["encoding"]["y"], "scale": {**spec["encoding"]["y"]["scale"], "domain": trace["ends"]}}
    return {**spec, "data": {"values": rows}, "encoding": {**spec["encoding"], "y": height}}


def drawn(spec: dict[str, Any], form: str) -> bytes:
    """The picture of a specification."""
    import vl_convert

    if form == "svg":
        text: str = vl_convert.vegalite_to_svg(spec)
        return text.encode()
    picture: bytes = vl_convert.vegalite_to_png(spec, scale=SCALE)
    return picture
