"""Commands to read results."""

from __future__ import annotations

import os
from typing import Any

import click

from mldyno import api
from mldyno.analysis.comparisons import MEASURED
from mldyno.cli import options
from mldyno.cli.options import PLACE, WORDS, command
from mldyno.cli.output import print_data, print_json, say
from mldyno.errors import MldynoError
from mldyno.printable import quoted
from mldyno.store.selection import silent
from mldyno.units import PERIODS, count
from mldyno.views.as_json import answers_json, comparison_json, mean_json
from mldyno.views.claims import nothing_along
from mldyno.views.tables import FORMATS

MOST_PATHS_LISTED = 3  # of pictures


@command("compare", "How much faster is one than the other, and how sure is that?")
@click.argument("a", shell_complete=options.complete_stored)
@click.argument("b", required=False, shell_complete=options.complete_stored)
@click.option("--by", metavar="AXIS", help="Compare along this axis, machine or run (device, where only A is given).")
@click.option(
    "--value", type=click.Choice(list(MEASURED)), default="step", help="Compare the time of a step, or its energy."
)
@click.option("--anyway", is_flag=True, help="Compare even if other axes differ.")
@options.since_option
@options.store_option
@options.json_option
def compare(
    a: str, b: str | None, by: str | None, value: str, anyway: bool, since: str | None, store: str | None, as_json: bool
) -> None:
    """How much faster is B than A, or the cases of A among each other; and how sure is that?

    A and B are filters (mlp/train/cpu, device=mps/batch=16), ids of records, machines by part of
    their name ("M1 Max", this-machine) or exported files. Between two machines, every case that
    both have is compared, and the geometric mean follows. With --by run, the runs of each case on
    this machine are compared, before and after: the oldest is the base.

    \b
    Examples:
      mldyno compare mlp --by placement
      mldyno compare mlp --by run --since yesterday
      mldyno compare mlp/infer/device=cpu mlp/infer/device=mps
      mldyno compare this-machine "M1 Max"
      mldyno compare mine.jsonl theirs.jsonl
      mldyno compare mlp --by precision --value energy
    """
    from mldyno.analysis.answers import Answers

    comparisons = api.compare(a, b, by, anyway, store, since, say, value)
    if as_json:
        print_json({
            "comparisons": [comparison_json(comparison) for comparison in comparisons],
            "geometric_means": [mean_json(mean) for mean in comparisons.means],
            "answers": answers_json(comparisons.answers or Answers()),
        })  # fmt: skip
        return
    text = str(comparisons)
    only_published = all(each.base.published and each.other.published for each in comparisons)
    by_run = ""
    if b is None and by is None and only_published and api.in_several_runs(a, store, since):
        how = f"mldyno compare {quoted(a)} --by run"
        by_run = f"this machine measured '{a}' on one device only, but in several runs; compare these with: {how}"
    if not text:
        if b is not None:
            raise MldynoError(f"nothing to compare in '{a}' and '{b}': no two that are ok differ only in that.")
        raise MldynoError(by_run or nothing_along(by or "device", f" in '{a}'"))
    click.echo(f"{text}\n{by_run}".rstrip())


@command("table", "Lay results out on rows and columns, published machines among them.")
@click.argument("targets", nargs=-1, shell_complete=options.complete_stored)
@click.option(
    "--rows", type=WORDS, metavar="LIST", default="workload,mode,batch,seq", show_default=True, help="Axes as rows."
)
@click.option(
    "--cols", type=WORDS, metavar="LIST", default="machine,device", show_default=True, help="Axes as columns."
)
@click.option(
    "--value",
    help="step (the default), throughput, throughput:PHASE, speedup, score, time:100steps, peak_share, or any metric.",
)
@click.option("--by", metavar="AXIS", help="Show the speed-up along this axis.")
@click.option("--per", type=click.Choice(list(PERIODS)), help="Unit of time of a throughput (s).")
@click.option("--format", "form", type=click.Choice(FORMATS), default="terminal", show_default=True, help="Format.")
@options.since_option
@options.store_option
@options.json_option
def table(targets: tuple[str, ...], form: str, as_json: bool, **options: Any) -> None:
    """Lay the newest results out on rows and columns, published machines among them.

    Without targets, all that is stored. Several exported files make one table, with their machines
    as columns. `-` means out of memory. A time of steps is projected from the steps that were
    measured, and says from how many.

    \b
    Examples:
      mldyno table mlp --rows mode,batch --cols machine,device
      mldyno table mine.jsonl theirs.jsonl --format markdown
      mldyno table bert-base --rows mode,batch,seq --cols machine,device --value time:100steps
      mldyno table mlp --by precision
      mldyno table mlp --value throughput --per min
      mldyno table --since yesterday
    """
    form = "json" if as_json else form
    show = click.echo if form == "terminal" else print_data
    show(api.table(targets, tell=say, **options).to(form))


