"""Checks that the work of a case was done right: learning, agreement, device, precision, plausibility, waiting.

Each returns what it measured, or raises Wrong: then no time may be reported for the case.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any

from mldyno import plugins, sources
from mldyno.frameworks import Framework, Program, Unsupported, matmul_precision
from mldyno.records import Case, Checks
from mldyno.stats.intervals import median
from mldyno.timing.blocks import DRAIN_STEPS, EVENTS_TOLERANCE, Blocks
from mldyno.timing.clock import Clock
from mldyno.worker import peaks
from mldyno.workloads.user_models.code import tree_fault
from mldyno.workloads.user_models.recipes import NotUnderstood
from mldyno.workloads.user_models.version_trees import WrongTree

MOST_CHECK_STEPS = 12  # extra training steps on the fixed batch, until its loss has fallen
DRAINS = 3
LONGEST_DRAIN_NS = 400_000_000  # of the steps of a drain


class Wrong(Exception):
    """The work was not done, or not right: no time may be reported for it."""


def failure(framework: str | None, error: BaseException) -> tuple[str, str]:
    """Return the status and reason of an error that came up in a case."""
    if isinstance(error, Wrong | WrongTree):
        return "wrong", str(error)
    if isinstance(error, Unsupported | NotUnderstood):
        return "unsupported", str(error)
    if framework is None and isinstance(error, ModuleNotFoundError):  # of a source, before there is a case
        framework = error.name
    if framework in plugins.names("frameworks"):
        return plugins.framework(framework or "").explain(error)
    return "failed", f"{type(error).__name__}: {error}"


def check_device(case: Case, program: Program) -> None:
    """Raise Wrong unless everything is on the case's device, where the framework can say."""
    actual = program.actual_device()
    if actual not in (None, case.device, f"{case.device}:0", case.device.removesuffix(":0")):
        raise Wrong(f"the case asks for {case.device}, the tensors lie on {actual}")


def check_precision(case: Case, program: Program) -> str | None:
    """Raise Wrong unless the case's precision took effect, where the framework can say; return the one that did."""
    effective, asked = program.effective_precision(), matmul_precision(case)
    if effective not in (None, asked):
        raise Wrong(f"{case.precision} did not take effect: the framework computes matmuls in {effective}")
    return effective


def check_tree(case: Case) -> None:
    """Raise Wrong if the user's code came from another version's tree than its own."""
    source = sources.known(case.workload)
    raise_flaw(None if source is None else tree_fault(source))


def raise_flaw(flaw: str | None) -> None:
    """Raise Wrong where a flaw is named: of the precision, or of what ranks must have in common."""
    if flaw:
        raise Wrong(flaw)


def check_waiting(events_share: float | None) -> None:
    """Raise Wrong if the device worked for longer than the host's clock measured: then it was not waited for."""
    if events_share is not None and events_share > 1 + EVENTS_TOLERANCE:
        raise Wrong(f"the device's own events show {events_share:.3g} times the host's time: it was not waited for")


def events_share(program: Program, blocks: Blocks) -> float | None:
    """Return device time by events over host time, for the same blocks; None without events."""
    host, device = 0, 0.0
    for _ in range(DRAINS):
        began = blocks.clock()
        by_events = program.device_time(blocks.size)
        if by_events is None:
            return None
        host += blocks.clock() - began
        device += by_events
    return device * 1e9 / max(1, host)


def issued_shares(blocks: Blocks, steps_are_short: bool) -> tuple[float, float] | None:
    """Return two times over the time until the device was done: of issuing one step, and many short ones.

    One step is issued into an empty queue: if that takes as long as the step, the host is the bottleneck. Many steps
    show a wait that is hidden in a step; but the queue of a device may be full by then, and make the host wait too.
    None for a device that is done when its call returns, such as the CPU in most frameworks.
    """
    if not blocks.asynchronous:
        return None
    step = blocks.time(blocks.size) / blocks.size
    steps, times = blocks.size, 1
    if steps_are_short:
        steps, times = max(blocks.size, min(DRAIN_STEPS, math.ceil(LONGEST_DRAIN_NS / max(1.0, step)))), DRAINS
    issued_one = median([blocks.drain(1)[0] for _ in range(times)]) / max(1.0, step)
    drains = [blocks.drain(steps) for _ in range(times)]
    return issued_one, sum(issued for issued, _ in drains) / max(1, sum(total for _, total in drains))


