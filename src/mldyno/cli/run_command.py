"""`mldyno run`: measure workloads or suites."""

from __future__ import annotations

from typing import Any

import click

from mldyno import api
from mldyno.cli.axis_options import DURATION, FRACTION, axis_options
from mldyno.cli.options import complete_targets, print_json, store_option
from mldyno.cli.progress import CountedBar, kept_so_far, listener_for
from mldyno.errors import NOT_ALL_OK, OK, UsageError
from mldyno.plan import Plan
from mldyno.records import AXES, axis_named
from mldyno.runner.interrupts import Interrupted
from mldyno.store import Store
from mldyno.suites.reader import DATA
from mldyno.units import count, show_bytes, show_seconds
from mldyno.views.apart import apart_lines
from mldyno.views.tables import aligned, render
from mldyno.views.words import sentence, trust_lines

BEHIND_DASHES = "mldyno.command"


class RunCommand(click.Command):
    """Keeps what stands behind `--` apart: it is a command of the user's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments before the dashes, as usual."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[BEHIND_DASHES] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command("run", cls=RunCommand)
@click.argument("targets", nargs=-1, shell_complete=complete_targets)
@axis_options
@click.option(
    "--steps", type=click.IntRange(min=1), help="Run exactly so many steps instead of stopping at the target."
)
@click.option("--budget", type=DURATION, metavar="TIME", help="Measure each case for at most so long (20s).")
@click.option("--target", type=FRACTION, metavar="SHARE", help="Stop when the time is known this well (2%).")
@click.option("--repeats", type=click.IntRange(1, 1000), help="Measure each case in so many fresh processes (3).")
@click.option("--timeout", type=DURATION, metavar="TIME", help="End a case that takes longer in all (15m).")
@click.option(
    "--data", type=click.Choice(DATA), help="Data set for placement loader: real, synthetic, or what there is."
)
@click.option("--by", metavar="AXIS", help="Compare the cases along this axis at the end.")
@click.option("--resume", is_flag=True, help="Go on with the last run that did not end; runs only what is missing.")
@click.option("--dry-run", is_flag=True, help="Show the cases, their time and memory, and what can't fit; run nothing.")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    by: str | None,
    resume: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure workloads or a suite, on every axis you name; or, behind --, a command of yours as a whole.

    Each axis takes a comma list, and the lists multiply. Every case runs in a process of its own.
    Cases that do the same work in different ways are then measured against each other, in turns.
    Of a command the first run is kept apart from the others, which find everything cached.

    \b
    Examples:
      mldyno run mlp
      mldyno run mlp resnet50 --mode infer --batch-size 8,32 --target 5%
      mldyno run mlp --placement device,roundtrip --repeats 5 --by placement
      mldyno run apple-silicon-bert --dry-run
      mldyno run mnist-cnn --placement loader --data synthetic
      mldyno run --budget 2m -- python train.py
    """
    axis = axis_named(by) if by else None
    names = [one.name for one in AXES if one.name != "workload"]
    axes = {name: options.pop(name) for name in names}
    kept = Store(store)
    run_id = None
    words = ctx.meta.get(BEHIND_DASHES)
    if resume and not targets and words is None:
        run_id, plan = api.unfinished(kept, None)
    else:
        settings = {**options, "by": axis}
        plan = api.make_plan(targets, axes, settings) if words is None else _of_words(words, targets, axes, settings)
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


def _of_words(words: tuple[str, ...], targets: tuple[str, ...], axes: dict[str, Any], settings: dict[str, Any]) -> Plan:
    """The plan for a command; workloads and axes have no place beside it."""
    named = [*targets, *(f"--{name}" for name, values in axes.items() if values)]
    if named:
        raise UsageError(f"a command is run as it stands; leave {', '.join(named)} away before --.")
    return api.command_plan(words, settings)


def tell(results: api.Results, axis: str | None, store: Store) -> None:
    """The results as a table, with comparisons where asked for; those of a suite among published ones."""
    click.echo(render(results.table(rows=("workload", "mode", "batch"), cols=("device",)), "text"))
    click.echo()
    for line in [*apart_lines(results.outcomes), *trust_lines(results.outcomes)]:
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
    with CountedBar("looking at the cases") as looked:
        forecasts = api.foretell(plan, store, looked)
    if as_json:
        cases = [{"id": f.case.id, "seconds": f.seconds, "known": f.known, "memory": f.memory, "fits": f.fits,
                  "note": f.note} for f in forecasts]  # fmt: skip
        print_json({"cases": cases, "seconds": sum(f.seconds for f in forecasts if f.fits is not False)})
        return OK
    body = [_row(one) for one in forecasts]
    click.echo(aligned(["case", "time", "memory", ""], body, 1))
    running = [one for one in forecasts if one.fits is not False]
    total = show_seconds(sum(one.seconds for one in running))
    rounds = f" in {plan.repeats} rounds" if plan.repeats > 1 else ""
    left = len(forecasts) - len(running)
    without = f", without {count(left, 'case')} that can't fit" if left else ""
    click.echo(f"{count(len(plan.cases), 'case')}{rounds}, about {total} in all{without}. Nothing was run.")
    return OK


def _row(one: api.Forecast) -> list[str]:
    memory = "unknown" if one.memory is None else show_bytes(one.memory)
    return [one.case.id, show_seconds(one.seconds), memory, one.note or ("as last time" if one.known else "foreseen")]
