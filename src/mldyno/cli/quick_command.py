"""`mldyno quick`: at most three minutes, then answers in plain words."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import click

from mldyno import api
from mldyno.cli.measuring import budget_option, limit_option, loudness_options, watched
from mldyno.cli.options import store_option
from mldyno.errors import NOT_ALL_OK, OK, MldynoError
from mldyno.records import Record
from mldyno.store import Store, transfer
from mldyno.units import count, digits, show_seconds
from mldyno.views.screens import screen


@click.command("quick")
@budget_option("6s")
@limit_option(" (160s)")
@click.option("--framework", default="torch", show_default=True, help="torch, or fake for the fake framework.")
@loudness_options
@store_option
def command(budget: float | None, limit: float | None, framework: str, loudness: str | None, store: str | None) -> int:
    """At most three minutes: what this machine is, how fast it trains and runs models, on every device.

    \b
    Example:
      mldyno quick
    """
    opened = Store(store)
    chosen = api.quick_plan({"budget": budget, "limit": limit}, framework, opened)
    notes = list(chosen.notes)
    if chosen.setting is not None:
        variable, _, value = chosen.setting.name.partition("=")
        os.environ[variable] = value
        notes.insert(0, f"other programs take cores: threads that wait sleep ({chosen.setting.name}), which makes a "
                        f"step {digits(chosen.setting.ratio or 1.0, most=2)} times as fast here")  # fmt: skip
    total = min(sum(forecast.seconds for forecast in chosen.forecasts), chosen.plan.limit or math.inf)
    click.echo(f"{count(len(chosen.plan.cases), 'case')}, about {show_seconds(total)} in all.", err=True)
    results = watched(chosen.plan, opened, store, forecasts=chosen.forecasts, loudness=loudness)
    others = api.other_machines(results, opened)
    verdicts, divisions = api.verdicts(results, opened), api.standings(results, others)
    for line in screen(results.outcomes, verdicts, divisions, notes, _report(results, opened, others)):
        click.echo(line)
    return OK if results.all_ok else NOT_ALL_OK


def _report(results: api.Results, store: Store, others: Sequence[Record]) -> str:
    """Where the page about this run is: beside the store, which is a place that can be written to."""
    try:
        folder = transfer.folder(str(store.path.parent / "reports"))
        beside = [record for record in others if record.provenance != "published"]
        return f"report: {results.report(os.path.join(folder, f'{results.run}.html'), beside)}"
    except MldynoError as error:
        return f"There is no report: {error}"
