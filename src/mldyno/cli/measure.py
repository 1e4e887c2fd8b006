"""Commands to measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mldyno import api
from mldyno.cli import options
from mldyno.cli.options import DURATION, EFFORT, command
from mldyno.cli.output import print_json, say
from mldyno.errors import NOT_ALL_OK, OK
from mldyno.plan import MOST_SIZES_PER_DOUBLING, Plan
from mldyno.store import Store
from mldyno.units import count, show_bytes, show_seconds

BEHIND_DASHES = "mldyno.command"


@command("quick", "At most three minutes: how fast this machine trains and runs models.")
@options.setting_options("budget", "limit", budget="6s", limit="160s")
@click.option("--framework", default="torch", show_default=True, help="torch, or fake for the simulated framework.")
@options.verbosity_options
@options.store_option
def quick(verbosity: str | None, store: str | None, **options: Any) -> int:
    """Measure this machine in at most three minutes: how fast it trains and runs models, on every device.

    \b
    Example:
      mldyno quick
    """
    results = watched(api.quick, store, verbosity, **options)
    click.echo(str(results))
    return OK if results.all_ok else NOT_ALL_OK


class RunCommand(click.Command):
    """Takes the words behind the first `--`: the user's command, or several with `--` between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[BEHIND_DASHES] = tuple(args[place + 1 :]) if place < len(args) else None
        return super().parse_args(ctx, args[:place])


@command("run", "Measure workloads, a suite or your own model, on every axis you name.", RunCommand)
@click.argument("targets", nargs=-1, shell_complete=options.complete_targets)
@options.axis_options()
@options.setting_options(*EFFORT, "by", "rendezvous", "against", "unchecked", "trust", "weights", "download")
@options.run_options
@options.store_option
@click.option("--on", metavar="HOSTS", help="Measure on these hosts: lab.toml, or ssh:mini,ssh:box.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, targets: tuple[str, ...], on: str | None, dry_run: bool, store: str | None, as_json: bool,
    verbosity: str | None, **options: Any,
) -> int:  # fmt: skip
    """Measure workloads, a suite or your own model, on every axis you name; or, after --, a command as a whole.

    Each axis takes a comma list, and the lists multiply. Every case runs in its own process.
    Cases that do the same work in different ways are then compared, interleaved.
    The first run of a command is reported apart from the others, which find everything cached.
    Several commands, with -- between them, are interleaved and compared.

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
      mldyno run quick --on ssh:mini,ssh:box
    """
    options["command"] = ctx.meta[BEHIND_DASHES]
    if on is not None:
        from mldyno.cli.fleet import run_on

        return run_on(on, targets, dry_run, store, as_json, verbosity, **options)
    if dry_run:
        return preview(api.planned(*targets, store=store, say=say, **options)[0], store, as_json)
    results = watched(api.run, store, verbosity, *targets, as_json=as_json, **options)
    if not as_json:
        click.echo(str(results))
    return OK if results.all_ok else NOT_ALL_OK


@command("crossover", "Is the GPU worth it? The size from which one of two beats the other.")
@click.argument("workload", shell_complete=options.complete_targets)
@click.option("--over", default="batch", show_default=True, metavar="AXIS", help="Size to vary: batch or seq.")
@click.option("--from", "smallest", metavar="SIZE", help="Smallest size (1 item, or 8 tokens).")
@click.option("--to", "largest", metavar="SIZE", help="Largest size (the workload's own).")
@click.option(
    "--per-doubling", type=click.IntRange(1, MOST_SIZES_PER_DOUBLING), default=1, show_default=True,
    help="Sizes per doubling.",
)  # fmt: skip
@options.axis_options()
@options.setting_options(*EFFORT)
@options.run_options
@options.store_option
@options.json_option
def crossover(
    resume: bool, dry_run: bool, store: str | None, as_json: bool, verbosity: str | None, **options: Any
) -> int:
    """Is the GPU worth it? Find the size from which one of two beats the other, with its interval.

    Exactly one axis has two values (the CPU and the accelerator, if none is given). The two are
    interleaved at sizes that double, in each mode. All that is measured is stored, as with any run.

    \b
    Examples:
      mldyno crossover mlp
      mldyno crossover attention --device cpu,gpu --over seq --from 32 --to 1024 --mode train
      mldyno crossover resnet50 --precision fp32,bf16 --mode infer --per-doubling 2
      mldyno crossover mlp --device cpu,gpu --energy
      mldyno crossover mlp --placement device,host --dry-run
    """
    from mldyno.views.answers import answer_section, crossover_table
    from mldyno.views.as_json import answers_json
    from mldyno.views.outcomes import trust_lines, unknown_energy_lines

    if dry_run:
        return preview(api.crossover_plan(**options), store, as_json)
    results = watched(api.sweep, store, verbosity, resume=resume, **options)
    answers = results.answers
    if as_json:
        print_json({"run": results.run, "answers": answers_json(answers)})
    else:
        for each in answers.crossovers:
            click.echo(crossover_table(each))
            click.echo()
        unknown = unknown_energy_lines(results.outcomes) if options["energy"] else []
        for line in (*unknown, *trust_lines(results.outcomes), *answer_section(answers)):
            click.echo(line)
    return OK if results.all_ok else NOT_ALL_OK


