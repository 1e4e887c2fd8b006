"""pyperf: `Runner.bench_func` with its default settings, 20 worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.peers import steps
from bench.peers.tools import Answer, Call, module, read_answer, say_answer

QUICK = ("--processes", "2", "--values", "2")


@dataclass(frozen=True)
class Pyperf:
    """A script with a Runner, as pyperf's own documentation writes it."""

    name: str = "pyperf"
    environment: str = "pyperf"
    steps: tuple[str, ...] = tuple(steps.WORKLOADS)
    reference: str = "bare"
    settings: str = "`Runner().bench_func(name, step)`, defaults; `Benchmark.median()`"

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """This file; the name of the step goes by a variable, since the options are pyperf's."""
        words = module("pyperf_runner", "--inherit-environ=MLDYNO_PEERS_STEP", *(QUICK if quick else ()))
        return Call(words, {"MLDYNO_PEERS_STEP": step})

    def read(self, output: str) -> Answer:
        """The last line is ours; what pyperf warned of stands before it."""
        warnings = [line.removeprefix("WARNING: ") for line in output.splitlines() if line.startswith("WARNING")]
        return Answer(read_answer(output).seconds, tuple(warnings))


def measure() -> None:
    """Both the manager and every worker of pyperf come by here."""
    import os

    import pyperf  # type: ignore[import-not-found]

    runner = pyperf.Runner()
    name = os.environ["MLDYNO_PEERS_STEP"]
    found = runner.bench_func(name, steps.build(name))
    if found is not None and not runner.args.worker:
        say_answer(found.median())


if __name__ == "__main__":
    measure()
