"""Commands to explore, check and set up."""

from __future__ import annotations

import time
from typing import Any

import click

from mldyno import plugins, suites
from mldyno.cli.options import DURATION, PLACE, Parsed, command, json_option, store_option
from mldyno.cli.output import print_data, print_json, say
from mldyno.errors import NOT_ALL_OK, OK, UsageError, unknown

KINDS = ("workloads", "suites", "frameworks", "devices", "machines")


def kind_named(word: str) -> str:
    """Return a kind of what can be listed; a singular is understood."""
    kind = word if word in KINDS else f"{word}s"
    if kind not in KINDS:
        raise unknown("kind", word, KINDS)
    return kind


@command("list", "Workloads, suites, frameworks, devices, machines.")
@click.argument("kind", required=False, type=Parsed("kind", kind_named, KINDS), metavar="[KIND]")
@store_option
@json_option
def list_(kind: str | None, store: str | None, as_json: bool) -> None:
    """List workloads, suites and frameworks; `devices` asks each framework, `machines` has the published ones too.

    \b
    Examples:
      mldyno list
      mldyno list machines
    """
    if kind in ("machines", "devices"):
        from mldyno import api

        content = api.machines(store, say) if kind == "machines" else api.devices()
        if as_json:
            print_json({kind: content})
            return
        listed = {kind: [(row["name"], row["about"]) for row in content]}
    else:
        listed = {name: _plugins(name) for name in ([kind] if kind else KINDS[:3])}
    if as_json:
        print_json({name: [{"name": a, "about": b} for a, b in rows] for name, rows in listed.items()})
        return
    width = max((len(name) for rows in listed.values() for name, _ in rows), default=0)
    for name, rows in listed.items():
        if not kind:
            click.echo(f"{name}:")
        for word, about in rows:
            click.echo(f"{'' if kind else '  '}{word.ljust(width)}  {about}".rstrip())


def _plugins(kind: str) -> list[tuple[str, str]]:
    """Return the names of workloads, suites or frameworks, each with its title and where it comes from."""
    if kind == "suites":
        return [(name, suites.title(name)) for name in suites.names()]
    rows = []
    for name in plugins.names(kind):
        package = plugins.origin(kind, name)
        about = plugins.about(kind, name)[0] + (f" (from the package {package})" if package else "")
        if kind == "frameworks" and not plugins.installed(name):
            about += f" (not installed: pip install 'mldyno[{name}]')"
        rows.append((name, about))
    return rows


@command("doctor", "Why is the GPU not used? What works on it? How idle and quiet is this machine?")
@click.option("--quick", is_flag=True, help="A few seconds: no noise test, no threads, nothing compiled.")
@click.option("--noise", type=DURATION, metavar="TIME", help="Measure noise for this long (60s; none with --quick).")
@click.option("--framework", help="Check only this one: torch, or fake for the simulated framework.")
@store_option
@json_option
def doctor(as_json: bool, **options: Any) -> None:
    """Why is the GPU not used? What works on each device? How idle and how quiet is this machine?

    Prints facts, features (each tried in a separate process), and findings, each with its cure.
    Takes about three minutes, one of them for noise, and shows how long is left; leave the machine
    alone meanwhile. Nothing is stored.

    \b
    Examples:
      mldyno doctor
      mldyno doctor --quick --json
    """
    from mldyno import api, machine_lock
    from mldyno.cli.progress import PartBar
    from mldyno.doctor.report import as_json as content
    from mldyno.doctor.report import report
    from mldyno.runner.events import Interrupted

    if who := machine_lock.holder():
        say(f"{who} measures on this machine now: the doctor and that disturb each other")
    try:
        with PartBar() as bar:
            checkup = api.doctor(**options, progress=bar)
    except (Interrupted, KeyboardInterrupt) as end:
        raise Interrupted(f"{str(end) or 'ended by SIGINT'}; an incomplete check-up says nothing.") from None
    if as_json:
        print_json(content(checkup))
    else:
        click.echo(report(checkup))


@command("selftest", "How often is mldyno itself wrong, on this machine?")
@click.option("--quick", is_flag=True, help="A short test, on the CPU in under 90 s: fewer comparisons, wider bounds.")
@click.option("--device", default="cpu", show_default=True, help="Test this device instead: mps, cuda:0, xpu, gpu.")
@click.option("--framework", help="Framework that computes the timed steps; default torch, and on a device all.")
@click.option(
    "--export", type=PLACE, metavar="FILE", help="Also write the result to FILE, to pass it on: JSON, with raw values."
)
@click.option(
    "--replay", type=PLACE, metavar="FILE", help="Measure nothing: show what is unexpected in a result in FILE."
)
@json_option
def selftest(device: str, export: str | None, replay: str | None, as_json: bool, **options: Any) -> int:
    """How often is mldyno itself wrong, on this machine? Each measure with its target and the peers' figure.

    Identical code is compared with itself, a true difference of 3 % is looked for, series with known
    truth are judged. Takes some minutes; leave the machine alone meanwhile, or see what load does.

    With a device other than the CPU, what mldyno promises is tested there, with each framework that
    sees the device, in ten minutes at most: known work, synchronization, events, memory, precisions and copies.

    \b
    Examples:
      mldyno selftest --quick
      mldyno selftest --json
      mldyno selftest --device gpu --export result.json
      mldyno selftest --device mps --framework mlx --export result.json
      mldyno selftest --replay result.json
    """
    from mldyno import api
    from mldyno.cli.progress import PartBar
    from mldyno.units import show_seconds
    from mldyno.views.records import MEASURES_TITLE, measure_json, measures_table, replay_lines, verdict_counts

    if replay is not None:
        if device != "cpu" or export or options["quick"] or options["framework"]:
            raise UsageError("--replay reads a file and measures nothing; leave the other options out")
        tested, measures = api.replay(replay)
        if as_json:
            print_json({"device": tested.device, "measures": [measure_json(measure) for measure in measures]})
        else:
            click.echo("\n".join(replay_lines(tested, measures)))
        return NOT_ALL_OK if measures else OK
    began = time.monotonic()
    with PartBar() as bar:
        measures = list(api.selftest(progress=bar, device=device, export=export, say=say, **options))
    if as_json:
        print_json({"measures": [measure_json(measure) for measure in measures]})
    else:
        click.echo(measures_table(measures, MEASURES_TITLE if device == "cpu" else f"what holds on {device}"))
        click.echo(f"{verdict_counts(measures)}, in {show_seconds(time.monotonic() - began)}.")
    if export is not None:
        say(f"written to {export}; to pass it on, open an issue of the project and attach it")
    return NOT_ALL_OK if any(measure.ok is False for measure in measures) else OK


@command("completion", "Print the script for your shell's completion.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes mldyno's commands, workloads, suites and machines in your shell.

    \b
    Examples:
      eval "$(mldyno completion bash)"
      mldyno completion fish > ~/.config/fish/completions/mldyno.fish
    """
    from click.shell_completion import get_completion_class

    from mldyno.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "mldyno", "_MLDYNO_COMPLETE").source()
    print_data(script.replace(" read type ", " read -r type "))  # in bash, names have backslashes before their spaces
