"""`mldyno crossover`: from which size on one beats the other."""

from __future__ import annotations

from typing import Any

import click

from mldyno import api
from mldyno.cli.measuring import axes_of, axis_options, effort_options, preview, run_options, watched
from mldyno.cli.options import complete_targets, json_option, print_json, store_option
from mldyno.errors import NOT_ALL_OK, OK
from mldyno.plan import MOST_SIZES_PER_DOUBLING
from mldyno.store import Store
from mldyno.views.answers import answer_section
from mldyno.views.as_json import answers_json
from mldyno.views.outcomes import trust_lines, unknown_energy_lines
from mldyno.views.tables import crossover_table


@click.command("crossover")
@click.argument("workload", shell_complete=complete_targets)
@click.option("--over", default="batch", show_default=True, metavar="AXIS", help="What grows: batch, or seq.")
@click.option("--from", "smallest", metavar="SIZE", help="The smallest size (1 item, or 8 tokens).")
@click.option("--to", "largest", metavar="SIZE", help="The largest size (the workload's own).")
@click.option(
    "--per-doubling",
    type=click.IntRange(1, MOST_SIZES_PER_DOUBLING),
    default=1,
    show_default=True,
    help="How many sizes there are up to twice a size.",
)
@axis_options()
@effort_options
@run_options
@store_option
@json_option
def command(
    workload: str,
    over: str,
    smallest: str | None,
    largest: str | None,
    per_doubling: int,
    resume: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    loudness: str | None,
    **options: Any,
) -> int:
    """Is the GPU worth it? From which size on one of two beats the other, with an interval.

    Exactly one axis has two values (the CPU and the accelerator, if none is given); these two are
    measured head-to-head at sizes that double, in each mode. All that is measured is kept, as of
    any run.

    \b
    Examples:
      mldyno crossover mlp
      mldyno crossover attention --device cpu,gpu --over seq --from 32 --to 1024 --mode train
      mldyno crossover resnet50 --precision fp32,bf16 --mode infer --per-doubling 2
      mldyno crossover mlp --device cpu,gpu --energy
      mldyno crossover mlp --placement device,host --dry-run
    """
    axes, opened, run_id = axes_of(options), Store(store), None
    plan = api.crossover_plan(workload, axes, over, smallest, largest, per_doubling, options)
    if resume:
        run_id, plan = api.unfinished(opened, plan)
    if dry_run:
        return preview(plan, opened, as_json)
    results = watched(plan, opened, store, run_id=run_id, loudness=loudness)
    answers = results.answers
    if as_json:
        print_json({"run": results.run, "answers": answers_json(answers)})
    else:
        for crossover in answers.crossovers:
            click.echo(crossover_table(crossover))
            click.echo()
        unknown = unknown_energy_lines(results.outcomes) if plan.energy else []
        for line in (*unknown, *trust_lines(results.outcomes), *answer_section(answers)):
            click.echo(line)
    return OK if results.all_ok else NOT_ALL_OK
