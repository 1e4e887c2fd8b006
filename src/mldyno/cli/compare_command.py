"""`mldyno compare`: speed-ups with their intervals and verdicts."""

from __future__ import annotations

import click

from mldyno import api
from mldyno.analysis.comparisons import between_machines
from mldyno.cli.options import json_option, print_json, store_option
from mldyno.errors import MldynoError
from mldyno.views.answers import answer_section
from mldyno.views.as_json import answers_json, comparison_json, mean_json
from mldyno.views.sentences import footers, mean_sentence, sentence


@click.command("compare")
@click.argument("a")
@click.argument("b", required=False)
@click.option("--by", metavar="AXIS", help="Compare along this axis (device, where only A is given).")
@click.option("--anyway", is_flag=True, help="Compare even what differs in more than what is compared.")
@store_option
@json_option
def command(a: str, b: str | None, by: str | None, anyway: bool, store: str | None, as_json: bool) -> None:
    """How much faster is B than A, or the cases of A head-to-head; and how sure is that?

    A and B are filters (mlp/train/cpu, device=mps/batch=16), ids of records, machines by part of
    their name ("M1 Max", this-machine) or exported files. Between two machines, every case that
    both have is compared, and the geometric mean follows.

    \b
    Examples:
      mldyno compare mlp --by placement
      mldyno compare mlp/infer/device=cpu mlp/infer/device=mps
      mldyno compare this-machine "M1 Max"
      mldyno compare mine.jsonl theirs.jsonl
    """
    if b is None:
        comparisons, answers = api.compare_along(a, by, store)
    else:
        comparisons, answers = api.compare(a, b, by, anyway, store), api.Answers()
    means = between_machines(comparisons)
    if as_json:
        print_json({
            "comparisons": [comparison_json(comparison) for comparison in comparisons],
            "geometric_means": [mean_json(mean) for mean in means],
            "answers": answers_json(answers),
        })  # fmt: skip
        return
    section = answer_section(answers)
    if not comparisons and not section:
        what = f"'{a}'" if b is None else f"'{a}' and '{b}'"
        raise MldynoError(f"nothing to compare in {what}: no two outcomes that are ok differ only in that.")
    for line in (*map(sentence, comparisons), *map(mean_sentence, means), *footers(comparisons), *section):
        click.echo(line)
