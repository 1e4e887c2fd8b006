"""The figures of a tool over all rounds, and whether the goals are met. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.rounds import Turn

from mldyno.stats.intervals import half_width, mean, median, spread

NEAR, SHARE = 0.01, 0.5  # goals: distance from the bare loop; share of the best peer's spread


@dataclass(frozen=True)
class Answers:
    """What some runs said: times in s, and how they lie apart."""

    seconds: tuple[float, ...]

    @property
    def extent(self) -> float:
        """The largest over the smallest; NaN where there is none."""
        return max(self.seconds) / min(self.seconds) if self.seconds else math.nan

    @property
    def variation(self) -> float:
        """Standard deviation over mean; NaN for fewer than two."""
        return spread(self.seconds) / mean(self.seconds) if len(self.seconds) > 1 else math.nan

    @property
    def middle(self) -> float:
        """The median; NaN where there is none."""
        return median(self.seconds) if self.seconds else math.nan


@dataclass(frozen=True)
class Row:
    """A tool on one step, over all quiet rounds; `noisy` are the turns with busy neighbours."""

    tool: str
    step: str
    turns: tuple[Turn, ...]
    noisy: tuple[Turn, ...] = ()

    @property
    def answers(self) -> Answers:
        """What the tool said."""
        return Answers(tuple(turn.answer.seconds for turn in self.turns if turn.answer.seconds is not None))

    @property
    def ratios(self) -> tuple[float, ...]:
        """Each answer over that of the bare loop beside it."""
        return tuple(turn.ratio for turn in self.turns if turn.ratio is not None)

    @property
    def ratio(self) -> float:
        """The median of the ratios; NaN where there is none."""
        return median(self.ratios) if self.ratios else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean log-ratio over the rounds, as ratios; NaN for fewer than two."""
        if len(self.ratios) < 2:
            return math.nan, math.nan
        logs = [math.log(ratio) for ratio in self.ratios]
        centre, half = mean(logs), min(half_width(logs), 100.0)
        return math.exp(centre - half), math.exp(centre + half)

    @property
    def wall(self) -> float:
        """The median time in s until the answer was there."""
        return median([turn.answer.wall for turn in self.turns])

    @property
    def warned(self) -> int:
        """In how many rounds it warned, or gave no answer and said so."""
        return sum(bool(turn.answer.warnings) for turn in self.turns)

    @property
    def missed(self) -> float:
        """How far the answer with busy neighbours lies above the quiet ones, as a ratio; NaN where there is none."""
        loud = [turn.answer.seconds for turn in self.noisy if turn.answer.seconds is not None]
        return median(loud) / self.answers.middle if loud else math.nan


def rows(turns: Sequence[Turn]) -> list[Row]:
    """One row for each step and tool, in the order in which they first appear."""
    keys = list(dict.fromkeys((turn.step, turn.tool) for turn in turns))
    found = []
    for step, tool in keys:
        mine = [turn for turn in turns if (turn.step, turn.tool) == (step, tool)]
        quiet = tuple(turn for turn in mine if not turn.noisy)
        if quiet:
            found.append(Row(tool, step, quiet, tuple(turn for turn in mine if turn.noisy)))
    return found


@dataclass(frozen=True)
class Goal:
    """One goal on one step: whether it is met, and the sentence that says by how much and why."""

    step: str
    name: str
    met: bool
    says: str


def goals(ours: Row, peers: Sequence[Row]) -> list[Goal]:
    """The three goals of a step, from what was measured; none where a spread needs more answers than there are."""
    several = [peer for peer in peers if len(peer.answers.seconds) > 1]
    if not several or len(ours.answers.seconds) < 2:
        return []
    best = min(several, key=lambda peer: peer.answers.extent)
    return [_near(ours), _even(ours, best), _quick(ours, best)]


def _near(ours: Row) -> Goal:
    low, high = ours.interval
    away = abs(ours.ratio - 1)
    met = away <= NEAR
    says = f"{ours.tool} says {ours.ratio:.3f} of the bare loop beside it (95 % interval {low:.3f} to {high:.3f}); "
    says += f"the goal is {1 - NEAR:g} to {1 + NEAR:g}."
    if not met:
        says += f" It misses by {100 * (away - NEAR):.1f} percentage points."
        says += " " + (
            "The interval reaches into the goal: on this machine the rounds can't tell it from a hit."
            if low <= 1 + NEAR and high >= 1 - NEAR
            else "The interval lies outside the goal, so the difference is real."
        )
    elif low < 1 - NEAR or high > 1 + NEAR:
        says += " The interval is wider than the goal, so a miss of that size can't be ruled out."
    return Goal(ours.step, "within 1 % of the bare loop", met, says)


def _even(ours: Row, best: Row) -> Goal:
    mine, theirs = ours.answers.extent - 1, best.answers.extent - 1
    met = mine <= SHARE * theirs
    share = mine / theirs if theirs else math.inf
    says = f"the answers of {ours.tool} lie {100 * mine:.1f} % apart (largest over smallest), those of the best peer,"
    says += f" {best.tool}, {100 * theirs:.1f} %: {share:.2f} of it; the goal is {SHARE:g}."
    if not met:
        bare = Answers(tuple(turn.bare.seconds for turn in ours.turns if turn.bare.seconds is not None)).extent - 1
        ratios = Answers(ours.ratios).extent - 1
        says += f" The bare loops beside {ours.tool} lie {100 * bare:.1f} % apart, and the ratios to them"
        says += f" {100 * ratios:.1f} %. "
        says += (
            "Most of the spread is the machine's: it was faster in some rounds than in others."
            if bare >= mine / 2
            else "The bare loops were steadier, so most of the spread is not the machine's."
        )
    return Goal(ours.step, "spread at most half of the best peer's", met, says)


def _quick(ours: Row, best: Row) -> Goal:
    met = ours.wall <= best.wall
    says = f"{ours.tool} has its answer after {ours.wall:.1f} s, {best.tool} after {best.wall:.1f} s."
    if not met:
        reached = len(ours.turns) - sum(
            any("target-not-reached" in one for one in turn.answer.warnings) for turn in ours.turns
        )
        says += f" It takes {ours.wall / best.wall:.1f} times as long; it reached its own target in {reached} of"
        says += f" {len(ours.turns)} rounds, and goes on to its budget where it does not."
    return Goal(ours.step, "no more wall time than that peer", met, says)
