"""Commands to share and remove records."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from mldyno import api
from mldyno.cli import options
from mldyno.cli.options import PLACE, command
from mldyno.cli.output import print_json, say, whole_lines
from mldyno.errors import OK, USER_ERROR, UsageError
from mldyno.units import count

if TYPE_CHECKING:
    from mldyno.api.sharing import Removal

MOST_LISTED = 5  # records, and runs, in the preview of a removal


@command("export", "Write records to a file: JSON lines or CSV.")
@click.argument("file", type=PLACE, default="-")
@click.option("--only", metavar="FILTER", help="Only what a filter or a machine's name selects.")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), help="jsonl loses nothing; csv carries figures.")
@options.private_option
@options.store_option
def export(file: str, only: str | None, form: str | None, private: bool, store: str | None) -> None:
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


@command("import", "Add records from files to the store.")
@click.argument("files", nargs=-1, required=True)
@options.store_option
@options.json_option
def import_(files: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Add the records of FILES to the store: all of them or, if one is bad, none.

    Records that are there already stay as they are, so a file can be imported twice. FILES are JSON
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


@command("submit", "Write one checked file for a shared collection; or check such files.")
@click.argument("words", nargs=-1, metavar="[WHAT | FILES...]", shell_complete=options.complete_targets)
@click.option("--check", is_flag=True, help="Check FILES instead: print a line for each fault, and exit with code 1.")
@click.option(
    "--out", type=PLACE, metavar="FILE", help="File to write, - for standard output (named after the machine)."
)
@options.store_option
def submit(words: tuple[str, ...], check: bool, out: str | None, store: str | None) -> int:
    """Write the newest records of this machine to one file, to be added to a shared collection.

    WHAT selects fewer: a workload, a filter or a run. Command lines and paths are omitted, and so are
    simulated records. With --check, FILES are checked again, from their raw samples: by their ids, by
    what their device can do at all, by their time and their machine.

    \b
    Examples:
      mldyno submit
      mldyno submit resnet18 --out mine.jsonl
      mldyno submit --check results/*.jsonl
    """
    if check:
        if not words or out is not None:
            raise UsageError("--check takes the files to check, and writes nothing: mldyno submit --check FILES...")
        total, faults = api.check_submissions(words)
        for line in faults:
            click.echo(line)
        checked = f"{count(len(words), 'file')}, {count(total, 'record')}"
        say(f"{checked}: {count(len(faults), 'fault')}" if faults else f"{checked}: all is well")
        return USER_ERROR if faults else OK
    if len(words) > 1:
        raise UsageError("name one thing to submit, such as a workload or a filter; or files to check, with --check.")
    with whole_lines():
        file, written = api.submit(out, words[0] if words else None, store, say)
    if file != "-":
        click.echo(f"{file} ({count(written, 'record')})")
        say("next: add this file to a collection, by a pull request; see docs/how-to/share-a-collection.md")
    return OK


@command("remove", "Remove records from the store: of a run, a machine, a file; by their ids.")
@click.argument("what", nargs=-1, required=True, shell_complete=options.complete_stored)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.store_option
def remove(what: tuple[str, ...], yes: bool, store: str | None) -> None:
    """Remove all that WHAT selects from the store, for good, however old.

    WHAT is ids of records, runs, machines by part of their name, filters, or files: an existing file
    selects the records in it, the name of an imported file all that came from it. You see what would
    be removed, and are asked. Published figures can't be removed.

    \b
    Examples:
      mldyno remove 3f9c2a71
      mldyno remove theirs.jsonl
      mldyno remove 20260131T120000-3f9c2a --yes
    """

    def confirm(removal: Removal) -> bool:
        click.echo("\n".join(_preview(removal)))
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("Not a terminal; nothing removed. Pass --yes to remove without asking.")
        return click.confirm("Remove them for good?", default=False)

    removed = api.remove(*what, store=store, confirm=confirm, tell=say)
    click.echo(f"{count(removed, 'record')} removed" if removed else "nothing was removed")


def _preview(removal: Removal) -> list[str]:
    """Return the number of records by run and machine, the newest records, and what becomes of unfinished runs."""
    from mldyno.views.records import headline
    from mldyno.views.titles import case_name

    records = sorted(removal.records, key=lambda record: record.created, reverse=True)
    by_run = Counter((record.run.id, record.shown_machine) for record in records)
    runs, machines = map(set, zip(*by_run, strict=True))
    lines = [f"{count(len(records), 'record')} of {count(len(runs), 'run')} on {count(len(machines), 'machine')}:"]
    lines += [f"  run {run} on {machine}: {number:,}" for (run, machine), number in by_run.most_common(MOST_LISTED)]
    lines += [f"  and {len(by_run) - MOST_LISTED:,} more runs"] if len(by_run) > MOST_LISTED else []
    lines += ["the newest of them:" if len(records) > MOST_LISTED else "which are:"]
    lines += [f"  {record.id[:10]}  {case_name(record.case)}: {headline(record)}" for record in records[:MOST_LISTED]]
    lines += [f"  and {len(records) - MOST_LISTED:,} more"] if len(records) > MOST_LISTED else []
    lines += [f"run {run} is not finished: `mldyno run --resume` measures again what is removed."
              for run in removal.resumable]  # fmt: skip
    return lines + [f"run {run} is not finished, and can't be resumed any more." for run in removal.dropped]