def check_plausible(
    framework: Framework, case: Case, clock: Clock, steps: Sequence[float], facts: MutableMapping[str, Any]
) -> None:
    """Raise Wrong if a case does more operations a second than plain matmuls; note the peak. Not in fake time."""
    flops = facts["flops_per_step"]
    if not flops or not steps or framework.clock is not None:
        return
    ranks = case.ranks or 1
    rate = flops / ranks / max(1e-12, median(steps))
    peak, too_fast = peaks.exceeded(framework, case, clock, rate)
    facts["peak_flops"] = ranks * peak or None  # None where the framework has no matmul
    if too_fast:
        reached = f"{rate / 1e9:,.4g} GFLOP/s are more than the {peak / 1e9:,.4g}"
        raise Wrong(f"{reached} that this device reaches in matmuls: work was omitted")


def check_results(
    case: Case, program: Program, first: Mapping[str, float] | None, facts: dict[str, Any],
    unchecked: Collection[str] = (),
) -> Checks:  # fmt: skip
    """Raise Wrong unless training has learned and results agree with fp32 on the CPU; note the losses.

    `unchecked` are the checks that the user turned off.
    """
    learned = None if "learned" in unchecked else _check_learned(program, first, facts)
    difference = None if "agrees" in unchecked else program.error_vs_reference()
    if difference is None:
        return Checks(learned)
    error, tolerance = difference
    if not error <= tolerance:
        if not math.isfinite(error):
            raise Wrong(f"results are not finite in {case.precision}; in fp32 on the CPU they are")
        differ = f"results differ from fp32 on the CPU by {error:.2g}"
        raise Wrong(f"{differ}; at most {tolerance:.2g} is allowed in {case.precision}")
    if error == 0 and case.precision not in ("fp32", None):
        raise Wrong(f"{case.precision} did not take effect: results are those of fp32 to the last bit")
    return Checks(learned, True, error)


def _check_learned(program: Program, first: Mapping[str, float] | None, facts: dict[str, Any]) -> bool | None:
    """Raise Wrong unless training lowers the loss on a fixed batch, or what else proves it."""
    if first is None:
        return None
    for check_step in range(MOST_CHECK_STEPS + 1):
        last = program.losses() or {}
        for name, value in first.items():
            if not (math.isfinite(value) and math.isfinite(last[name]) and value >= 0 and last[name] >= 0):
                raise Wrong(f"{_change(name, value, last[name])}: it must be finite and not negative")
        stuck = [name for name, value in first.items() if last[name] >= value]
        if not stuck:
            for name, value in first.items():
                facts |= {f"{_fact_name(name)}_first": value, f"{_fact_name(name)}_last": last[name]}
            return True
        if check_step < MOST_CHECK_STEPS:
            program.check_step()
    name = stuck[0]
    raise Wrong(f"{_change(name, first[name], last[name])}: it did not fall")


def _fact_name(name: str) -> str:
    return name if name == "loss" else f"{name}_loss"


def _change(name: str, first: float, last: float) -> str:
    return f"the {_fact_name(name).replace('_', ' ')} went from {first:.6g} to {last:.6g}"


def unchecked(
    case: Case, framework: Framework, program: Program, facts: Mapping[str, Any], checks: Checks
) -> dict[str, str]:
    """Return the fact `not_checked`, where something was not checked.

    Nothing is computed in fake time. A process that ran end to end shows by its exit code that it did its work.
    """
    if framework.clock is not None or facts.get("end_to_end"):
        return {}
    program_type: Any = type(getattr(program, "program", program))  # the leader of ranks has one
    is_reference = case.device == "cpu" and case.precision in ("fp32", None) and not case.compile
    missing = {
        "parameters": program.params is None,
        "learning": case.mode == "train" and checks.learned is None,
        "agreement with the CPU": not is_reference and checks.agrees is None,
        "precision": case.precision not in ("fp32", None)
        and facts.get("effective_precision") is None
        and program_type.precision_flaw is Program.precision_flaw,
        "device": program.actual_device() is None,
        "peak": bool(facts["flops_per_step"]) and facts.get("peak_flops") is None,
    }
    names = [name for name, is_missing in missing.items() if is_missing]
    return {"not_checked": ", ".join(names)} if names else {}
