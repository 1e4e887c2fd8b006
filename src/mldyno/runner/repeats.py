"""In how many fresh processes a case is measured, and for how long in each.

As many as it takes until its time is known to the target, over processes; three at least, and no more than the budget
lets it. How long each goes on follows Kalibera and Jones (2013): starting a process costs time, and narrows what
differs between processes; measuring on within one narrows only what differs there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mldyno.analysis.estimates import step_time
from mldyno.plan import Plan
from mldyno.records import Case, Record
from mldyno.timing.stopping import relative_half_width

WARMUP_SHARE, SHORTEST_WARMUP_S = 0.25, 1.0  # of the budget of a process
SHORTEST_PROCESS_S = 1.0  # that a process is measured for, beside some seconds to start it
SUSTAINED_S = 5.0  # under load, after which power and heat of an accelerator have settled for the most part
NORMAL = 1.96  # standard deviations that half a 95 % interval has


def longest_warm_up(plan: Plan) -> float:
    """Time in s that the warm-up of a process may take: a share of what it has where there are few of them."""
    return max(SHORTEST_WARMUP_S, WARMUP_SHARE * plan.budget / plan.fewest)


def load_before(plan: Plan, case: Case) -> float:
    """Time in s that a case's device works before it is measured, as far as the budget has room for that."""
    return 0.0 if case.device == "cpu" else min(SUSTAINED_S, WARMUP_SHARE * plan.budget / plan.fewest)


def shortest_budget(plan: Plan) -> float:
    """Time in s for which a process is measured at least, where nobody says how many there are."""
    return min(plan.budget / plan.fewest, max(SHORTEST_PROCESS_S, plan.budget / plan.most))


def measured(record: Record) -> float:
    """Time in s within the measured blocks of a process."""
    parts = (part for part in record.series if part.metric == "step_time" and part.stage in ("steady", "paired"))
    return math.fsum(part.block * math.fsum(part.values) for part in parts)


def start_time(record: Record) -> float:
    """Time in s that a process took beside the measured blocks; fake time costs none."""
    return 0.0 if record.fact("fake_time") else max(0.0, (record.fact("wall_time") or 0.0) - measured(record))


def budget_of_process(plan: Plan, before: Sequence[Record]) -> float:
    """Time in s for which the next process of a case is measured, after these.

    Where the ratio is asked for, the time goes into the paired comparisons.
    """
    if plan.head_to_head and not plan.commands:
        return shortest_budget(plan)
    if plan.most == plan.fewest:
        return plan.budget / plan.fewest
    shortest, longest = shortest_budget(plan), plan.budget / plan.fewest
    last = next((record for record in reversed(before) if record.status == "ok"), None)
    spread = last and last.fact("process_spread")
    width = relative_half_width(last.values("step_time")) if last else None
    if last is None or not spread or width is None:
        return shortest
    ratio = (width / NORMAL / spread) ** 2 * measured(last)  # of the variances, within a process for each s of it
    return min(longest, max(shortest, math.sqrt(start_time(last) * ratio)))


def cannot_work(record: Record) -> bool:
    """Return whether another process would fail in the same way: this one failed before it took a step."""
    return record.status == "unsupported" or (record.status == "failed" and not record.series)


def wants_another(plan: Plan, before: Sequence[Record]) -> bool:
    """Whether a case is measured in one more process, after these."""
    count = len(before)
    if before and cannot_work(before[-1]):
        return False
    if count < plan.fewest or plan.most == plan.fewest or plan.head_to_head:
        return count < plan.fewest
    estimate = step_time([record for record in before if record.status == "ok"])
    if count >= plan.most or estimate is None or estimate.half_width is None:
        return False
    if estimate.half_width <= plan.target * estimate.value:
        return False
    starts = [start_time(record) for record in before]
    spent = sum(map(measured, before)) + sum(starts[plan.fewest :])
    return spent + starts[-1] + budget_of_process(plan, before) <= plan.budget
