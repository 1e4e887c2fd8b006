"""`mldyno compare`: speed-ups with their intervals and verdicts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from mldyno import api
from mldyno.analysis.comparisons import MEASURED, Comparison, between_machines
from mldyno.cli.options import complete_stored, json_option, print_json, say, since_option, store_option
from mldyno.errors import MldynoError
from mldyno.views.answers import answer_section
from mldyno.views.as_json import answers_json, comparison_json, mean_json
from mldyno.views.claims import fastest_frameworks, footers, mean_sentence, nothing_along, sentence


@click.command("compare")
@click.argument("a", shell_complete=complete_stored)
@click.argument("b", required=False, shell_complete=complete_stored)
@click.option("--by", metavar="AXIS", help="Compare along this axis, machine or run (device, where only A is given).")
@click.option(
    "--value",
    type=click.Choice(list(MEASURED)),
    default="step",
    help="What is compared: the time of a step (the default), or its energy.",
)
@click.option("--anyway", is_flag=True, help="Compare even what differs in more than what is compared.")
@since_option
@store_option
@json_option
def command(
    a: str, b: str | None, by: str | None, value: str, anyway: bool, since: str | None, store: str | None, as_json: bool
) -> None:
    """How much faster is B than A, or the cases of A head-to-head; and how sure is that?

    A and B are filters (mlp/train/cpu, device=mps/batch=16), ids of records, machines by part of
    their name ("M1 Max", this-machine) or exported files. Between two machines, every case that
    both have is compared, and the geometric mean follows. With --by run, the runs of each case on
    this machine are compared, before and after: the oldest is the base.

    \b
    Examples:
      mldyno compare mlp --by placement
      mldyno compare mlp --by run --since yesterday
      mldyno compare mlp/infer/device=cpu mlp/infer/device=mps
      mldyno compare this-machine "M1 Max"
      mldyno compare mine.jsonl theirs.jsonl
      mldyno compare mlp --by precision --value energy
    """
    if b is None:
        comparisons, answers = api.compare_along(a, by, store, since, say, value)
    else:
        comparisons, answers = api.compare(a, b, by, anyway, store, since, say, value), api.Answers()
    means = between_machines(comparisons)
    if as_json:
        print_json({
            "comparisons": [comparison_json(comparison) for comparison in comparisons],
            "geometric_means": [mean_json(mean) for mean in means],
            "answers": answers_json(answers),
        })  # fmt: skip
        return
    section = answer_section(answers)
    runs = _runs_instead(a, store, since) if b is None and by is None and _others_only(comparisons) else ""
    if not comparisons and not section:
        if b is not None:
            raise MldynoError(f"nothing to compare in '{a}' and '{b}': no two that are ok differ only in that.")
        raise MldynoError(runs or nothing_along(by or "device", f" in '{a}'"))
    best = fastest_frameworks(comparisons) if value == "step" else []
    for line in (*map(sentence, comparisons), *best, *map(mean_sentence, means), *footers(comparisons), *section):
        click.echo(line)
    if runs:
        click.echo(runs)


def _others_only(comparisons: Sequence[Comparison]) -> bool:
    """Whether nothing was compared but published figures."""
    return all(comparison.base.published and comparison.other.published for comparison in comparisons)


def _runs_instead(text: str, store: str | None, since: str | None) -> str:
    """What can be compared where this machine has measured on one device only; nothing where it has one run only."""
    if not api.in_several_runs(text, store, since):
        return ""
    how = f"mldyno compare {shlex.quote(text)} --by run"
    return f"this machine measured '{text}' on one device only, but in several runs; compare these with: {how}"
