"""`mldyno doctor`: facts of the machine, the frameworks and the devices."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from mldyno import __version__, api, plugins
from mldyno.cli.options import json_option, print_json, store_option
from mldyno.store import Store
from mldyno.units import count, show_bytes
from mldyno.views.words import machine_lines


@click.command("doctor")
@store_option
@json_option
def command(store: str | None, as_json: bool) -> None:
    """What this machine is, what each framework sees on it, and where results are kept.

    \b
    Example:
      mldyno doctor
    """
    machine = api.this_machine()
    frameworks = api.probe(plugins.names("frameworks"))["frameworks"]
    path = Store(store).path
    if as_json:
        print_json({"mldyno": __version__, "python": sys.version.split()[0], "machine": asdict(machine),
                    "frameworks": frameworks, "store": str(path)})  # fmt: skip
        return
    for line in machine_lines(machine):
        click.echo(line)
    click.echo(f"mldyno {__version__}, Python {sys.version.split()[0]}, store: {path}")
    for name, facts in frameworks.items():
        if "error" in facts:
            click.echo(f"{name}: {facts['error']}")
            continue
        versions = ", ".join(f"{one} {version}" for one, version in facts["versions"].items())
        threads = f", {count(facts['threads'], 'thread')}" if facts["threads"] else ""
        click.echo(f"{name}: {versions}{threads}")
        for device in facts["devices"]:
            memory = f", {show_bytes(device['memory'])}" if device["memory"] else ""
            click.echo(f"  {device['name']}: {device['title']}{memory}")
        if len(facts["devices"]) == 1 and plugins.about("frameworks", name)[1]:
            click.echo("  no accelerator: this build of the framework finds only the CPU")
