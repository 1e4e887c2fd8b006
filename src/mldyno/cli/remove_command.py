"""`mldyno remove`: records out of the store."""

from __future__ import annotations

import sys
from collections import Counter

import click

from mldyno import api
from mldyno.cli.options import complete_stored, say, store_option
from mldyno.errors import UsageError
from mldyno.units import count
from mldyno.views.records import headline
from mldyno.views.titles import case_name

MOST_LINES = 5  # of records, and of runs, that the preview lists


@click.command("remove")
@click.argument("what", nargs=-1, required=True, shell_complete=complete_stored)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def command(what: tuple[str, ...], yes: bool, store: str | None) -> None:
    """Take records out of the store, for good: all that WHAT means, however old.

    WHAT is ids of records, runs, machines by part of their name, filters, or files: one that lies
    here means the records in it, the name of one that was imported all that came from it. You see
    what would go, and are asked. Published figures can't be removed.

    \b
    Examples:
      mldyno remove 3f9c2a71
      mldyno remove theirs.jsonl
      mldyno remove 20260131T120000-3f9c2a --yes
    """

    def confirm(removal: api.Removal) -> bool:
        click.echo("\n".join(preview(removal)))
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("Nothing removed: not an interactive terminal. Pass --yes to skip the confirmation.")
        return click.confirm("Remove them for good?", default=False)

    removed = api.remove(*what, store=store, confirm=confirm, tell=say)
    click.echo(f"{count(removed, 'record')} removed" if removed else "nothing was removed")


def preview(removal: api.Removal) -> list[str]:
    """Return what goes: how many records of which runs and machines, the newest by id, and what becomes of runs."""
    records = sorted(removal.records, key=lambda record: record.created, reverse=True)
    by_run = Counter((record.run.id, record.shown_machine) for record in records)
    runs, machines = ({key[place] for key in by_run} for place in (0, 1))
    of_which = f"{count(len(runs), 'run')} on {count(len(machines), 'machine')}"
    lines = [f"{count(len(records), 'record')} of {of_which}:"]
    lines += [f"  run {run} on {machine}: {number:,}" for (run, machine), number in by_run.most_common(MOST_LINES)]
    lines += [f"  and {len(by_run) - MOST_LINES:,} more runs"] if len(by_run) > MOST_LINES else []
    lines += ["the newest of them:" if len(records) > MOST_LINES else "which are:"]
    lines += [f"  {record.id[:10]}  {case_name(record.case)}: {headline(record)}" for record in records[:MOST_LINES]]
    lines += [f"  and {len(records) - MOST_LINES:,} more"] if len(records) > MOST_LINES else []
    lines += [f"run {run} is not finished: `mldyno run --resume` measures again what is removed."
              for run in removal.resumable]  # fmt: skip
    return lines + [f"run {run} is not finished, and can't be resumed any more." for run in removal.dropped]
