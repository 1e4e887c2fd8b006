"""`mldyno table`: results on rows and columns."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import Words, complete_targets, json_option, store_option
from mldyno.views.tables import FORMATS, render


@click.command("table")
@click.argument("target", required=False, shell_complete=complete_targets)
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
    default="step",
    show_default=True,
    help="step, throughput, throughput:PIECE, speedup, time:100steps, first_step, roof, or any metric.",
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print it."
)
@store_option
@json_option
def command(
    target: str | None, rows: list[str], cols: list[str], value: str, form: str, store: str | None, as_json: bool
) -> None:
    """Lay the newest results out on rows and columns, published machines among them.

    `-` means that memory ran out. A time of steps is projected from as many steps as were needed
    to know a step well, and says from how many.

    \b
    Examples:
      mldyno table mlp --rows mode,batch --cols machine,device
      mldyno table bert-base --rows mode,batch,seq --cols machine,device --value time:100steps
      mldyno table mlp --value throughput --format markdown
    """
    click.echo(render(api.table(target, rows, cols, value, store), "json" if as_json else form))
