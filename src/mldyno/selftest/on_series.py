"""The measures that can be taken on simulated series: coverage, drift, warm-up, false claims.

They call the functions that judge real series, with the truth known. `series` is the number of
series in each cell; `tick` is called after each cell.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from mldyno.selftest import synthetic
from mldyno.selftest.measures import Measure, SeriesKind, lower_bound, meets, quantile_with_bound, together, upper_bound
from mldyno.stats import intervals, shapes
from mldyno.timing import stopping

Tick = Callable[[], None]
Make = Callable[[random.Random], list[float]]

RATIO = 1.03  # the true ratio of two arms
COVERS = (0.93, 0.97)
DRIFT, DRIFT_FOUND, DRIFT_FALSE = 0.05, 0.85, 0.02
WARM_STEPS, WARM_BIAS, STEADY_FLAGGED = 300, 0.015, 0.02
FALSE_CLAIMS, SEVERAL_CLAIMS = 0.05, 20
CERTAIN = 0.99  # how sure a cell must be that it misses its target: there are many

# Own noise of the arms, the machine's two speeds, share of outliers, rounds.
COVERAGE = (
    (0.0, False, 0.0, 192),
    (0.5, False, 0.0, 192),
    (0.8, False, 0.0, 192),
    (0.0, True, 0.0, 192),
    (0.5, True, 0.0, 192),
    (0.8, True, 0.0, 192),
    (0.0, False, 0.03, 192),
    (0.5, True, 0.03, 192),
    (0.0, False, 0.0, 48),
    (0.8, True, 0.03, 960),
)
# Spread of the steps and their number.
DRIFTING = ((0.02, 300), (0.05, 500), (0.1, 2000))
# Spread and correlation of the steps.
WARM_NOISE = ((0.01, 0.0), (0.05, 0.0), (0.01, 0.5), (0.05, 0.5))
WARM_UPS = (5, 30, 100)
# What never settles, and whether 300 steps of the noisiest kind can show it in every case: a slope of
# 10 % is there only 4 to 5 times its own error. Where they can't, the cell is reported and does not count.
NEVER: tuple[tuple[str, bool, Callable[[list[float]], list[float]]], ...] = (
    ("grows by 10 %", False, lambda steady: synthetic.drifting(steady, 0.1)),
    ("falls by 10 %", False, lambda steady: synthetic.drifting(steady, -0.1)),
    ("grows by 20 %", True, lambda steady: synthetic.drifting(steady, 0.2)),
    ("fades by 20 %", False, lambda steady: synthetic.decaying(steady, 0.463, 300)),
    ("fades from 3 times", True, lambda steady: synthetic.decaying(steady, 2.0, 100)),
)
# Time of a block in s; correlation and spread, or the mean stay in one of two modes.
CLAIMS = (
    (0.001, 0.0, 0.2),
    (0.001, 0.5, 0.2),
    (0.001, 0.8, 0.1),
    (0.001, 0.95, 0.05),
    (0.001, 0.95, 0.1),
    (0.01, 0.0, 0.05),
    (0.01, 0.5, 0.05),
    (0.01, 0.8, 0.05),
    (0.01, 0.95, 0.05),
)
# Two speeds that last longer than a stretch between two looks can't be seen by any rule that stops within it:
# such cells are reported and do not count.
STAYS = ((0.0005, 50.0, True), (0.001, 50.0, False), (0.01, 50.0, False))


def _chance(seed: int, cell: str) -> random.Random:
    """A source of its own for every cell, so that cells can be run alone."""
    return random.Random(f"{seed} {cell}")


def _taken(cells: Iterable[SeriesKind], tick: Tick) -> tuple[SeriesKind, ...]:
    """All cells; `tick` is called after each."""
    taken = []
    for cell in cells:
        taken.append(cell)
        tick()
    return tuple(taken)


def _worst(cells: Sequence[SeriesKind], badness: Callable[[SeriesKind], float]) -> SeriesKind:
    return max((cell for cell in cells if cell.counts), key=badness)


def _all_ok(cells: Sequence[SeriesKind]) -> bool | None:
    return together(cell.ok for cell in cells if cell.counts)


def coverage_cells(series: int, seed: int) -> Iterator[SeriesKind]:
    """How often the interval of paired rounds holds the true ratio, for each kind of noise."""
    return (_covered(series, seed, *cell) for cell in COVERAGE)


def _covered(series: int, seed: int, phi: float, two: bool, outliers: float, rounds: int) -> SeriesKind:
    name = f"{rounds} rounds, phi {phi:g}{', two speeds' if two else ''}{', outliers' if outliers else ''}"
    chance, hits = _chance(seed, name), 0
    for _ in range(series):
        centre, width = intervals.paired(synthetic.log_ratios(chance, rounds, RATIO, phi, two, outliers))
        hits += abs(centre - math.log(RATIO)) <= width
    share, ok = hits / series, meets(hits, series, *COVERS, level=CERTAIN)
    bound = lower_bound(hits, series) if share < 0.95 else upper_bound(hits, series)
    return SeriesKind(name, share, bound, ok, series)


def coverage(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 5: coverage of the 95 % interval of a ratio."""
    cells = _taken(coverage_cells(series, seed), tick)
    worst = _worst(cells, lambda cell: abs(cell.value - 0.95))
    name = "coverage of the 95 % interval of the ratio, known truth"
    return Measure(
        5, name, worst.value, worst.bound, "93-97 %", _all_ok(cells), series, "share", "15-78 %",
        f"worst: {worst.name}", cells,
    )  # fmt: skip


