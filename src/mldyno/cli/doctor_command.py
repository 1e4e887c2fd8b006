"""`mldyno doctor`: why a GPU is not used, what works on each device, how free and quiet the machine is."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.measuring import DURATION
from mldyno.cli.options import json_option, print_json, store_option
from mldyno.cli.selftest_command import progress
from mldyno.runner.events import Interrupted
from mldyno.views.doctor import as_json as content
from mldyno.views.doctor import report


@click.command("doctor")
@click.option("--quick", is_flag=True, help="A few seconds: no noise test, no threads, nothing compiled.")
@click.option("--noise", type=DURATION, metavar="TIME", help="Listen for noise so long (60s; none with --quick).")
@click.option("--framework", help="Look only at this one: torch, or fake for the fake framework.")
@store_option
@json_option
def command(quick: bool, noise: float | None, framework: str | None, store: str | None, as_json: bool) -> None:
    """Why is the GPU not used? What works on each device? How free and how quiet is this machine?

    Facts, features that are tried in processes of their own, and findings, each with its cure. Takes
    three to four minutes, of which one is for noise, and says how long is left; leave the machine alone
    meanwhile. Nothing is stored.

    \b
    Examples:
      mldyno doctor
      mldyno doctor --quick --json
    """
    try:
        with progress() as shown:
            checkup = api.doctor(quick, noise, framework, store, shown)
    except (Interrupted, KeyboardInterrupt) as end:
        raise Interrupted(
            f"{str(end) or 'ended by SIGINT'}; a check-up that was not completed tells nothing."
        ) from None
    if as_json:
        print_json(content(checkup))
    else:
        click.echo(report(checkup))
