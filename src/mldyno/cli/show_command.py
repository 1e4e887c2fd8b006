"""`mldyno show`: all that is known of a case or record."""

from __future__ import annotations

import json

import click

from mldyno import api
from mldyno.cli.options import complete_stored, json_option, print_json, say, store_option
from mldyno.views.records import record_text


@click.command("show")
@click.argument("what", shell_complete=complete_stored)
@store_option
@json_option
def command(what: str, store: str | None, as_json: bool) -> None:
    """All that is known of a case (its newest run) or of the record with an id.

    \b
    Examples:
      mldyno show mlp/train/cpu
      mldyno show 3f9c2a71
    """
    records = api.show(what, store, say)
    if as_json:
        print_json({"records": [json.loads(record.text) for record in records]})
        return
    click.echo("\n\n".join(record_text(record) for record in records))
