"""mldyno, called as a user calls it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.peers.steps import WORKLOADS
from bench.peers.tools import ROOT, Answer, Call

from mldyno.analysis.estimates import uncontended
from mldyno.analysis.outcomes import outcomes
from mldyno.store.codec import decode

BUDGET, TARGET = "36s", "2%"  # of all processes together: with their starts no longer than pyperf takes
LEARNED = 5  # runs of each step that a new store is given first: from them it knows what is usual here
STORE = ROOT / ".peers" / "mldyno.sqlite"  # a user has one too, and what it knows of the machine helps
STANDING = ("virtualised",)  # facts of the machine, said in every run: no sign of a doubtful answer


@dataclass(frozen=True)
class Ours:
    """`mldyno run`, with one store for all rounds; the answer is its headline."""

    name: str = "mldyno"
    environment: str = "mldyno"
    steps: tuple[str, ...] = tuple(WORKLOADS)
    reference: str = "bare"
    settings: str = (
        f"as many short processes as it takes, `--budget {BUDGET} --target {TARGET}`; one store for all rounds, which"
        f" has {LEARNED} runs of each step from the hour before, or of an earlier bench, as a user's store has"
    )

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """One case, in several processes."""
        workload, batch, seq = WORKLOADS[step]
        sizes = ["--batch-size", str(batch), *(["--seq-len", str(seq)] if seq else [])]
        words = ["mldyno", "run", workload, "--mode", "infer", *sizes, "--threads", "1"]
        effort = ["--repeats", "1", "--budget", "2s"] if quick else ["--budget", BUDGET, "--target", TARGET]
        store = folder / "store.sqlite" if quick else STORE
        return Call([*words, *effort, "--json"], {"MLDYNO_STORE": str(store)})

    def read(self, output: str) -> Answer:
        """The headline, as every command shows it."""
        records = [decode(line) for line in output.splitlines() if line.startswith("{")]
        if not records:
            raise ValueError("no record")
        (outcome,) = outcomes(records)
        warnings = tuple(f"{each.code}: {each.message}" for each in outcome.warnings if each.code not in STANDING)
        if outcome.step is None:
            return Answer(None, (f"{outcome.status}: {outcome.reason}", *warnings))
        steady = [value for record in outcome.good for value in record.values("step_time", "steady")]
        return Answer(outcome.step.value, warnings, uncontended=uncontended(sorted(steady)))
