"""Commands to know what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mldyno import plugins, suites
from mldyno.cli.options import DURATION, command, json_option, print_json, say, store_option
from mldyno.errors import unknown

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mldyno.store.figures import Publication

KINDS = ("workloads", "suites", "frameworks", "devices", "machines")
Rows = list[tuple[str, str]]


class Kind(click.ParamType):  # type: ignore[type-arg]
    """One of the kinds; a singular is understood."""

    name = "kind"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind = value if value in KINDS else f"{value}s"
        if kind not in KINDS:
            raise unknown("kind", value, KINDS)
        return kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


@command("list", "Workloads, suites, frameworks, devices, machines.")
@click.argument("kind", required=False, type=Kind(), metavar="[KIND]")
@store_option
@json_option
def list_(kind: str | None, store: str | None, as_json: bool) -> None:
    """List workloads, suites and frameworks; `devices` asks each framework, `machines` has the published ones too.

    \b
    Examples:
      mldyno list
      mldyno list machines
    """
    if as_json and kind in ("machines", "devices"):
        print_json({kind: machines_json(store) if kind == "machines" else devices_json()})
        return
    listed = {name: _rows(name, store) for name in ([kind] if kind else KINDS[:3])}
    if as_json:
        print_json({name: [{"name": a, "about": b} for a, b in rows] for name, rows in listed.items()})
        return
    width = max((len(name) for rows in listed.values() for name, _ in rows), default=0)
    for name, rows in listed.items():
        if not kind:
            click.echo(f"{name}:")
        for word, about in rows:
            click.echo(f"{'' if kind else '  '}{word.ljust(width)}  {about}".rstrip())


def _rows(kind: str, store: str | None) -> Rows:
    if kind == "suites":
        return [(name, suites.title(name)) for name in suites.names()]
    if kind == "devices":
        return [(device["name"], device["about"]) for device in devices_json()]
    if kind == "machines":
        return [(machine["name"], machine["about"]) for machine in machines_json(store)]
    rows = []
    for name in plugins.names(kind):
        package = plugins.origin(kind, name)
        added = f" (from the package {package})" if package else ""
        missing = (
            "" if kind == "workloads" or plugins.installed(name) else f" (not installed: pip install 'mldyno[{name}]')"
        )
        rows.append((name, plugins.about(kind, name)[0] + added + missing))
    return rows


def devices_json() -> list[dict[str, Any]]:
    """Return the devices that each framework sees, with all that is known of them, or why it can't be started.

    Omitted are simulated devices, and frameworks that are not installed, except torch.
    """
    from mldyno import api
    from mldyno.axes import FAKE
    from mldyno.views.records import device_line

    rows: list[dict[str, Any]] = []
    names = [
        name for name in plugins.names("frameworks") if name == "torch" or (plugins.installed(name) and name != FAKE)
    ]
    for framework, facts in api.probe(names).frameworks.items():
        if facts.error:
            rows.append({"name": framework, "about": facts.error, "framework": framework, "device": None})
        for device in facts.devices:
            known = {name: value for name, value in vars(device).items() if name != "name"}
            about = {"about": device_line(device), "device": device.name}
            rows.append({"name": f"{framework} {device.name}", **about, **known})
    return rows


def machines_json(store: str | None) -> list[dict[str, Any]]:
    """Return the machines of the store and the published ones, with what was published of each and any doubts.

    A machine of the store that has only simulated records is omitted, unless there is no other.
    """
    from mldyno.axes import FAKE
    from mldyno.store import Query, Store
    from mldyno.store.figures import Publication, machines

    opened, shipped = Store(store), machines()

    def with_records(rehearsed: bool) -> list[str]:
        queries = {name: Query({"machine": name}, heads=False, rehearsed=rehearsed) for name in opened.machines()}
        return [name for name, query in queries.items() if opened.history(query, 1)]

    stored, measured = with_records(rehearsed=True), with_records(rehearsed=False)
    left_out = {*stored} - {*measured, *shipped} if measured else set()
    if left_out:
        say(f"machines with simulated records only (framework {FAKE}) are hidden")
    rows = []
    for name in (name for name in opened.machines() if name not in left_out):
        files, publication = opened.files_of(name) if name in stored else [], shipped.get(name, Publication())
        rows.append({
            "name": name, "about": _about(name in stored, files, publication), "stored": name in stored,
            "imported_from": files, "sources": publication.sources, "figures": publication.figures,
            "marks": [{"mark": mark, "reason": reason, "figures": len(cases), "cases": cases}
                      for (mark, reason), cases in publication.marked.items()],
        })  # fmt: skip
    return rows


def _about(stored: bool, files: list[str], publication: Publication) -> str:
    """Return a machine in a line."""
    from mldyno.units import count

    parts = [f"in your store, imported from {', '.join(files)}" if files else "in your store"] if stored else []
    if publication.figures:
        parts.append(f"published in {', '.join(publication.sources)}: {count(publication.figures, 'figure')}")
    parts += [f"{count(len(cases), 'figure')} {mark}: {reason}" for (mark, reason), cases in publication.marked.items()]
    return "; ".join(parts)


@command("doctor", "Why is the GPU not used? What works on it? How idle and quiet is this machine?")
@click.option("--quick", is_flag=True, help="A few seconds: no noise test, no threads, nothing compiled.")
@click.option("--noise", type=DURATION, metavar="TIME", help="Measure noise for this long (60s; none with --quick).")
@click.option("--framework", help="Check only this one: torch, or fake for the simulated framework.")
@store_option
@json_option
def doctor(quick: bool, noise: float | None, framework: str | None, store: str | None, as_json: bool) -> None:
    """Why is the GPU not used? What works on each device? How idle and how quiet is this machine?

    Prints facts, features that are tried in processes of their own, and findings, each with its cure.
    Takes three to four minutes, one of them for noise, and shows how long is left; leave the machine
    alone meanwhile. Nothing is stored.

    \b
    Examples:
      mldyno doctor
      mldyno doctor --quick --json
    """
    from mldyno import api
    from mldyno.cli.progress import PartBar
    from mldyno.doctor.report import as_json as content
    from mldyno.doctor.report import report
    from mldyno.runner.events import Interrupted

    try:
        with PartBar() as bar:
            checkup = api.doctor(quick, noise, framework, store, bar)
    except (Interrupted, KeyboardInterrupt) as end:
        raise Interrupted(
            f"{str(end) or 'ended by SIGINT'}; a check-up that was not completed tells nothing."
        ) from None
    if as_json:
        print_json(content(checkup))
    else:
        click.echo(report(checkup))
