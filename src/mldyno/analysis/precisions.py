"""Which precision is worth it: the gain of each over fp32, and how far its results are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import Comparison, alike, compare
from mldyno.analysis.outcomes import Outcome

PLAIN = "fp32"


@dataclass(frozen=True)
class PrecisionGain:
    """A precision against fp32; without a comparison where it did not succeed."""

    outcome: Outcome
    comparison: Comparison | None

    @property
    def error(self) -> float | None:
        """How far its results are off."""
        return error_of(self.outcome)

    @property
    def held_back_by_layout(self) -> bool:
        """Whether convolutions of 16 bits ran contiguous on CUDA, where tensor cores want their channels last."""
        case, record = self.outcome.case, self.outcome.records[0]
        halved = (case.precision or PLAIN).endswith(("fp16", "bf16"))
        return bool(
            halved and case.device.startswith("cuda") and case.layout == "contiguous" and record.fact("convolutions")
        )


def error_of(outcome: Outcome) -> float | None:
    """The largest relative difference from the results in fp32 on the CPU; None where that was not looked at."""
    errors = [record.checks.error for record in outcome.good if record.checks.error is not None]
    return max(errors, default=None)


def gains(outcomes: Sequence[Outcome]) -> list[PrecisionGain]:
    """Each precision against fp32 in the same work, the fastest first, and last what did not succeed."""
    gained = []
    for group in alike(outcomes, "precision"):
        plain = next((o for o in group if o.case.precision == PLAIN and o.status == "ok"), None)
        if plain is not None:
            others = [PrecisionGain(o, compare(plain, o)) for o in group if o.case.precision != PLAIN]
            gained += sorted(others, key=lambda gain: -gain.comparison.ratio if gain.comparison else 0.0)
    return gained
