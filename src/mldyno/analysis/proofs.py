"""Whether two frameworks were shown to do the same work: only then are their times compared.

A record says what its case computed from the workload's first weights and batch, which are the same in every
framework: outputs in inference, the losses of a few updates without dropout in training.
"""

from __future__ import annotations

from mldyno.analysis.outcomes import Outcome
from mldyno.axes import COMMAND, FAKE, TRACKED
from mldyno.frameworks import TOLERANCE, relative_error

WITHOUT = (FAKE, COMMAND, TRACKED)  # frameworks that compute nothing that could be compared


def proof_of(outcome: Outcome) -> list[float] | None:
    """The numbers that an outcome's records give; None where they give none."""
    texts = (record.fact("proof") for record in outcome.records)
    text = next((text for text in texts if text), None)
    try:
        return None if text is None else [float(word) for word in text.split()]
    except ValueError:  # another version may have written something else
        return None


def disagreement(base: Outcome, other: Outcome) -> tuple[float, float] | None:
    """By how much the numbers of two differ, relative to the largest, and how much they may; None where unknown."""
    mine, yours = proof_of(base), proof_of(other)
    if not mine or not yours or len(mine) != len(yours):
        return None
    tolerance = max(TOLERANCE.get(side.case.precision or "fp32", 0.0) for side in (base, other))
    return relative_error(yours, mine), tolerance


def doubt(base: Outcome, other: Outcome) -> str:
    """Why the times of two frameworks can't be compared; empty where they can, and within one framework."""
    frameworks = [base.case.framework, other.case.framework]
    if len({*frameworks}) == 1 or {*frameworks} & {*WITHOUT} or base.published or other.published:
        return ""
    which = f"{frameworks[0]} and {frameworks[1]}"
    difference = disagreement(base, other)
    if difference is None:
        again = f"mldyno run {base.case.workload} --framework {','.join(frameworks)}"
        return (
            f"it is not proven that {which} compute the same in {base.case.workload}; measure both in one run: {again}"
        )
    error, tolerance = difference
    if error <= tolerance:
        return ""
    what = f"{which} do not compute the same in {base.case.workload}"
    return f"{what}: they differ by {error:.2g}, {tolerance:.2g} is allowed"