def drift_cells(series: int, seed: int) -> Iterator[SeriesKind]:
    """How often a drift or a jump is found, and how often one is seen where there is none."""
    for spread, count in DRIFTING:

        def steady(chance: random.Random, phi: float, spread: float = spread, count: int = count) -> list[float]:
            return synthetic.steps(chance, count, phi, spread)

        def two(chance: random.Random, spread: float = spread, count: int = count) -> list[float]:
            return list(islice(synthetic.modes(chance, 50, spread), count))

        of = f"{count} steps, noise {spread:.0%}"
        drift, jump = partial(_drifts, series, seed), partial(_jumps, series, seed)
        yield drift(f"+5 % drift, {of}", lambda c: synthetic.drifting(steady(c, 0.0), DRIFT), True)
        yield drift(f"none, {of}", lambda c: steady(c, 0.0), False)
        yield drift(f"none, {of}, phi 0.8", lambda c: steady(c, 0.8), False, counts=False)
        yield drift(f"none, {of}, two speeds", two, False, counts=False)
        yield jump(f"+5 % jump at 50 %, {of}", lambda c: synthetic.jumping(steady(c, 0.0), DRIFT, 0.5))
        yield jump(f"+5 % jump at 80 %, {of}", lambda c: synthetic.jumping(steady(c, 0.0), DRIFT, 0.8))


def _drifts(series: int, seed: int, name: str, make: Make, there: bool, counts: bool = True) -> SeriesKind:
    chance = _chance(seed, name)
    drifts = [drift for _ in range(series) if (drift := shapes.drift(make(chance))) is not None]
    hits, share = len(drifts), len(drifts) / series
    if there:
        gradual = sum(drift.change_point is None for drift in drifts)
        ok = meets(hits, series, least=DRIFT_FOUND, level=CERTAIN)
        note = f"called gradual {gradual / hits:.0%}" if hits else ""
        return SeriesKind(name, share, lower_bound(hits, series), ok, series, note, counts)
    ok = meets(hits, series, most=DRIFT_FALSE, level=CERTAIN)
    return SeriesKind(name, share, upper_bound(hits, series), ok, series, "false alarms", counts)


def _jumps(series: int, seed: int, name: str, make: Make) -> SeriesKind:
    chance = _chance(seed, name)
    drifts = [drift for _ in range(series) if (drift := shapes.drift(make(chance))) is not None]
    jumps = sum(drift.change_point is not None for drift in drifts)
    note = f"called a jump {jumps / len(drifts):.0%}" if drifts else ""
    hits = len(drifts)
    return SeriesKind(name, hits / series, lower_bound(hits, series), hits >= 0.85 * series, series, note, counts=False)


