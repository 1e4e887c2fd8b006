"""What a change of the user's own code did, in words."""

from __future__ import annotations

from mldyno.analysis.comparisons import DELTA, Comparison
from mldyno.units import show_percent
from mldyno.views.sentences import CANT_TELL, factor
from mldyno.views.titles import case_title

STEPS = {"train": "a training step", "infer": "an inference step"}


def change_sentence(comparison: Comparison) -> str:
    """The newer version of the code against the older: your change made a training step 1.08x (1.06-1.10) slower."""
    case, older = comparison.other.case, comparison.base.case.workload
    step = STEPS.get(str(case.mode), "a step")
    if comparison.verdict == "equivalent":
        says = f"your change left {step} as fast as it was (within {show_percent(DELTA)})"
    elif comparison.verdict == "inconclusive":
        way = "faster" if comparison.ratio > 1 else "slower"
        says = f"{CANT_TELL} what your change did to {step}: it looks {factor(comparison)} {way}"
    else:
        says = f"your change made {step} {factor(comparison)} {comparison.verdict}"
    more = f"; {comparison.advice}" if comparison.advice else ""
    return (
        f"{says} [{case_title(case, ('framework', 'mode'))} on {case.device}, against {older}; {comparison.how}{more}]"
    )
