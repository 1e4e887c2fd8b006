"""`mldyno quick`: at most three minutes, then answers in plain words."""

from __future__ import annotations

import os

import click

from mldyno import api
from mldyno.cli.measuring import budget_option, limit_option, loudness_options, watched
from mldyno.cli.options import store_option
from mldyno.errors import NOT_ALL_OK, OK, MldynoError
from mldyno.store import Store, transfer
from mldyno.units import count, show_seconds
from mldyno.views.answers import verdict_lines
from mldyno.views.sentences import FAKE_FRAMEWORK, machine_lines, trust_summary
from mldyno.views.tables import render


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
    for line in machine_lines(api.this_machine()):
        click.echo(line)
    opened = Store(store)
    chosen = api.quick_plan({"budget": budget, "limit": limit}, framework, opened)
    total = show_seconds(sum(forecast.seconds for forecast in chosen.forecasts))
    click.echo(f"{count(len(chosen.plan.cases), 'case')}, about {total} in all.\n")
    results = watched(chosen.plan, opened, store, forecasts=chosen.forecasts, loudness=loudness)
    for line in lines(results, opened, chosen.notes):
        click.echo(line)
    click.echo(f"\n{_report(results, opened)}")
    return OK if results.all_ok else NOT_ALL_OK


def _report(results: api.Results, store: Store) -> str:
    """Where the page about this run is: beside the store, which is a place that can be written to."""
    try:
        folder = transfer.folder(str(store.path.parent / "reports"))
        return f"Charts and all details: {results.report(os.path.join(folder, f'{results.run}.html'))}"
    except MldynoError as error:
        return f"There is no report: {error}"


def lines(results: api.Results, store: Store, notes: tuple[str, ...]) -> list[str]:
    """What is said after a run: the times, how far they can be trusted, and last what they say."""
    rows, cols = ("workload", "mode", "batch", "seq", "placement"), ("device", "precision")
    times = [render(results.table(rows, cols), "terminal"), "", *trust_summary(results.outcomes), ""]
    verdicts = verdict_lines(api.verdicts(results, store))
    if all(outcome.case.framework == "fake" for outcome in results.outcomes):
        verdicts.append(FAKE_FRAMEWORK)
    failed = [outcome for outcome in results.outcomes if outcome.status != "ok"]
    bad = [f"{outcome.case.id}: {outcome.status}: {outcome.reason}" for outcome in failed]
    return [*times, *(f"- {line}" for line in (*verdicts, *bad, *notes))]
