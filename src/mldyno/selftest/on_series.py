"""The measures on simulated series: coverage, drift, warm-up, false claims.

They call the functions that judge real series, and know the truth. `series` is the number of series of each kind;
`tick` is called after each kind.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from mldyno.selftest import synthetic
from mldyno.selftest.measures import Measure, SeriesKind, quantile_with_bound, series_kind, together
from mldyno.stats import intervals, shapes
from mldyno.timing import stopping

Tick = Callable[[], None]
Make = Callable[[random.Random], list[float]]
Change = Callable[[list[float]], list[float]]

CERTAIN = 0.99  # confidence in the miss of one kind of series: there are many of them
RATIO = 1.03  # true ratio of the two cases
COVERAGE_LIMITS = (0.93, 0.97)
DRIFT, LEAST_DRIFT_FOUND, MOST_FALSE_DRIFTS = 0.05, 0.85, 0.02
WARM_UP_STEPS, MOST_WARM_UP_BIAS, MOST_STEADY_FLAGGED = 300, 0.015, 0.02
MOST_FALSE_CLAIMS = 0.05
CLAIMS_TO_JUDGE = 20  # with fewer claims a kind of series is not chosen as the worst

# Noise correlation of each case, two speeds of the machine, share of outliers, rounds.
COVERAGE = (
    (0.0, False, 0.0, 192), (0.5, False, 0.0, 192), (0.8, False, 0.0, 192), (0.0, True, 0.0, 192),
    (0.5, True, 0.0, 192), (0.8, True, 0.0, 192), (0.0, False, 0.03, 192), (0.5, True, 0.03, 192),
    (0.0, False, 0.0, 48), (0.8, True, 0.03, 960),
)  # fmt: skip
# Spread of the steps and their number.
DRIFTING = ((0.02, 300), (0.05, 500), (0.1, 2000))
# Spread and correlation of the steps.
WARM_NOISE = ((0.01, 0.0), (0.05, 0.0), (0.01, 0.5), (0.05, 0.5))
WARM_UPS = (5, 30, 100)
# Series that never settle, and whether 300 steps of the noisiest kind can show it in every case: a slope of 10 % is
# only 4 to 5 times its own error. Where they can't, the kind is reported and does not count.
NEVER_SETTLES: tuple[tuple[str, bool, Change], ...] = (
    ("grows by 10 %", False, lambda steady: synthetic.drifting(steady, 0.1)),
    ("falls by 10 %", False, lambda steady: synthetic.drifting(steady, -0.1)),
    ("grows by 20 %", True, lambda steady: synthetic.drifting(steady, 0.2)),
    ("fades by 20 %", False, lambda steady: synthetic.decaying(steady, 0.463, 300)),
    ("fades from 3 times", True, lambda steady: synthetic.decaying(steady, 2.0, 100)),
)
# Time of a block in s, correlation and spread.
CLAIMS = (
    (0.001, 0.0, 0.2), (0.001, 0.5, 0.2), (0.001, 0.8, 0.1), (0.001, 0.95, 0.05), (0.001, 0.95, 0.1),
    (0.01, 0.0, 0.05), (0.01, 0.5, 0.05), (0.01, 0.8, 0.05), (0.01, 0.95, 0.05),
)  # fmt: skip
# Time of a block in s, mean blocks in one of two speeds, and whether the kind counts: no rule that stops within one
# speed can see the other.
STAYS = ((0.0005, 50.0, True), (0.001, 50.0, False), (0.01, 50.0, False))


def _chance(seed: int, kind: str) -> random.Random:
    """Return a random source for one kind of series: each kind can be run alone."""
    return random.Random(f"{seed} {kind}")


def _taken(kinds: Iterable[SeriesKind], tick: Tick) -> tuple[SeriesKind, ...]:
    """Return all kinds; call `tick` after each."""
    taken = []
    for kind in kinds:
        taken.append(kind)
        tick()
    return tuple(taken)


def _worst(kinds: Iterable[SeriesKind], badness: Callable[[SeriesKind], float]) -> SeriesKind:
    return max((kind for kind in kinds if kind.counts), key=badness)


def _measure(
    number: int, name: str, target: str, peers: str, worst: SeriesKind, kinds: tuple[SeriesKind, ...], note: str = "",
    judged: Sequence[SeriesKind] | None = None,
) -> Measure:  # fmt: skip
    """Return a measure whose value is that of its worst kind; `judged` are the kinds that decide, if not all."""
    ok = together(kind.ok for kind in (kinds if judged is None else judged) if kind.counts)
    note = f"worst: {worst.name}{note}"
    return Measure(number, name, worst.value, worst.bound, target, ok, worst.n, "share", peers, note, kinds)


def coverage(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 5: how often the 95 % interval of a ratio holds the true ratio."""
    kinds = _taken((_covered(series, seed, *noise) for noise in COVERAGE), tick)
    worst = _worst(kinds, lambda kind: abs(kind.value - 0.95))
    return _measure(5, "coverage of the 95 % interval of the ratio, known truth", "93-97 %", "15-78 %", worst, kinds)


