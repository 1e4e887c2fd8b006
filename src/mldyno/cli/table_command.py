"""`mldyno table`: results on rows and columns."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import Words, complete_stored, json_option, print_data, say, since_option, store_option
from mldyno.units import PERIODS
from mldyno.views.tables import FORMATS


@click.command("table")
@click.argument("targets", nargs=-1, shell_complete=complete_stored)
@click.option(
    "--rows",
    type=Words(),
    metavar="LIST",
    default="workload,mode,batch,seq",
    show_default=True,
    help="Axes that make rows.",
)
@click.option(
    "--cols", type=Words(), metavar="LIST", default="machine,device", show_default=True, help="Axes that make columns."
)
@click.option(
    "--value",
    help="step (the default), throughput, throughput:PHASE, speedup, score, time:100steps, peak_share, or any metric.",
)
@click.option("--by", metavar="AXIS", help="Show the speed-up along this axis.")
@click.option("--per", type=click.Choice(list(PERIODS)), help="Count a throughput over this time (s).")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="terminal", show_default=True, help="How to print it."
)
@since_option
@store_option
@json_option
def command(
    targets: tuple[str, ...],
    rows: list[str],
    cols: list[str],
    value: str | None,
    by: str | None,
    per: str | None,
    form: str,
    since: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Lay the newest results out on rows and columns, published machines among them.

    Without targets, all that is stored. Several exported files make one table, with their machines
    as columns. `-` means that memory ran out. A time of steps is projected from as many steps as
    were needed to know a step well, and says from how many.

    \b
    Examples:
      mldyno table mlp --rows mode,batch --cols machine,device
      mldyno table mine.jsonl theirs.jsonl --format markdown
      mldyno table bert-base --rows mode,batch,seq --cols machine,device --value time:100steps
      mldyno table mlp --by precision
      mldyno table mlp --value throughput --per min
      mldyno table --since yesterday
    """
    form = "json" if as_json else form
    show = click.echo if form == "terminal" else print_data
    show(api.table(targets, rows, cols, value, store, by, since, per, say).to(form))
