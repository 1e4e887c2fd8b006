"""`mldyno report`: charts and tables in one page, pictures of them, and a card to post."""

from __future__ import annotations

import os

import click

from mldyno import api
from mldyno.cli.options import complete_stored, json_option, print_json, private_option, say, store_option
from mldyno.cli.progress import CountedBar
from mldyno.units import count


@click.command("report")
@click.argument("what", required=False, shell_complete=complete_stored)
@click.option("--out", metavar="PATH", help="File of the page (report.html), or folder of the pictures (report-png).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "png", "svg"]),
    default="html",
    show_default=True,
    help="One page; or a picture of each chart.",
)
@click.option("--card", metavar="FILE", help="Write one picture to post, PNG; and nothing else, unless --out is given.")
@click.option("--site", metavar="FOLDER", help="Write a site of all machines; and nothing else, unless --out is given.")
@private_option
@store_option
@json_option
def command(
    what: str | None,
    out: str | None,
    form: str,
    card: str | None,
    site: str | None,
    private: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Write a report of all that was measured, or of WHAT: a workload, a filter, a machine or a file.

    The page is one file. It works offline and on a phone, in light and dark, and on paper, and it
    holds the records themselves: `mldyno import report.html` takes them back. A site is a folder of
    light pages for any static host: every machine, every work ranked, any two machines compared.

    \b
    Examples:
      mldyno report
      mldyno report bert-base --out bert.html
      mldyno report --format svg --out pictures
      mldyno report --card card.png
      mldyno report --site public
    """
    written = [api.card(card, what, store, private, say)] if card else []
    first_page = None
    if site:
        with CountedBar("making the site") as bar:
            first_page = api.site(site, what, store, private, bar.say, bar)
        written.append(first_page)
    if out or not written:
        written += api.report(out, what, form, store, private, None if written else say)
    if as_json:
        print_json({"written": written})
        return
    for path in written[:3]:
        click.echo(path if path == first_page else f"{path} ({os.path.getsize(path) / 1e6:.1f} MB)")
    if len(written) > 3:
        click.echo(f"and {count(len(written) - 3, 'more picture')}")
