"""`mldyno quick`: a few minutes, then answers in plain words."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mldyno import api
from mldyno.analysis.comparisons import Comparison
from mldyno.analysis.outcomes import Outcome
from mldyno.cli.axis_options import axis_options
from mldyno.cli.measuring import budget_option, watched
from mldyno.cli.options import store_option
from mldyno.errors import NOT_ALL_OK, OK
from mldyno.store import Store
from mldyno.units import digits, show_seconds
from mldyno.views.tables import render
from mldyno.views.words import machine_lines, sentence, trust_lines


@click.command("quick")
@budget_option("8s")
@axis_options("framework")
@store_option
def command(budget: float | None, framework: list[str] | None, store: str | None) -> int:
    """A few minutes: what this machine is, how fast it trains and runs models, on every device.

    \b
    Example:
      mldyno quick
    """
    for line in machine_lines(api.this_machine()):
        click.echo(line)
    kept = Store(store)
    plan = api.quick_plan({"budget": budget}, framework)
    forecasts = api.forecast(plan, kept)
    total = show_seconds(sum(one.seconds for one in forecasts))
    click.echo(f"{len(plan.cases)} cases, about {total} in all.\n")
    results = watched(plan, kept, store, forecasts=forecasts)
    rows, cols = ("workload", "mode", "batch", "placement"), ("device",)
    click.echo(render(results.table(rows, cols), "text"))
    click.echo()
    click.echo(render(results.table(rows, cols, "throughput"), "text", notes_too=False))
    click.echo()
    for line in trust_lines(results.outcomes):
        click.echo(line)
    click.echo()
    for line in verdicts(results, kept):
        click.echo(f"- {line}")
    return OK if results.all_ok else NOT_ALL_OK


def verdicts(results: api.Results, store: Store) -> list[str]:
    """What the numbers say, each sentence backed by a comparison."""
    lines = [sentence(found) for axis in ("device", "placement") for found in results.compare(axis)]
    for outcome in results.outcomes:
        if outcome.status != "ok":
            lines.append(f"{outcome.case.id}: {outcome.status}: {outcome.reason}")
    if all(outcome.case.framework == "fake" for outcome in results.outcomes):
        return [*lines, "this was a rehearsal: nothing was computed, and no time is real"]
    lines += against_published(api.against_published(results, store))
    rates = [(o, o.figure("step")) for o in results.outcomes if o.status == "ok"]
    best = max(
        ((_rate(o, f.value), o) for o, f in rates if f is not None and _rate(o, f.value)),
        default=None,
        key=lambda x: x[0],
    )
    if best is not None:
        lines.append(f"the highest rate seen was {digits(best[0])} GFLOP/s, in {best[1].case.id}")
    return lines


def against_published(found: Sequence[Comparison]) -> list[str]:
    """One line per case: this machine's speed as a multiple of each published one's, slowest first."""
    told: dict[str, list[tuple[float, str]]] = {}
    for one in found:
        theirs = one.base
        doubt = " (suspect)" if any(w.code == "suspect" for w in theirs.records[0].warnings) else ""
        way, ratio = ("faster", one.ratio) if one.ratio >= 1 else ("slower", 1 / one.ratio)
        words = f"{digits(ratio, most=2)}x {way} than {theirs.machine} {theirs.case.device}{doubt}"
        told.setdefault(one.other.case.id, []).append((one.ratio, words))
    return [
        f"{case}: beside published machines, this one is " + ", ".join(words for _, words in sorted(rows))
        for case, rows in told.items()
    ]


def _rate(outcome: Outcome, step: float) -> float:
    """GFLOP/s of an outcome; 0 where its operations are not counted."""
    flops = outcome.good[0].facts.get("flops_per_step")
    return float(flops) / step / 1e9 if isinstance(flops, int | float) else 0.0
