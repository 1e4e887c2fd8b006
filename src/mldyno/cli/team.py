"""Commands to share results in a team."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mldyno import api
from mldyno.cli import options
from mldyno.cli.options import all_of, command
from mldyno.cli.output import print_data, print_json, say
from mldyno.errors import NOT_ALL_OK, OK, UsageError
from mldyno.units import count

if TYPE_CHECKING:
    from mldyno.team.exchange import Moved

place_options = all_of(
    click.option("--token-file", metavar="FILE", help="File with the token of a server (or $MLDYNO_TOKEN)."),
    click.option("--plain-http", is_flag=True, help="Allow http:// to other machines: the token is readable there."),
)


@command("push", "Push records to a team's database or server.")
@click.argument("url")
@click.argument("what", metavar="[FILTER]", required=False, shell_complete=options.complete_stored)
@options.private_option
@place_options
@options.store_option
@options.json_option
def push(
    url: str, what: str | None, private: bool, token_file: str | None, plain_http: bool, store: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Push the records that URL lacks: all that were measured here, or on hosts of your fleets.

    URL is postgresql://HOST/DATABASE, or https://HOST of `mldyno serve`. FILTER selects fewer; it may
    name a machine or an imported file, whose records are pushed too. Simulated records stay here.
    A push can be ended and repeated at any time.

    \b
    Examples:
      mldyno push postgresql://lab.example/results
      mldyno push https://bench.example resnet18
    """
    from mldyno.team.postgres import hide_password

    hide_password(url)
    moved = _with_bar("pushing", lambda bar: api.push(url, what, store, private, token_file, plain_http, say, bar))
    return _told(moved, "pushed", "there", as_json)


@command("pull", "Pull the records of a team's database or server.")
@click.argument("url")
@click.option("--again", is_flag=True, help="Also what was pulled before, such as records that you removed.")
@place_options
@options.store_option
@options.json_option
def pull(url: str, again: bool, token_file: str | None, plain_http: bool, store: str | None, as_json: bool) -> int:
    """Take the records that are new at URL into the store; they count as imported.

    What a server has not judged yet is not there. A pull can be ended and repeated at any time.

    \b
    Examples:
      mldyno pull postgresql://lab.example/results
      mldyno pull https://bench.example
    """
    from mldyno.team.postgres import hide_password

    hide_password(url)
    moved = _with_bar("pulling", lambda bar: api.pull(url, store, again, token_file, plain_http, bar))
    return _told(moved, "pulled", "here", as_json)


@command("pushed", "List who pushed what to a team's database or server.")
@click.argument("url")
@click.option("--who", metavar="NAME", default="", help="Only what this name pushed.")
@click.option("--most", type=click.IntRange(1, 100_000), default=100, help="Number of records, the newest (100).")
@place_options
@options.json_option
def pushed(url: str, who: str, most: int, token_file: str | None, plain_http: bool, as_json: bool) -> None:
    """List the newest records at URL: when each was pushed, by whom, and whether it is shown.

    \b
    Example:
      mldyno pushed https://bench.example --who ada
    """
    from mldyno.team.postgres import hide_password

    hide_password(url)
    rows = api.pushed(url, who, most, token_file, plain_http)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for row in rows:
        reason = f": {row.reason}" if row.reason else ""
        print_data(f"{row.when}  {row.id[:10]}  {row.who}  {row.state}{reason}  {row.machine}  {row.case}".rstrip())
    if not rows:
        say("nothing was pushed")


@command("withdraw", "Withdraw records from a team's database or server.")
@click.argument("url")
@click.argument("ids", nargs=-1, required=True)
@place_options
def withdraw(url: str, ids: tuple[str, ...], token_file: str | None, plain_http: bool) -> None:
    """Withdraw the records with these IDS from URL: it shows them no more, and does not take them again.

    You may withdraw what you pushed; who has an admin's token, or owns the tables, anything. Who has
    pulled them keeps them.

    \b
    Example:
      mldyno withdraw https://bench.example 3f9c2a71
    """
    from mldyno.team.postgres import hide_password

    hide_password(url)
    click.echo(f"{count(len(api.withdraw(url, ids, token_file, plain_http)), 'record')} withdrawn")


@command("serve", "Serve a place for a team's records, with pages.")
@click.option("--store", metavar="FILE|URL", help="File of the server, or postgresql://HOST/DATABASE.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8080", help="Address (127.0.0.1:8080).")
@click.option("--site", metavar="FOLDER", help="Folder of the pages (beside the file).")
@click.option("--tokens", metavar="FILE", help="File of the tokens (beside the file).")
@click.option("--add-token", metavar="NAME", help="Make a token for a name, print it, and end.")
@click.option("--admin", is_flag=True, help="With --add-token: it may withdraw records of others.")
@click.option("--withdraw-token", metavar="NAME", help="Withdraw the token of a name, and end.")
def serve(
    store: str | None, listen: str, site: str | None, tokens: str | None, add_token: str | None, admin: bool,
    withdraw_token: str | None,
) -> int:  # fmt: skip
    """Take what a team pushes, give it to who pulls, and show it as a site.

    It listens on this machine only; a reverse proxy in front of it does TLS. Every record is judged as
    `mldyno submit --check` does. Whoever pushes or pulls needs a token; who reads the pages does not.
    The pages are built in the background, at most once a minute.

    \b
    Examples:
      mldyno serve --add-token ada
      mldyno serve
      mldyno serve --store postgresql://localhost/results --listen 127.0.0.1:8080
    """
    from mldyno.team.postgres import hide_password

    if admin and not add_token:
        raise UsageError("--admin goes with --add-token NAME.")
    if add_token and withdraw_token:
        raise UsageError("--add-token and --withdraw-token are two commands.")
    if add_token:
        print_data(api.add_token(add_token, admin, store, tokens))
        say(f"give it to {add_token}, to be set as MLDYNO_TOKEN; it is stored nowhere, and not shown again")
    elif withdraw_token:
        api.withdraw_token(withdraw_token, store, tokens)
        say(f"the token of {withdraw_token} is refused from now on")
    else:
        hide_password(store or "")
        api.serve(store, listen, site, tokens, say)
    return OK


def _with_bar(what: str, act: object) -> Moved:
    from mldyno.cli.progress import CountedBar

    with CountedBar(what) as bar:
        return act(bar)  # type: ignore[operator, no-any-return]


def _told(moved: Moved, done: str, where: str, as_json: bool) -> int:
    """Print what was moved; some refused records make the exit code 3."""
    for reason in moved.reasons:
        say(f"refused: {reason}")
    if as_json:
        print_json(asdict(moved))
    else:
        rest = [f"{moved.known:,} {where} already"]
        rest += [f"{moved.fake:,} simulated left out"] if moved.fake else []
        rest += [f"{moved.refused:,} refused"] if moved.refused else []
        click.echo(f"{count(moved.new, 'record')} {done}, {', '.join(rest)}")
    return NOT_ALL_OK if moved.refused else OK
