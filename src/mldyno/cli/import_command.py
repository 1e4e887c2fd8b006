"""`mldyno import`: records from files."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import json_option, print_json, say, store_option
from mldyno.units import count


@click.command("import")
@click.argument("files", nargs=-1, required=True)
@store_option
@json_option
def command(files: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Take the records of FILES into the store: all of them or, if one is bad, none.

    Records that are there already are left alone, so a file can be imported twice. FILES are JSON
    lines that `mldyno export` wrote, reports, or a CSV of figures; - is standard input.

    \b
    Examples:
      mldyno import theirs.jsonl
      mldyno import report.html
    """
    new, total = api.import_(files, store, say)
    if as_json:
        print_json({"new": new, "seen": total})
    else:
        click.echo(f"{count(new, 'new record')} taken, {total - new:,} there already")
