"""`mldyno history`: what was measured, newest first."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import json_option, print_json, say, since_option, store_option
from mldyno.views.records import history_lines


@click.command("history")
@click.argument("what", required=False)
@click.option("--most", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many to list.")
@since_option
@store_option
@json_option
def command(what: str | None, most: int, since: str | None, store: str | None, as_json: bool) -> None:
    """What was measured, newest first, run by run, whatever came of it.

    \b
    Examples:
      mldyno history
      mldyno history mlp/train --most 50
      mldyno history --since yesterday
    """
    records = api.history(what, most, store, since, say)
    if as_json:
        rows = [{"id": r.id, "created": r.created, "run": r.run.id, "case": r.case.id, "machine": r.machine.name,
                 "status": r.status, "reason": r.reason, "provenance": r.provenance,
                 "imported_from": r.imported_from or None} for r in records]  # fmt: skip
        print_json({"records": rows})
        return
    if not records:
        about = f"{f' for {what!r}' if what else ''} {f'since {since}' if since else 'yet'}."
        click.echo(f"Nothing measured{about}{'' if what or since else ' Begin with: mldyno quick'}")
    for line in history_lines(records):
        click.echo(line)
