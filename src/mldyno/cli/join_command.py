"""`mldyno join`: this machine takes part in what another one measures."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.measuring import DURATION
from mldyno.cli.options import say
from mldyno.errors import OK
from mldyno.units import count, show_seconds


@click.command("join")
@click.argument("address", metavar="HOST:PORT")
@click.option("--token", required=True, help="Who may join: as `mldyno run --nodes` shows it.")
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="Ranks in all, as on the first machine.")
@click.option("--nodes", type=click.IntRange(min=2), default=2, show_default=True, help="Machines in all.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of each rank, as on the first machine.")
@click.option("--wait", type=DURATION, default=60.0, metavar="TIME", help="End when no job begins for so long (60s).")
def command(address: str, token: str, ranks: int, nodes: int, threads: int | None, wait: float) -> int:
    """Take part in training that another machine measures: its ranks run on both.

    The first machine shows the whole line to type here. What the ranks say to each other is not encrypted:
    use a network that you trust.

    \b
    Examples:
      mldyno run bert-base --mode train --ranks 2 --nodes 2 --rendezvous 10.0.0.1:29400
      mldyno join 10.0.0.1:29400 --token 0123456789abcdef --ranks 2
    """
    jobs = api.join(address, token, ranks, nodes, threads, wait, say)
    say(f"took part in {count(jobs, 'job')}; no other began for {show_seconds(wait)}")
    return OK
