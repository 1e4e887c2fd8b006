"""`mldyno submit`: one file for a shared collection, and the check that such files have to pass."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.cli.options import complete_targets, say, store_option
from mldyno.cli.output import whole_lines
from mldyno.errors import OK, USER_ERROR, UsageError
from mldyno.units import count


@click.command("submit")
@click.argument("words", nargs=-1, metavar="[WHAT | FILES...]", shell_complete=complete_targets)
@click.option("--check", is_flag=True, help="Check FILES instead: a line for each fault, and exit code 1.")
@click.option("--out", metavar="FILE", help="File to write, - for standard output (named after the machine).")
@store_option
def command(words: tuple[str, ...], check: bool, out: str | None, store: str | None) -> int:
    """Write the newest records of this machine to one file, to be added to a shared collection.

    WHAT takes less: a workload, a filter or a run. Command lines and paths are left out, and so are
    fake records. With --check, FILES are checked anew, from their raw samples: by their ids, by what
    their device can do at all, by their time and their machine.

    \b
    Examples:
      mldyno submit
      mldyno submit resnet18 --out mine.jsonl
      mldyno submit --check results/*.jsonl
    """
    if check:
        return _checked(words, out)
    if len(words) > 1:
        raise UsageError("name one thing to submit, such as a workload or a filter; or files to check, with --check.")
    with whole_lines():
        file, written = api.submit(out, words[0] if words else None, store, say)
    if file != "-":
        click.echo(f"{file} ({count(written, 'record')})")
        say("next: add this file to a collection, by a pull request; see docs/how-to/share-a-collection.md")
    return OK


def _checked(files: tuple[str, ...], out: str | None) -> int:
    if not files or out is not None:
        raise UsageError("--check takes the files to check, and writes nothing: mldyno submit --check FILES...")
    total, faults = api.check_submissions(files)
    for line in faults:
        click.echo(line)
    checked = f"{count(len(files), 'file')}, {count(total, 'record')}"
    say(f"{checked}: {count(len(faults), 'fault')}" if faults else f"{checked}: all is well")
    return USER_ERROR if faults else OK
