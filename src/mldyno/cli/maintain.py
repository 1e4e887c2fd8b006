"""Commands to look after mldyno."""

from __future__ import annotations

import time

import click

from mldyno.cli.options import command, json_option, print_data, print_json, say
from mldyno.errors import NOT_ALL_OK, OK


@command("selftest", "How often is mldyno itself wrong, on this machine?")
@click.option("--quick", is_flag=True, help="A short test, in under 90 s: fewer comparisons, wider bounds.")
@click.option("--device", default="cpu", show_default=True, help="Test this device instead: mps, cuda:0, xpu, gpu.")
@click.option("--framework", default="torch", show_default=True, help="Framework that computes the timed steps.")
@click.option("--export", metavar="FILE", help="Also write the result to FILE, to pass it on: JSON, with raw values.")
@json_option
def selftest(quick: bool, device: str, framework: str, export: str | None, as_json: bool) -> int:
    """How often is mldyno itself wrong, on this machine? Each measure with its target and the peers' figure.

    Identical code is compared with itself, a true difference of 3 % is looked for, series with known
    truth are judged. Takes some minutes; leave the machine alone meanwhile, or see what load does.

    With a device other than the CPU, what mldyno promises is tested there: known work, synchronization,
    events, memory, precisions and copies.

    \b
    Examples:
      mldyno selftest --quick
      mldyno selftest --json
      mldyno selftest --device gpu --export result.json
    """
    from mldyno import api
    from mldyno.cli.progress import PartBar
    from mldyno.units import show_seconds
    from mldyno.views.measures import TITLE, measure_json, measures_table, verdict_counts

    began = time.monotonic()
    with PartBar() as bar:
        measures = list(api.selftest(quick, framework, bar, device, export))
    if as_json:
        print_json({"measures": [measure_json(measure) for measure in measures]})
    else:
        click.echo(measures_table(measures, TITLE if device == "cpu" else f"what holds on {device}"))
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