def drift_found(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 9: an injected drift of 5 % is found, and steady series are left alone."""
    cells = _taken(drift_cells(series, seed), tick)
    worst = _worst([cell for cell in cells if cell.name.startswith("+")], lambda cell: -cell.value)
    alarm = _worst([cell for cell in cells if cell.name.startswith("none")], lambda cell: cell.value)
    name = "injected +5 % drift found (phi = 0)"
    note = f"worst: {worst.name}; false alarms at most {alarm.value:.1%}: {alarm.name}"
    target = ">= 85 %, false alarms <= 2 %"
    return Measure(9, name, worst.value, worst.bound, target, _all_ok(cells), series, "share", "none", note, cells)


def warm_up_cells(series: int, seed: int) -> Iterator[SeriesKind]:
    """The p95 bias that a warm-up leaves, and how often series are flagged that settle or never do."""
    for spread, phi in WARM_NOISE:
        of = f"noise {spread:.0%}, phi {phi:g}"
        yield _flagged(series, seed, f"steady, {of}", (spread, phi), list, False)
        for warm in WARM_UPS:
            yield from (_bias(series, seed, of, (spread, phi), warm, plateau) for plateau in (False, True))
    for shape, plain, bend in NEVER:
        for spread, phi in WARM_NOISE:
            name, counts = f"{shape}, noise {spread:.0%}, phi {phi:g}", plain or (spread, phi) != WARM_NOISE[-1]
            yield _flagged(series, seed, name, (spread, phi), bend, True, counts)


def _bias(series: int, seed: int, of: str, noise: tuple[float, float], warm: int, plateau: bool) -> SeriesKind:
    name = f"warm-up of {warm} steps, {'plateau' if plateau else 'decay'}, {of}"
    chance, biases, flagged = _chance(seed, name), [], 0
    for _ in range(series):
        steady = synthetic.steps(chance, WARM_STEPS, noise[1], noise[0])
        values = synthetic.warming(steady, warm, plateau)
        start = stopping.settled_from(values)
        if start is None:
            flagged += 1
        else:
            biases.append(abs(intervals.median(values[start:]) / intervals.median(steady[warm:]) - 1))
    value, bound = quantile_with_bound(biases, 0.95) if biases else (math.inf, math.inf)
    return SeriesKind(name, value, bound, value <= WARM_BIAS, series, f"flagged {flagged / series:.1%}")


def _flagged(
    series: int,
    seed: int,
    name: str,
    noise: tuple[float, float],
    bend: Callable[[list[float]], list[float]],
    never: bool,
    counts: bool = True,
) -> SeriesKind:
    chance = _chance(seed, name)
    made = (bend(synthetic.steps(chance, WARM_STEPS, noise[1], noise[0])) for _ in range(series))
    hits = sum(stopping.settled_from(values) is None for values in made)
    share = hits / series
    if never:
        return SeriesKind(name, share, lower_bound(hits, series), hits == series, series, "flagged", counts)
    ok = meets(hits, series, most=STEADY_FLAGGED, level=CERTAIN)
    return SeriesKind(name, share, upper_bound(hits, series), ok, series, "flagged wrongly")


def warm_up_bias(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 10: what a warm-up leaves in the number, and whether series that never settle are flagged."""
    cells = _taken(warm_up_cells(series, seed), tick)
    worst = _worst([cell for cell in cells if cell.name.startswith("warm-up")], lambda cell: cell.value)
    missed = _worst([cell for cell in cells if cell.note == "flagged"], lambda cell: -cell.value)
    steady = _worst([cell for cell in cells if cell.note == "flagged wrongly"], lambda cell: cell.value)
    name = "injected warm-up of 5, 30, 100 steps or without end: p95 bias"
    note = (
        f"worst: {worst.name}; never settled, flagged at least {missed.value:.2%}; "
        f"steady, flagged at most {steady.value:.1%}"
    )
    target = "<= 1.5 %, never flagged 100 %"
    return Measure(
        10, name, worst.value, worst.bound, target, _all_ok(cells), series, "share", "fixed counts 9-41 %", note, cells
    )


def claim_cells(series: int, seed: int) -> Iterator[SeriesKind]:
    """How often the target is claimed while the mean is further off, as a share of the claims."""
    for block, phi, spread in CLAIMS:
        name = f"blocks of {block * 1e3:g} ms, noise {spread:.0%}, phi {phi:g}"

        def around_one(chance: random.Random, phi: float = phi, spread: float = spread) -> Iterator[float]:
            return (1.0 + v for v in synthetic.noise(chance, phi, spread))

        yield _claims(series, seed, name, block, around_one)
    for block, stay, counts in STAYS:
        name = f"blocks of {block * 1e3:g} ms, two speeds that last {stay:g} blocks"

        def two(chance: random.Random, stay: float = stay) -> Iterator[float]:
            return synthetic.modes(chance, stay, 0.03)

        yield replace(_claims(series, seed, name, block, two), counts=counts)


def _claims(
    series: int, seed: int, name: str, block: float, source: Callable[[random.Random], Iterator[float]]
) -> SeriesKind:
    chance, claims, false = _chance(seed, name), 0, 0
    rule = stopping.Stopping()
    for _ in range(series):
        mean = _claimed(rule, source(chance), block)
        if mean is not None:
            claims += 1
            false += abs(mean - 1.0) > rule.target
    share = false / claims if claims else 0.0
    bound = upper_bound(false, claims) if claims else None
    ok = meets(false, claims, most=FALSE_CLAIMS, level=CERTAIN)
    return SeriesKind(name, share, bound, ok, claims, f"{claims / series:.0%} of {series} series claimed it")


def _claimed(rule: stopping.Stopping, source: Iterator[float], block: float) -> float | None:
    """The mean with which the rule stopped and said that the target was reached; None where it never did."""
    values: list[float] = []
    elapsed = 0.0
    while True:
        values += islice(source, max(1, round(rule.next_turn(elapsed) / block)))
        elapsed = len(values) * block
        width = stopping.relative_half_width(values)
        if rule.enough(width, elapsed, len(values)):
            return intervals.mean(values) if rule.reached(width) else None


def false_reached(series: int, seed: int, tick: Tick = lambda: None) -> Measure:
    """Measure 12: claims that +-2 % is reached, of a mean that is further off."""
    cells = _taken(claim_cells(series, seed), tick)
    counted = [cell for cell in cells if cell.counts]
    telling = [cell for cell in counted if cell.n >= SEVERAL_CLAIMS or cell.ok is False] or counted
    worst = _worst(telling, lambda cell: cell.value)
    name = 'false "+-2 % reached"'
    return Measure(
        12, name, worst.value, worst.bound, "<= 5 %", _all_ok(telling), worst.n, "share", "torch adaptive 57-79 %",
        f"worst: {worst.name}", cells,
    )  # fmt: skip
