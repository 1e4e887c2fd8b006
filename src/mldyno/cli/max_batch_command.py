"""`mldyno max-batch`: the largest batch that fits."""

from __future__ import annotations

from typing import Any

import click

from mldyno import api
from mldyno.cli.axis_options import DURATION
from mldyno.cli.options import Words, complete_targets, json_option, print_json
from mldyno.cli.progress import new_bar, on_terminal
from mldyno.units import show_bytes
from mldyno.views.tables import aligned


class Told:
    """Says what came of each attempt, in a line that stays; on a terminal a bar below shows that it goes on."""

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.bar = new_bar() if on_terminal() else None
        self.task: Any = self.bar.add_task(workload, total=None, detail="starting") if self.bar else None

    def __enter__(self) -> Told:
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
            self.bar.console.print(line, highlight=False, markup=False)
            self.bar.update(self.task, detail=f"after batch {attempt.batch:,}, {mode}")
            self.bar.refresh()
        else:
            click.echo(line, err=True)


@click.command("max-batch")
@click.argument("workload", shell_complete=complete_targets)
@click.option("--device", default="cpu", show_default=True, help="cpu, mps, cuda:0, xpu, gpu (the accelerator).")
@click.option("--mode", type=Words(), metavar="LIST", help="train, infer; both, where the workload has both.")
@click.option("--seq", "--seq-len", "--sequence_length", type=click.IntRange(min=1), help="Tokens per item.")
@click.option("--precision", help="fp32, and what else the device can do.")
@click.option("--framework", help="torch, or fake for a rehearsal.")
@click.option("--most", type=click.IntRange(min=1), help="Look no further than this batch.")
@click.option("--timeout", type=DURATION, metavar="TIME", default="15m", help="Longest time for one batch (15m).")
@json_option
def command(
    workload: str, device: str, mode: list[str] | None, most: int | None, timeout: float, as_json: bool, **axes: Any
) -> None:
    """The largest batch that fits on a device, in training and in inference.

    Batches are doubled until one does not fit, then the gap is halved until it is closed: exactly up
    to 64, to within 2 % beyond. Each is tried for two steps in a process of its own that may only
    take what the machine can spare.

    \b
    Examples:
      mldyno max-batch resnet50
      mldyno max-batch bert-base --device gpu --seq 512 --mode train
    """
    with Told(workload) as told:
        found = api.max_batch(workload, mode, most, timeout, told, device=device, **axes)
    if as_json:
        print_json({"max_batch": {name: _as_json(search) for name, search in found.items()}})
        return
    rows = [_row(name, search) for name, search in found.items()]
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
            "attempts": [vars(one) for one in search.attempts]}  # fmt: skip
