"""`mldyno export`: records to a file."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import private_option, say, store_option
from mldyno.cli.output import whole_lines
from mldyno.units import count


@click.command("export")
@click.argument("file", default="-")
@click.option("--only", metavar="FILTER", help="Only what a filter or a machine's name means.")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), help="jsonl loses nothing; csv carries figures.")
@private_option
@store_option
def command(file: str, only: str | None, form: str | None, private: bool, store: str | None) -> None:
    """Write the store's records to FILE, or to standard output.

    JSON lines keep everything; CSV keeps one figure a line, for a spreadsheet. The published
    figures ship with every mldyno and are not written.

    \b
    Examples:
      mldyno export mine.jsonl
      mldyno export --only mlp/train --format csv > mlp.csv
      mldyno export --private to-post.jsonl
    """
    chosen = form or ("csv" if file.endswith(".csv") else "jsonl")
    with whole_lines():
        written = api.export(file, chosen, only, store, private, say)
    say(f"{count(written, 'record')} written" + (f" to {file}" if file != "-" else ""))