def _covered(series: int, seed: int, phi: float, two: bool, outliers: float, rounds: int) -> SeriesKind:
    name = f"{rounds} rounds, phi {phi:g}{', two speeds' if two else ''}{', outliers' if outliers else ''}"
    chance, hits = _chance(seed, name), 0
    for _ in range(series):
        centre, width = intervals.paired(synthetic.log_ratios(chance, rounds, RATIO, phi, two, outliers))
        hits += abs(centre - math.log(RATIO)) <= width
    return series_kind(name, hits, series, *COVERAGE_LIMITS, level=CERTAIN)


def drift_found(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 9: how often a drift of 5 % is found, and how often one is seen in steady series."""
    kinds = _taken((kind for noise in DRIFTING for kind in _drift_kinds(series, seed, *noise)), tick)
    worst = _worst((kind for kind in kinds if kind.name.startswith("+")), lambda kind: -kind.value)
    alarm = _worst((kind for kind in kinds if kind.name.startswith("none")), lambda kind: kind.value)
    return _measure(
        9, "injected +5 % drift found (phi = 0)", ">= 85 %, false alarms <= 2 %", "none", worst, kinds,
        f"; false alarms at most {alarm.value:.1%}: {alarm.name}",
    )  # fmt: skip


def _drift_kinds(series: int, seed: int, spread: float, count: int) -> Iterator[SeriesKind]:
    """Yield the kinds of series in which drifts are looked for: steady ones, and ones that change."""
    of = f"{count} steps, noise {spread:.0%}"
    drifts = partial(_drifts, series, seed)

    def steady(chance: random.Random, phi: float = 0.0) -> list[float]:
        return synthetic.steps(chance, count, phi, spread)

    def two_speeds(chance: random.Random) -> list[float]:
        return list(islice(synthetic.modes(chance, 50, spread), count))

    def drift(chance: random.Random) -> list[float]:
        return synthetic.drifting(steady(chance), DRIFT)

    def jump(place: float) -> SeriesKind:
        name = f"+5 % jump at {100 * place:.0f} %, {of}"
        kind = drifts(name, lambda c: synthetic.jumping(steady(c), DRIFT, place), "a jump", counts=False)
        return replace(kind, ok=kind.value >= LEAST_DRIFT_FOUND)

    yield drifts(f"+5 % drift, {of}", drift, "gradual", least=LEAST_DRIFT_FOUND)
    yield drifts(f"none, {of}", steady, most=MOST_FALSE_DRIFTS)
    yield drifts(f"none, {of}, phi 0.8", lambda c: steady(c, 0.8), most=MOST_FALSE_DRIFTS, counts=False)
    yield drifts(f"none, {of}, two speeds", two_speeds, most=MOST_FALSE_DRIFTS, counts=False)
    yield jump(0.5)
    yield jump(0.8)


def _drifts(
    series: int, seed: int, name: str, make: Make, change: str = "", least: float = 0.0, most: float = 1.0,
    counts: bool = True,
) -> SeriesKind:  # fmt: skip
    """Count the series in which a drift is found; `change` is what it should be called, if there is one."""
    chance = _chance(seed, name)
    drifts = [drift for _ in range(series) if (drift := shapes.drift(make(chance))) is not None]
    note = "" if change else "false alarms"
    if change and drifts:
        recognised = sum((drift.change_point is not None) == (change == "a jump") for drift in drifts)
        note = f"called {change} {recognised / len(drifts):.0%}"
    return series_kind(name, len(drifts), series, least, most, CERTAIN, note, counts)


def warm_up_bias(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 10: the bias that a warm-up leaves, and whether series that never settle are flagged."""
    kinds = _taken(_warm_up_kinds(series, seed), tick)
    worst = _worst((kind for kind in kinds if kind.name.startswith("warm-up")), lambda kind: kind.value)
    missed = _worst((kind for kind in kinds if kind.note == "flagged"), lambda kind: -kind.value)
    steady = _worst((kind for kind in kinds if kind.note == "flagged wrongly"), lambda kind: kind.value)
    return _measure(
        10, "injected warm-up of 5, 30, 100 steps or without end: p95 bias", "<= 1.5 %, never flagged 100 %",
        "fixed counts 9-41 %", worst, kinds,
        f"; never settled, flagged at least {missed.value:.2%}; steady, flagged at most {steady.value:.1%}",
    )  # fmt: skip


def _warm_up_kinds(series: int, seed: int) -> Iterator[SeriesKind]:
    """Yield the kinds of series that begin with a warm-up, and those that never settle."""
    for noise in WARM_NOISE:
        hits, name = _flagged(series, seed, "steady", noise, list)
        yield series_kind(name, hits, series, most=MOST_STEADY_FLAGGED, level=CERTAIN, note="flagged wrongly")
        for warm_up in WARM_UPS:
            for plateau in (False, True):
                yield _bias(series, seed, noise, warm_up, plateau)
    for shape, always, change in NEVER_SETTLES:
        for noise in WARM_NOISE:
            hits, name = _flagged(series, seed, shape, noise, change)
            kind = series_kind(name, hits, series, least=1.0, note="flagged", counts=always or noise != WARM_NOISE[-1])
            yield replace(kind, ok=hits == series)


def _noise(noise: tuple[float, float]) -> str:
    return f"noise {noise[0]:.0%}, phi {noise[1]:g}"


def _flagged(series: int, seed: int, shape: str, noise: tuple[float, float], change: Change) -> tuple[int, str]:
    """Count the changed series that are flagged as not settled; return the name of the kind, too."""
    name = f"{shape}, {_noise(noise)}"
    chance, (spread, phi) = _chance(seed, name), noise
    made = (change(synthetic.steps(chance, WARM_UP_STEPS, phi, spread)) for _ in range(series))
    return sum(stopping.settled_from(values) is None for values in made), name


def _bias(series: int, seed: int, noise: tuple[float, float], warm_up: int, plateau: bool) -> SeriesKind:
    name = f"warm-up of {warm_up} steps, {'plateau' if plateau else 'decay'}, {_noise(noise)}"
    chance, (spread, phi), biases = _chance(seed, name), noise, list[float]()
    for _ in range(series):
        steady = synthetic.steps(chance, WARM_UP_STEPS, phi, spread)
        values = synthetic.warming(steady, warm_up, plateau)
        start = stopping.settled_from(values)
        if start is not None:
            biases.append(abs(intervals.median(values[start:]) / intervals.median(steady[warm_up:]) - 1))
    value, bound = quantile_with_bound(biases, 0.95) if biases else (math.inf, math.inf)
    note = f"flagged {(series - len(biases)) / series:.1%}"
    return SeriesKind(name, value, bound, value <= MOST_WARM_UP_BIAS, series, note)


def false_reached(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 12: claims that +-2 % is reached, of a mean that is further off."""
    kinds = _taken(_claim_kinds(series, seed), tick)
    counted = [kind for kind in kinds if kind.counts]
    judged = [kind for kind in counted if kind.n >= CLAIMS_TO_JUDGE or kind.ok is False] or counted
    worst = _worst(judged, lambda kind: kind.value)
    return _measure(12, 'false "+-2 % reached"', "<= 5 %", "torch adaptive 57-79 %", worst, kinds, judged=judged)


def _claim_kinds(series: int, seed: int) -> Iterator[SeriesKind]:
    """Yield the kinds of series on which the stopping rule claims to have reached its target."""
    for block, phi, spread in CLAIMS:
        name = f"blocks of {block * 1e3:g} ms, noise {spread:.0%}, phi {phi:g}"
        yield _claims(series, seed, name, block, partial(synthetic.around_one, phi=phi, spread=spread))
    for block, stay, counts in STAYS:
        name = f"blocks of {block * 1e3:g} ms, two speeds that last {stay:g} blocks"
        modes = partial(synthetic.modes, stay=stay, spread=0.03)
        yield replace(_claims(series, seed, name, block, modes), counts=counts)


def _claims(
    series: int, seed: int, name: str, block: float, source: Callable[[random.Random], Iterator[float]]
) -> SeriesKind:
    """Count the claims whose mean is further off than the target, as a share of the claims."""
    chance, rule = _chance(seed, name), stopping.Stopping()
    claimed = [mean for _ in range(series) if (mean := _claimed(rule, source(chance), block)) is not None]
    wrong, claims = sum(abs(mean - 1.0) > rule.target for mean in claimed), len(claimed)
    note = f"{claims / series:.0%} of {series} series claimed it"
    return series_kind(name, wrong, claims, most=MOST_FALSE_CLAIMS, level=CERTAIN, note=note)


def _claimed(rule: stopping.Stopping, source: Iterator[float], block: float) -> float | None:
    """Return the mean at which the rule stopped because the target was reached; None if it never was."""
    values: list[float] = []
    while True:
        elapsed = len(values) * block
        values += islice(source, max(1, round(rule.next_turn(elapsed) / block)))
        width = stopping.relative_half_width(values)
        if rule.enough(width, len(values) * block, len(values)):
            return intervals.mean(values) if rule.reached(width) else None
