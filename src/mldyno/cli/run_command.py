"""`mldyno run`: measure workloads or suites."""

from __future__ import annotations

from typing import Any

import click

from mldyno import api
from mldyno.axes import axis_named
from mldyno.cli.measuring import axes_of, axis_options, effort_options, preview, run_options, watched
from mldyno.cli.options import Words, complete_targets, say, store_option
from mldyno.errors import NOT_ALL_OK, OK, UsageError
from mldyno.plan import Plan
from mldyno.store import Store
from mldyno.views.screens import run_screen

BEHIND_DASHES = "mldyno.command"


class RunCommand(click.Command):
    """Keeps what stands behind the first `--` apart: it is your command, or several with `--` between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments before the dashes, as usual."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[BEHIND_DASHES] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command("run", cls=RunCommand)
@click.argument("targets", nargs=-1, shell_complete=complete_targets)
@axis_options()
@effort_options
@click.option("--by", metavar="AXIS", help="Compare the cases along this axis at the end.")
@click.option("--rendezvous", metavar="HOST:PORT", help="With --nodes: this machine's address, where others join.")
@click.option("--against", metavar="REV|FILE", help="Measure a file of yours beside an older version of it.")
@click.option("--no-check", "unchecked", type=Words(), metavar="LIST", help="For your model, omit: learned, agrees.")
@click.option("--trust", is_flag=True, help="Let a suite, or a run of others to resume, run code that it names.")
@click.option("--weights", is_flag=True, help="Of hf: models, take the trained weights instead of random ones.")
@click.option("--download", is_flag=True, help="Of hf: models, fetch what is not here yet.")
@run_options
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    by: str | None,
    rendezvous: str | None,
    against: str | None,
    unchecked: list[str] | None,
    trust: bool,
    weights: bool,
    download: bool,
    resume: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    loudness: str | None,
    **options: Any,
) -> int:
    """Measure workloads, a suite or a model of your own, on every axis you name; or, behind --, a command as a whole.

    Each axis takes a comma list, and the lists multiply. Every case runs in a process of its own.
    Cases that do the same work in different ways are then measured head-to-head.
    Of a command the first run is kept apart from the others, which find everything cached.
    Several commands, with -- between them, take turns, and are compared.

    \b
    Examples:
      mldyno run mlp
      mldyno run mlp resnet50 --mode infer --batch-size 8,32 --target 5%
      mldyno run mlp --placement device,roundtrip --repeats 5 --by placement
      mldyno run apple-silicon-bert --dry-run
      mldyno run mnist-cnn --placement loader --data synthetic
      mldyno run my_model.py --precision fp32,bf16
      mldyno run my_model.py --against HEAD~1
      mldyno run --budget 2m -- python train.py
      mldyno run -- sleep 0.1 -- sleep 0.2
    """
    axis = axis_named(by) if by else None
    axes, opened, run_id = axes_of(options), Store(store), None
    words = ctx.meta.get(BEHIND_DASHES)
    if resume and not targets and words is None:
        run_id, plan = api.unfinished(opened, None, trust, say)
    else:
        settings = {**options, "by": axis, "unchecked": tuple(unchecked or ())}
        if words is None:
            plan = api.make_plan(targets, axes, settings, against, trust, weights, download)
        else:
            plan = _of_words(words, targets, axes, settings)
        if resume:
            run_id, plan = api.unfinished(opened, plan)
    for source in plan.sources if not axes.get("mode") else ():
        if source.untrained:
            say(f"{source.title} is measured in inference only: {source.untrained}")
    if dry_run:
        return preview(plan, opened, as_json)
    if others := api.host(plan, rendezvous):
        say(f"on each other machine: {others}")
    results = watched(plan, opened, store, as_json, run_id, loudness=loudness)
    if not as_json:
        tell(results, plan, opened)
    return OK if results.all_ok else NOT_ALL_OK


def _of_words(words: tuple[str, ...], targets: tuple[str, ...], axes: dict[str, Any], settings: dict[str, Any]) -> Plan:
    """The plan for commands; workloads and axes have no place beside them."""
    given = [name for name, values in {**axes, "by": settings["by"]}.items() if values]
    named = [*targets, *(f"--{name.replace('_', '-')}" for name in given)]
    if named:
        raise UsageError(f"a command is run as it stands; omit {', '.join(named)} before --.")
    return api.command_plan(words, settings)


def tell(results: api.Results, plan: Plan, store: Store) -> None:
    """Print the results with what they say; those of a suite beside published ones."""
    placed = api.placed(results, store)
    for line in run_screen(results.outcomes, plan.by, plan.sources, bool(plan.commands), plan.energy, placed):
        click.echo(line)
