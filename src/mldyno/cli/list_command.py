"""`mldyno list`: what there is to choose from. Imports no framework."""

from __future__ import annotations

import click

from mldyno import plugins
from mldyno.cli.options import json_option, print_json, store_option

KINDS = ("workloads", "suites", "frameworks", "devices", "machines")
Rows = list[tuple[str, str]]


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@store_option
@json_option
def command(kind: str | None, store: str | None, as_json: bool) -> None:
    """Workloads, suites, frameworks; `devices` asks each framework, `machines` reads the store.

    \b
    Examples:
      mldyno list
      mldyno list devices
    """
    found = {name: _rows(name, store) for name in ([kind] if kind else KINDS[:3])}
    if as_json:
        print_json({name: [{"name": a, "about": b} for a, b in rows] for name, rows in found.items()})
        return
    width = max((len(name) for rows in found.values() for name, _ in rows), default=0)
    for name, rows in found.items():
        if not kind:
            click.echo(f"{name}:")
        for word, about in rows:
            click.echo(f"{'' if kind else '  '}{word.ljust(width)}  {about}".rstrip())


def _rows(kind: str, store: str | None) -> Rows:
    return {"workloads": _workloads, "suites": _suites, "frameworks": _frameworks, "devices": _devices}.get(
        kind, lambda: _machines(store)
    )()


def _workloads() -> Rows:
    return [(name, plugins.about("workloads", name)[0]) for name in plugins.names("workloads")]


def _suites() -> Rows:
    from mldyno import suites

    return [(name, suites.title(name)) for name in suites.names()]


def _frameworks() -> Rows:
    from importlib.util import find_spec

    rows = []
    for name in plugins.names("frameworks"):
        title, needs = plugins.about("frameworks", name)
        here = "" if not needs or find_spec(needs) else f" (not installed: pip install 'mldyno[{name}]')"
        rows.append((name, title + here))
    return rows


def _devices() -> Rows:
    from mldyno import api

    found = api.probe(plugins.names("frameworks"))["frameworks"]
    rows = []
    for name, facts in found.items():
        if "error" in facts:
            rows.append((name, facts["error"]))
        rows += [(f"{name} {device['name']}", device["title"]) for device in facts.get("devices", ())]
    return rows


def _machines(store: str | None) -> Rows:
    from mldyno.store import Store
    from mldyno.store.reference import published

    known = {record.machine.name for record in published()}
    return [(name, "published" if name in known else "in your store") for name in Store(store).machines()]