@command("report", "One page with charts, tables and what they say; pictures, and a card to post.")
@click.argument("what", required=False, shell_complete=options.complete_stored)
@click.option(
    "--out", type=PLACE, metavar="PATH", help="File of the page (report.html), or folder of the pictures (report-png)."
)
@click.option(
    "--format", "form", type=click.Choice(["html", "png", "svg"]), default="html", show_default=True,
    help="One page, or a picture of each chart.",
)  # fmt: skip
@click.option(
    "--card", type=PLACE, metavar="FILE", help="Write one picture to post, PNG; nothing else, unless --out is given."
)
@click.option(
    "--site", type=PLACE, metavar="FOLDER", help="Write a site of all machines; nothing else, unless --out is given."
)
@options.private_option
@options.store_option
@options.json_option
def report(
    what: str | None, out: str | None, form: str, card: str | None, site: str | None, as_json: bool, **options: Any
) -> None:
    """Write a report of all that was measured, or of WHAT: a workload, a filter, a machine or a file.

    The page is one file. It works offline and on a phone, in light and dark, and on paper, and it
    holds the records themselves: `mldyno import report.html` reads them. A site is a folder of
    light pages for any static host: every machine, every workload ranked, any two machines compared.

    \b
    Examples:
      mldyno report
      mldyno report bert-base --out bert.html
      mldyno report --format svg --out pictures
      mldyno report --card card.png
      mldyno report --site public
    """
    from mldyno.cli.progress import CountedBar

    written = [api.card(card, what, tell=say, **options)] if card else []
    first_page = None
    if site:
        with CountedBar("making the site") as bar:
            first_page = api.site(site, what, tell=bar.say, progress=bar, **options)
        written.append(first_page)
    if out or not written:
        written += api.report(out, what, form, tell=silent if written else say, **options)
    if as_json:
        print_json({"written": written})
        return
    for path in written[:MOST_PATHS_LISTED]:
        click.echo(path if path == first_page else f"{path} ({os.path.getsize(path) / 1e6:.1f} MB)")
    if len(written) > MOST_PATHS_LISTED:
        click.echo(f"and {count(len(written) - MOST_PATHS_LISTED, 'more picture')}")


@command("show", "All that is known about a case or a record.")
@click.argument("what", shell_complete=options.complete_stored)
@options.store_option
@options.json_option
def show(what: str, store: str | None, as_json: bool) -> None:
    """Show all that is known about a case (its newest run), or about the record with an id.

    \b
    Examples:
      mldyno show mlp/train/cpu
      mldyno show 3f9c2a71
    """
    import json

    from mldyno.views.records import record_text

    records = api.show(what, store, say)
    if as_json:
        print_json({"records": [json.loads(record.text) for record in records]})
        return
    click.echo("\n\n".join(record_text(record) for record in records))


@command("history", "What was measured, newest first.")
@click.argument("what", required=False)
@click.option("--most", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Records to list.")
@options.since_option
@options.store_option
@options.json_option
def history(what: str | None, since: str | None, as_json: bool, **options: Any) -> None:
    """List what was measured, newest first, run by run, whatever its outcome.

    \b
    Examples:
      mldyno history
      mldyno history mlp/train --most 50
      mldyno history --since yesterday
    """
    from mldyno.views.records import history_lines

    records = api.history(what, since=since, tell=say, **options)
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
