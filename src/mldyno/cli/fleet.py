"""Commands to measure many machines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mldyno import api
from mldyno.cli import options
from mldyno.cli.options import command
from mldyno.cli.output import new_bar, on_terminal, print_data, print_json, say
from mldyno.errors import NOT_ALL_OK, OK
from mldyno.fleet.conductor import FleetListener, Member
from mldyno.units import count, show_seconds

if TYPE_CHECKING:
    from mldyno.records import Record

REDRAW_INTERVAL_S = 0.5
MOST_LINES = 20  # hosts that each get a line
on_option = click.option("--on", required=True, metavar="HOSTS", help="A hosts file, or ssh:mini,ssh:box.")


@command("fleet", "Many machines: what they are, and which of them is slow.", click.Group)
def fleet() -> None:
    """Many machines: what they are, and which of them is slow. `mldyno run --on HOSTS` measures on them.

    \b
    Example:
      mldyno fleet doctor --on lab.toml
      mldyno fleet show
    """


@fleet.command("doctor")
@on_option
@options.json_option
def doctor(on: str, as_json: bool) -> int:
    """What each host is and can run, and in what they differ.

    \b
    Examples:
      mldyno fleet doctor --on lab.toml
      mldyno fleet doctor --on ssh:mini,ssh:box
    """
    from mldyno.fleet.in_words import examined

    members = api.fleet_doctor(on, PlainHosts("quiet"))
    if as_json:
        facts = ("state", "reason", "facts")
        print_json({"hosts": {each.name: {name: getattr(each, name) for name in facts} for each in members}})
    else:
        click.echo("\n".join(examined(members)))
    return OK if all(each.facts for each in members) else NOT_ALL_OK


@fleet.command("show")
@click.argument("run", required=False)
@options.store_option
@options.json_option
def show(run: str | None, store: str | None, as_json: bool) -> None:
    """Which node is slow? Each node of the newest run on several machines, or of RUN, against the others.

    Only nodes whose device, versions and cores are the same are compared. A node is called slow where it
    takes longer than the median of the others by more than 2 % with near certainty, and this is confirmed
    by a second run of the same cases.

    \b
    Examples:
      mldyno fleet show
      mldyno fleet show 20261119T210000-3f9a1c
    """
    from mldyno.views.fleet import as_json as content

    nodes = api.fleet_show(run, store)
    if as_json:
        print_json(content(nodes.run, nodes.groups, nodes.again))
    else:
        click.echo(str(nodes))


@fleet.command("remote", hidden=True)
def remote() -> int:
    """Answer a conductor on standard input and output."""
    return api.serve_conductor()


def run_on(
    on: str, targets: Sequence[str], dry_run: bool, store: str | None, as_json: bool, verbosity: str | None,
    **options: Any,
) -> int:  # fmt: skip
    """Do what `mldyno run` is asked for on hosts."""
    from mldyno.fleet.in_words import planned

    listener = listener_for(verbosity, as_json)
    if dry_run:
        options.pop("resume")
        members = api.dry_run_on(on, *targets, listener=PlainHosts("quiet"), **options)
        if as_json:
            print_json(
                {
                    "hosts": {
                        each.name: {
                            "state": each.state,
                            "reason": each.reason,
                            "cases": [vars(case) for case in each.expected],
                        }
                        for each in members
                    }
                }
            )
        else:
            click.echo("\n".join(planned(members)))
        return OK if all(each.expected for each in members) else NOT_ALL_OK
    results = api.run_on(on, *targets, store=store, listener=listener, **options)
    if not as_json:
        click.echo(str(results))
    return OK if results.all_ok else NOT_ALL_OK


# -- progress --------------------------------------------------------------------------------------


def listener_for(verbosity: str | None, as_json: bool) -> FleetListener:
    """Return the listener for where the output goes."""
    if as_json:
        return JsonHosts()
    return PlainHosts(verbosity) if verbosity == "quiet" or not on_terminal() else LiveHosts()


def standing(member: Member) -> str:
    """Return a host's state in words: running, 2 of 5 cases, about 40 s left."""
    if member.state != "running":
        return f"{member.state}{f': {member.reason}' if member.reason else ''}"
    cases = f"{member.done} of {count(member.cases, 'case')}" if member.cases else ""
    left = f"about {show_seconds(max(1.0, member.left))} left" if member.left is not None else ""
    return ", ".join(filter(None, ["running", cases, left]))


class PlainHosts(FleetListener):
    """A line for each new state of a host, and for each case that it has done."""

    def __init__(self, verbosity: str | None = None) -> None:
        self.quiet = verbosity == "quiet"
        self.printed: dict[str, tuple[str, int, str]] = {}

    def say(self, line: str) -> None:
        if not self.quiet:
            say(line)

    def changed(self, member: Member) -> None:
        now = (member.state, member.done, member.reason)
        before = self.printed.get(member.name)
        self.printed[member.name] = now
        if now != before and (before is None or member.state != "starting" or member.reason):
            self.say(f"{member.name}: {standing(member)}")

    def note(self, member: Member, line: str) -> None:
        self.say(f"{member.name}: {line}")


class JsonHosts(FleetListener):
    """Each record as one line of JSON on standard output, beside its host; and each state of a host."""

    def changed(self, member: Member) -> None:
        fields = ("state", "reason", "records", "case", "done", "cases", "left")
        print_data(json.dumps({"host": member.name, **{name: getattr(member, name) for name in fields}}))

    def kept(self, member: Member, record: Record) -> None:
        print_data(f'{{"host": {json.dumps(member.name)}, "record": {record.text}}}')

    def note(self, member: Member, line: str) -> None:
        print_data(json.dumps({"host": member.name, "note": line}))


class LiveHosts(FleetListener):
    """A line with a bar for each host; of many hosts, one for all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.bar, self.clock, self.drawn = new_bar(), clock, 0.0
        self.tasks: dict[str, Any] = {}
        self.members: Sequence[Member] = ()

    def begin(self, members: Sequence[Member]) -> None:
        self.members = members
        names = [each.name for each in members] if len(members) <= MOST_LINES else [count(len(members), "host")]
        self.tasks = {name: self.bar.add_task(name, total=1.0, detail="") for name in names}
        self.bar.start()

    def changed(self, member: Member) -> None:
        if member.state in ("refused", "failed", "lost", "busy"):
            self.bar.say(f"{member.name}: {standing(member)}")
        if member.name in self.tasks:
            share = member.done / member.cases if member.cases else 0.0
            self.bar.update(self.tasks[member.name], completed=1.0 if member.state == "done" else share,
                            detail=standing(member) if member.state == "running" else member.state)  # fmt: skip
        elif self.tasks:
            over = sum(each.over for each in self.members)
            running = sum(each.state == "running" for each in self.members)
            left = max((each.left or 0.0 for each in self.members), default=0.0)
            self.bar.update(*self.tasks.values(), completed=over / len(self.members),
                            detail=f"{running} running, {over} ended, about {show_seconds(left)} left")  # fmt: skip
        if self.clock() - self.drawn >= REDRAW_INTERVAL_S:
            self.drawn = self.clock()
            self.bar.refresh()

    def note(self, member: Member, line: str) -> None:
        self.bar.say(f"{member.name}: {line}")

    def end(self) -> None:
        self.bar.stop()
