"""`mldyno list`: what there is to choose from. Imports no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from mldyno import plugins
from mldyno.axes import FAKE
from mldyno.cli.options import json_option, print_json, say, store_option
from mldyno.errors import unknown
from mldyno.units import count

if TYPE_CHECKING:
    from mldyno.store.reference import Publication

KINDS = ("workloads", "suites", "frameworks", "devices", "machines")
Rows = list[tuple[str, str]]


class Kind(click.ParamType):  # type: ignore[type-arg]
    """One of the kinds; a singular is understood."""

    name = "kind"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The kind that a word means."""
        kind = value if value in KINDS else f"{value}s"
        if kind not in KINDS:
            raise unknown("kind", value, KINDS)
        return kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The kinds that begin so."""
        return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


@click.command("list")
@click.argument("kind", required=False, type=Kind(), metavar="[KIND]")
@store_option
@json_option
def command(kind: str | None, store: str | None, as_json: bool) -> None:
    """Workloads, suites, frameworks; `devices` asks each framework, `machines` has the published ones too.

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
    return {"workloads": _workloads, "suites": _suites, "frameworks": _frameworks, "devices": _devices}.get(
        kind, lambda: _machines(store)
    )()


def _workloads() -> Rows:
    return [
        (name, plugins.about("workloads", name)[0] + _from("workloads", name)) for name in plugins.names("workloads")
    ]


def _from(kind: str, name: str) -> str:
    """Which package a member comes from, where it is not built in."""
    package = plugins.origin(kind, name)
    return f" (from the package {package})" if package else ""


def _suites() -> Rows:
    from mldyno import suites

    return [(name, suites.title(name)) for name in suites.names()]


def _frameworks() -> Rows:
    rows = []
    for name in plugins.names("frameworks"):
        title, _ = plugins.about("frameworks", name)
        here = "" if plugins.installed(name) else f" (not installed: pip install 'mldyno[{name}]')"
        rows.append((name, title + _from("frameworks", name) + here))
    return rows


def _devices() -> Rows:
    return [(device["name"], device["about"]) for device in devices_json()]


def devices_json() -> list[dict[str, Any]]:
    """The devices that each framework sees, with all that is known of them; one that can't be started says why.

    Those of the fake framework, which are made up, are left out, and frameworks that are not installed, but for torch.
    """
    from mldyno import api
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


def _machines(store: str | None) -> Rows:
    return [(machine["name"], machine["about"]) for machine in machines_json(store)]


def machines_json(store: str | None) -> list[dict[str, Any]]:
    """The machines of the store and the published ones, with what was published of each and what speaks against it.

    Of those in the store, the ones that have measured something; where there is none, those that have rehearsed.
    """
    from mldyno.store import Query, Store
    from mldyno.store.reference import Publication, machines

    opened, shipped = Store(store), machines()

    def with_records(rehearsed: bool) -> list[str]:
        queries = {name: Query({"machine": name}, heads=False, rehearsed=rehearsed) for name in opened.machines()}
        return [name for name, query in queries.items() if opened.history(query, 1)]

    stored, measured = with_records(rehearsed=True), with_records(rehearsed=False)
    left_out = {*stored} - {*measured, *shipped} if measured else set()
    if left_out:
        say(f"machines that have only rehearsed (framework {FAKE}) are left out")
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
    """A machine in a line."""
    parts = [f"in your store, imported from {', '.join(files)}" if files else "in your store"] if stored else []
    if publication.figures:
        parts.append(f"published in {', '.join(publication.sources)}: {count(publication.figures, 'figure')}")
    parts += [f"{count(len(cases), 'figure')} {mark}: {reason}" for (mark, reason), cases in publication.marked.items()]
    return "; ".join(parts)
