"""`mldyno max-batch`: the largest batch that fits."""

from __future__ import annotations

from typing import Any

import click

from mldyno import api
from mldyno.cli.measuring import axes_of, axis_options, timeout_option
from mldyno.cli.options import complete_targets, json_option, print_json
from mldyno.cli.output import new_bar, on_terminal
from mldyno.units import show_bytes
from mldyno.views.tables import aligned


class AttemptLines:
    """Says what came of each attempt, in a line that stays; on a terminal a bar below shows that it goes on."""

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.bar = new_bar() if on_terminal() else None
        self.task: Any = self.bar.add_task(workload, total=None, detail="starting") if self.bar else None

    def __enter__(self) -> AttemptLines:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, mode: str, attempt: api.Attempt) -> None:
        """An attempt has ended."""
        outcome = f"fits, {show_bytes(attempt.peak or 0)}" if attempt.fits else f"does not fit ({attempt.reason})"
        line = f"{self.workload} {mode}: batch {attempt.batch:,} {outcome}"
        if self.bar:
            self.bar.say(line)
            self.bar.update(self.task, detail=f"after batch {attempt.batch:,}, {mode}")
            self.bar.refresh()
        else:
            click.echo(line, err=True)


@click.command("max-batch")
@click.argument("workload", shell_complete=complete_targets)
@axis_options(without=("batch",))
@click.option("--most", type=click.IntRange(min=1), help="Look no further than this batch.")
@timeout_option
@json_option
def command(workload: str, most: int | None, timeout: float | None, as_json: bool, **options: Any) -> None:
    """The largest batch that fits on a device, in training and in inference.

    Batches are doubled until one does not fit, then the gap is halved until it is closed: exactly up
    to 64, to within 2 % beyond. Each is tried for two steps in a process of its own that may only
    take what the machine can spare.

    \b
    Examples:
      mldyno max-batch resnet50
      mldyno max-batch bert-base --device gpu --seq 512 --mode train
    """
    axes = axes_of(options)
    with AttemptLines(workload) as listener:
        searches = api.max_batch(workload, axes.pop("mode"), most, timeout, listener, **axes)
    if as_json:
        print_json({"max_batch": {mode: _as_json(search) for mode, search in searches.items()}})
        return
    rows = [_row(mode, search) for mode, search in searches.items()]
    click.echo(aligned(["mode", "largest batch", "memory", "beyond it"], rows, 1))


def _row(mode: str, search: api.Search) -> list[str]:
    fits, beyond = search.fits, search.too_large
    words = f"{beyond.batch:,}: {beyond.reason}" if beyond else "not looked for"
    if fits is None:
        return [mode, "none", "-", words]
    return [mode, f"{fits.batch:,}", show_bytes(fits.peak or 0), words]


def _as_json(search: api.Search) -> dict[str, Any]:
    fits = search.fits
    return {"case": search.case.id, "batch": fits.batch if fits else None, "peak": fits.peak if fits else None,
            "attempts": [vars(attempt) for attempt in search.attempts]}  # fmt: skip
