"""What outcomes say about the questions they were measured for; only measured ones, since an answer has an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.copying import CopyCost, copy_costs
from mldyno.analysis.crossover import Crossover, crossovers
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.precisions import PrecisionGain, gains
from mldyno.analysis.scaling import Scaling, scalings
from mldyno.axes import WAYS


@dataclass(frozen=True)
class Answers:
    """The answers of some outcomes; what their axes do not allow is empty."""

    crossovers: Sequence[Crossover] = ()
    """From which size on one way to do the work beats another."""
    precisions: Sequence[PrecisionGain] = ()
    """Which precision pays."""
    copies: Sequence[CopyCost] = ()
    """What the copy costs."""
    scalings: Sequence[Scaling] = ()
    """How time grows with the length of sequences."""


def answers(outcomes: Sequence[Outcome], axis: str | None = None) -> Answers:
    """All answers that these outcomes allow, or those that a comparison along one axis is about."""
    known = [one for one in outcomes if not one.published]
    return Answers(
        crossovers(known, [way for way in WAYS if axis in (None, way)]),
        gains(known) if axis in (None, "precision") else (),
        copy_costs(known) if axis in (None, "placement") else (),
        scalings(known) if axis in (None, "seq") else (),
    )
