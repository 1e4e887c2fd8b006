"""`mldyno table`: results on rows and columns."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import Words, complete_targets, json_option, store_option
from mldyno.views.tables import FORMATS


@click.command("table")
@click.argument("targets", nargs=-1, shell_complete=complete_targets)
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
    help="step (the default), throughput, throughput:PHASE, speedup, time:100steps, peak_share, or any metric.",
)
@click.option("--by", metavar="AXIS", help="Show the speed-up along this axis.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="terminal", show_default=True, help="How to print it."
)
@store_option
@json_option
def command(
    targets: tuple[str, ...],
    rows: list[str],
    cols: list[str],
    value: str | None,
    by: str | None,
    form: str,
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
    """
    click.echo(api.table(targets, rows, cols, value, store, by).to("json" if as_json else form))
