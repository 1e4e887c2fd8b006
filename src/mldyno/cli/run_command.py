"""`mldyno run`: measure workloads or suites."""

from __future__ import annotations

from typing import Any

import click

from mldyno import api
from mldyno.cli.axis_options import DURATION, FRACTION, axis_options
from mldyno.cli.options import complete_targets, print_json, store_option
from mldyno.cli.progress import kept_so_far, listener_for
from mldyno.errors import NOT_ALL_OK, OK
from mldyno.plan import Plan
from mldyno.records import AXES, axis_named
from mldyno.runner.interrupts import Interrupted
from mldyno.store import Store
from mldyno.units import show_seconds
from mldyno.views.tables import aligned, render
from mldyno.views.words import sentence, trust_lines


@click.command("run")
@click.argument("targets", nargs=-1, shell_complete=complete_targets)
@axis_options
@click.option(
    "--steps", type=click.IntRange(min=1), help="Run exactly so many steps instead of stopping at the target."
)
@click.option("--budget", type=DURATION, metavar="TIME", help="Measure each case for at most so long (20s).")
@click.option("--target", type=FRACTION, metavar="SHARE", help="Stop when the time is known this well (2%).")
@click.option("--repeats", type=click.IntRange(1, 1000), help="Measure each case in so many fresh processes (3).")
@click.option("--timeout", type=DURATION, metavar="TIME", help="End a case that takes longer in all (15m).")
@click.option("--by", metavar="AXIS", help="Compare the cases along this axis at the end.")
@click.option("--resume", is_flag=True, help="Go on with the last run that did not end; runs only what is missing.")
@click.option("--dry-run", is_flag=True, help="Show the cases and how long they would take; run nothing.")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON.")
def command(
    targets: tuple[str, ...],
    by: str | None,
    resume: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure workloads or a suite, on every axis you name.

    Each axis takes a comma list, and the lists multiply. Every case runs in a process of its own.
    Cases that do the same work in different ways are then measured against each other, in turns.

    \b
    Examples:
      mldyno run mlp
      mldyno run mlp resnet50 --mode infer --batch-size 8,32 --target 5%
      mldyno run mlp --placement device,roundtrip --repeats 5 --by placement
      mldyno run quick --dry-run
    """
    axis = axis_named(by) if by else None
    names = [one.name for one in AXES if one.name != "workload"]
    axes = {name: options.pop(name) for name in names}
    kept = Store(store)
    run_id = None
    if resume and not targets:
        run_id, plan = api.unfinished(kept, None)
    else:
        plan = api.make_plan(targets, axes, {**options, "by": axis})
        if resume:
            run_id, plan = api.unfinished(kept, plan)
    if dry_run:
        return _preview(plan, kept, as_json)
    forecasts = api.forecast(plan, kept)
    try:
        results = api.run_plan(plan, kept, listener_for(forecasts, plan.repeats, as_json), run_id)
    except Interrupted as end:
        raise kept_so_far(end, store) from None
    if not as_json:
        tell(results, plan.by, kept)
    return OK if results.all_ok else NOT_ALL_OK


def tell(results: api.Results, axis: str | None, store: Store) -> None:
    """The results as a table, with comparisons where asked for; those of a suite among published ones."""
    click.echo(render(results.table(rows=("workload", "mode", "batch"), cols=("device",)), "text"))
    click.echo()
    for line in trust_lines(results.outcomes):
        click.echo(line)
    if axis:
        click.echo()
        for comparison in results.compare(axis):
            click.echo(sentence(comparison))
    placed = api.placed(results, store)
    if placed is not None:
        click.echo("\nbeside published machines:")
        click.echo(render(placed, "text"))


def _preview(plan: Plan, store: Store, as_json: bool) -> int:
    forecasts = api.forecast(plan, store)
    if as_json:
        print_json({"cases": [{"id": f.case.id, "seconds": f.seconds, "known": f.known} for f in forecasts],
                    "seconds": sum(f.seconds for f in forecasts)})  # fmt: skip
        return OK
    body = [[f.case.id, show_seconds(f.seconds), "as last time" if f.known else "guessed"] for f in forecasts]
    click.echo(aligned(["case", "time", ""], body, 1))
    total = show_seconds(sum(f.seconds for f in forecasts))
    rounds = f" in {plan.repeats} rounds" if plan.repeats > 1 else ""
    click.echo(f"{len(plan.cases)} cases{rounds}, about {total} in all. Nothing was run.")
    return OK
