"""`mldyno history`: what was measured, newest first."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import json_option, print_json, store_option
from mldyno.views.sentences import headline
from mldyno.views.tables import aligned


@click.command("history")
@click.argument("what", required=False)
@click.option("--most", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many to list.")
@store_option
@json_option
def command(what: str | None, most: int, store: str | None, as_json: bool) -> None:
    """What was measured, newest first, whatever came of it.

    \b
    Examples:
      mldyno history
      mldyno history mlp/train --most 50
    """
    records = api.history(what, most, store)
    if as_json:
        rows = [{"id": r.id, "created": r.created, "run": r.run.id, "case": r.case.id, "machine": r.machine.name,
                 "status": r.status, "reason": r.reason, "provenance": r.provenance,
                 "imported_from": r.imported_from or None} for r in records]  # fmt: skip
        print_json({"records": rows})
        return
    if not records:
        click.echo(f"Nothing measured for '{what}' yet." if what else "Nothing measured yet. Begin with: mldyno quick")
        return
    header = ["when (UTC)", "id", "case", "outcome"]
    body = [[r.created[:19].replace("T", " "), r.id[:10], r.case.id, headline(r)] for r in records]
    if len({r.shown_machine for r in records}) > 1 or records[0].imported_from:
        header.append("machine")
        body = [[*row, r.shown_machine] for row, r in zip(body, records, strict=True)]
    click.echo(aligned(header, body, len(header)))