@command("max-batch", "The largest batch that fits on a device.")
@click.argument("workload", shell_complete=options.complete_targets)
@options.axis_options(without="batch")
@click.option("--most", type=click.IntRange(min=1), help="Try no batch larger than this.")
@options.setting_options("timeout")
@options.json_option
def max_batch(workload: str, mode: list[str] | None, as_json: bool, **options: Any) -> None:
    """Find the largest batch that fits on a device, in training and in inference.

    Batches are doubled until one does not fit, then the gap is halved until it is closed: exactly up
    to 64, to within 2 % above. Each is tried for two steps in its own process, which may only use
    the memory that the machine can spare.

    \b
    Examples:
      mldyno max-batch resnet50
      mldyno max-batch bert-base --device gpu --seq 512 --mode train
    """
    from mldyno.cli.progress import AttemptBar
    from mldyno.views.tables import aligned

    with AttemptBar(workload) as listener:
        searches = api.max_batch(workload, mode, tell=listener, say=say, **options)
    if as_json:
        print_json({"max_batch": {
            name: {"case": search.case.id, "batch": search.fits.batch if search.fits else None,
                   "peak": search.fits.peak if search.fits else None,
                   "attempts": [vars(attempt) for attempt in search.attempts]}
            for name, search in searches.items()}})  # fmt: skip
        return
    rows = []
    for name, search in searches.items():
        fits, beyond = search.fits, search.too_large
        reason = f"{beyond.batch:,}: {beyond.reason}" if beyond else "not looked for"
        size = [f"{fits.batch:,}", show_bytes(fits.peak or 0)] if fits else ["none", "-"]
        rows.append([name, *size, reason])
    click.echo(aligned(["mode", "largest batch", "memory", "beyond it"], rows, 1))


@command("join", "Take part in training that another machine measures.")
@click.argument("address", metavar="HOST:PORT")
@click.option("--token", required=True, help="Token that `mldyno run --nodes` printed.")
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="Ranks in all, as on the first machine.")
@click.option("--nodes", type=click.IntRange(min=2), default=2, show_default=True, help="Machines in all.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of each rank, as on the first machine.")
@click.option(
    "--wait", type=DURATION, default=60.0, metavar="TIME", help="Stop when no job starts for this long (60s)."
)
def join(wait: float, **options: Any) -> int:
    """Take part in training that another machine measures: its ranks run on both.

    The first machine prints the whole line to type here. Traffic between ranks is not encrypted:
    use a network that you trust.

    \b
    Examples:
      mldyno run bert-base --mode train --ranks 2 --nodes 2 --rendezvous 10.0.0.1:29400
      mldyno join 10.0.0.1:29400 --token 0123456789abcdef --ranks 2
    """
    jobs = api.join(**options, wait=wait, tell=say)
    say(f"took part in {count(jobs, 'job')}; no other began for {show_seconds(wait)}")
    return OK


def watched(
    measure: Callable[..., Any], store: str | None, verbosity: str | None, *targets: str, as_json: bool = False,
    **options: Any,
) -> Any:  # fmt: skip
    """Measure with progress on standard error; if the run ends early, say what is kept and how to resume."""
    from mldyno.cli.progress import listener_for
    from mldyno.runner.events import Interrupted
    from mldyno.views.titles import case_name

    resume = f"mldyno run --resume{f' --store {store}' if store else ''}"
    try:
        results = measure(*targets, store=store, listener=listener_for(verbosity, as_json), **options)
    except Interrupted as end:
        raise Interrupted(f"{end}; finished measurements are kept. Resume with: {resume}") from None
    if results.left_out:
        names = ", ".join(map(case_name, results.left_out))
        say(f"left out when the limit was over: {names}; resume with: {resume}")
    return results


def preview(plan: Plan, store: str | None, as_json: bool) -> int:
    """Print the expected time and memory of a plan, without running it."""
    from mldyno.cli.progress import CountedBar
    from mldyno.views.tables import aligned
    from mldyno.views.titles import case_name

    with CountedBar("looking at the cases") as bar:
        forecasts = api.dry_run(plan, Store(store), bar)
    running = [forecast for forecast in forecasts if forecast.fits is not False]
    total = sum(forecast.seconds for forecast in running)
    if as_json:
        fields = ("seconds", "known", "memory", "fits", "note")
        cases = [{"id": each.case.id, **{name: getattr(each, name) for name in fields}} for each in forecasts]
        print_json({"cases": cases, "seconds": total})
        return OK
    rows = []
    for forecast in forecasts:
        memory = "unknown" if forecast.memory is None else show_bytes(forecast.memory)
        source = "as last time" if forecast.known else "guessed" if forecast.memory is None else "estimated"
        rows.append([case_name(forecast.case), show_seconds(forecast.seconds), memory, forecast.note or source])
    click.echo(aligned(["case", "time", "memory", ""], rows, 1))
    repeats = f", {plan.fewest_repeats} repeats" if plan.fewest_repeats > 1 else ""
    repeats += " or more" if plan.most_repeats > plan.fewest_repeats else ""
    too_large = len(forecasts) - len(running)
    without = f", without {count(too_large, 'case')} that can't fit" if too_large else ""
    in_all = f"{count(len(plan.cases), 'case')}{repeats}, about {show_seconds(total)} in all{without}"
    click.echo(f"{in_all}. Nothing was run.")
    return OK
