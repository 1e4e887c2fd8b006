"""What speaks against one record: what its catalogue entry, its own samples and its device contradict."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mldyno import plugins
from mldyno.analysis.estimates import step_time
from mldyno.errors import MldynoError
from mldyno.frameworks import TOLERANCE, Framework, Unsupported
from mldyno.records import Record
from mldyno.runner.recording import in_references
from mldyno.stats.intervals import median
from mldyno.submission import _limits
from mldyno.worker import peaks
from mldyno.worker.ranks import own_share
from mldyno.workloads import Workload

UNKNOWN = "unknown"
ROUNDING = 0.01  # by which a fact may differ from what samples of six digits say
FAR_FROM_SAMPLES = 2.0  # times faster that a headline may be than the samples: what was usual corrects it
FAR_FROM_REFERENCES = 2.0  # times, by which the steps in reference kernels may differ after the first blocks were cut
FAR_FROM_WARMUP = 5.0  # times faster that the slowest step may be than the fastest of the warm-up
FEWEST_WARMUP = 3  # samples
FEWEST_TO_VARY = 8  # samples, of which a clock gives two that differ
FEWEST_ITEMS = 50_000  # of the data sets that a process trains on
AGAIN = "measure it again"


def fake(record: Record) -> bool:
    """Whether no time in it is real."""
    return bool(record.fact("fake_time")) or record.case.framework == "fake"


def place(record: Record) -> tuple[object, ...]:
    """Where a record was measured."""
    return record.machine.name, record.machine.key, record.case.framework, record.case.device


def peak_of(record: Record) -> float:
    """The rate in matmuls that was measured beside it, 0 where there is none."""
    return record.fact("peak_flops") or 0.0


def faults(record: Record, plain_peak: float) -> Iterator[str]:
    """What speaks against a record; `plain_peak` is the highest in fp32 on its device, 0 where it is not known."""
    if record.provenance != "measured":
        yield f"it is {record.provenance}, not measured; submit what `mldyno submit` writes on the machine itself"
    if fake(record):
        yield "its times are fake: nothing was computed; leave it out"
    if not record.machine.name.strip() or (record.machine.cpu == UNKNOWN and not record.machine.devices):
        yield "it says nothing of its machine: neither processor nor devices; measure it again with this mldyno"
    if record.proof != "signed":
        yield "nothing proves that it is of the machine whose key it bears; submit what `mldyno submit` writes"
    if record.status != "ok" or not record.alone:
        return
    if not record.values("step_time") or step_time([record]) is None:
        yield "no time of a step can be worked out from its samples; leave it out"
        return
    yield from _samples(record)
    yield from _device(record)
    for check in ("learned", "agrees"):
        if getattr(record.checks, check) is False:
            yield f"its check '{check}' failed, so it is not ok; {AGAIN}"
    workload = _of_catalogue(record)
    if workload is not None:
        yield from _work(record, workload)
        yield from _checks(record)
    yield from _rates(record, workload, plain_peak)


def _of_catalogue(record: Record) -> Workload | None:
    """The workload, where it is one of the catalogue and not of the user's own."""
    if record.case.workload not in plugins.built_in("workloads"):
        return None
    workload = plugins.workload(record.case.workload)
    return workload if record.case.version >= workload.version else None  # an older one may have done less


# -- facts and samples -----------------------------------------------------------------------------


def _samples(record: Record) -> Iterator[str]:
    """Facts that its samples contradict."""
    steps = [series for series in record.series if series.metric == "step_time"]
    measured = [each for each in steps if each.stage in ("steady", "warmup")]
    turns = [each for each in measured if each.turn is not None]
    counted = sum(each.block * len(each.values) for each in turns)
    values = record.values("step_time")
    if not record.case.tracked and record.fact("steps") != counted:
        yield f"it says {record.fact('steps')} steps, and its samples are of {counted}; {AGAIN}"
    total = sum(each.block * math.fsum(each.values) for each in (*measured, *(s for s in steps if s.stage == "first")))
    wall = record.fact("wall_time")
    if wall is None or total > (1 + ROUNDING) * wall:
        yield f"it says that it took {_said(wall)} s, and its steps alone took {total:.4g}; {AGAIN}"
    first, firsts = record.fact("first_step"), record.values("step_time", "first")
    if first is None or len(firsts) != 1 or not math.isclose(first, firsts[0], rel_tol=ROUNDING):
        yield f"it says that its first step took {_said(first)} s, and its samples say {firsts or 'nothing'}; {AGAIN}"
    size, largest = record.fact("block_steps"), max(each.block for each in measured)
    if size is not None and size != largest:
        yield f"it says blocks of {size} steps, and its samples are of {largest}; {AGAIN}"
    if len(values) >= FEWEST_TO_VARY and max(values) == min(values):
        yield f"its {len(values)} samples are all the same, which no clock gives; leave it out"
    warm = record.values("step_time", "warmup")
    if len(warm) >= FEWEST_WARMUP and min(warm) > FAR_FROM_WARMUP * max(values):
        yield f"all of its steps are over {min(warm) / max(values):.3g} times as fast as in the warm-up; {AGAIN}"
    said, ratios = record.fact("step_per_reference"), in_references(record.series)
    if said and ratios and not 1 / FAR_FROM_REFERENCES <= median(ratios) / said <= FAR_FROM_REFERENCES:
        yield f"it says a step of {said:.4g} reference kernels, and its samples say {median(ratios):.4g}; {AGAIN}"
    headline = step_time([record])
    if headline is not None and FAR_FROM_SAMPLES * headline.value < median(values):
        times = median(values) / headline.value
        yield f"what it says is usual makes it {times:.3g} times as fast as its samples; {AGAIN}"


def _said(value: object) -> str:
    return "nothing" if value is None else f"{value:.4g}"


# -- machine and device ----------------------------------------------------------------------------


def _device(record: Record) -> Iterator[str]:
    """A device that its machine has not, or on which it did not run; a framework that did not compute."""
    case, machine = record.case, record.machine
    if case.own_work:
        return
    names = {device.name for device in machine.devices if device.framework == case.framework}
    if case.framework != "command" and not _same(case.device, names):
        yield f"its machine has no device {case.device} in {case.framework}; {AGAIN}"
    seen = record.fact("device_seen")
    if seen is not None and not _same(case.device, {seen}):
        yield f"it ran on {seen}, and says {case.device}; {AGAIN}"
    kind, per_node = case.device.partition(":")[0], (case.ranks or 1) // max(1, case.nodes)
    if kind != "cpu" and sum(name.partition(":")[0] == kind for name in names) < per_node:
        yield f"its machine has fewer than {per_node} devices of {kind}; {AGAIN}"
    if record.software.framework != case.framework:
        yield f"{record.software.framework} computed it, and it says {case.framework}; {AGAIN}"
    if machine.cores is not None and machine.cores > _limits.MOST_CORES:
        yield f"no machine has {machine.cores:,} cores; {AGAIN}"
    memory = max(record.values("peak_memory", "process"), default=0.0)
    if machine.memory is not None and memory > machine.memory:
        yield f"its process took {memory:.4g} B, and its machine has {machine.memory:.4g}; {AGAIN}"


def _same(device: str, names: set[str]) -> bool:
    """Whether one of the names is the device's, with or without the number of the first."""
    return bool(names & {device, f"{device}:0", device.removesuffix(":0")})


# -- work ------------------------------------------------------------------------------------------


def _work(record: Record, workload: Workload) -> Iterator[str]:
    """What the catalogue knows of the work, and its facts say otherwise."""
    case = record.case
    if case.version > workload.version:
        yield f"version {case.version} of {workload.name} is not known here; update mldyno"
        return
    if case.mode not in workload.modes:
        yield f"{workload.name} has no mode {case.mode}; leave it out"
        return
    if bool(workload.batch) != bool(case.batch) or bool(workload.seq) != bool(case.seq):
        yield f"a case of {workload.name} has {'batch and sequence' if workload.seq else 'a batch and no sequence'}"
        return
    known = work_of(record, workload)
    for name, expected in known.items():
        said = record.fact(name)
        if said is None or not math.isclose(said, expected, rel_tol=1e-9):
            what = name.replace("_", " ")
            yield f"its {what} is {_said(said)}, and in the catalogue it is {expected:.10g}; {AGAIN}"
    memory = min(record.values("peak_memory", "process"), default=math.inf)
    if memory < workload.params:
        yield f"its process took {memory:.4g} B, which do not hold {workload.params:,} parameters; {AGAIN}"


def work_of(record: Record, workload: Workload) -> dict[str, float]:
    """The facts of a step that follow from the case alone, whatever its record says."""
    case, ranks = record.case, 1
    built_in = case.framework in plugins.built_in("frameworks")
    if case.in_ranks and built_in and plugins.framework(case.framework).parallel:
        try:
            case, ranks = own_share(case, 0), case.ranks or 1
        except (Unsupported, MldynoError):
            return {}
    work: dict[str, float] = {"params": workload.params, "items_per_step": ranks * workload.items(case)}
    operations = ranks * workload.flops(case)
    return {**work, "flops_per_step": operations} if operations else work


def _checks(record: Record) -> Iterator[str]:
    """Checks of the catalogue's work that did not pass, or are missing."""
    case, checks = record.case, record.checks
    if case.framework == "command":  # a process that ran end to end shows by its exit code that it did its work
        return
    if case.mode == "train":
        pairs = [(value, record.fact(f"{name.removesuffix('_first')}_last"))
                 for name, value in record.facts.items() if name.endswith("loss_first")]  # fmt: skip
        fell = [isinstance(last, int | float) and isinstance(first, int | float) and last < first
                for first, last in pairs]  # fmt: skip
        if not checks.learned or not fell or not all(fell):
            yield f"nothing shows that it learned: its loss must have fallen; {AGAIN}, with more time"
    is_reference = case.device == "cpu" and case.precision in ("fp32", None) and not case.compile
    if not is_reference and not checks.agrees:
        yield f"nothing shows that its results agree with those of fp32 on the CPU; {AGAIN}, with more time"
    most = TOLERANCE[case.precision or "fp32"]
    if checks.agrees and (checks.error is None or not checks.error <= most):
        yield f"its results differ by {_said(checks.error)}, and at most {most:.2g} is allowed; {AGAIN}"
    if checks.agrees and checks.error == 0 and case.precision not in ("fp32", None):
        yield f"{case.precision} did not take effect: results are those of fp32 to the last bit; {AGAIN}"


# -- rates -----------------------------------------------------------------------------------------


def _rates(record: Record, workload: Workload | None, plain_peak: float) -> Iterator[str]:
    """More work a second than its device does in matmuls, or than any such device can do."""
    headline = step_time([record])
    step = median(record.values("step_time"))
    fastest = min(step, headline.value if headline is not None else step)
    operations = record.fact("flops_per_step") or 0.0
    if workload is not None:
        operations = work_of(record, workload).get("flops_per_step", 0.0) or _of_process(record, workload)
    peak, limit = peak_of(record), _limits.flops(record)
    if workload is not None and operations and not peak and _has_matmul(record.case.framework):
        yield f"its peak in matmuls is missing; {AGAIN}, with more time"
    if peaks.above(peak, limit):
        yield f"its peak of {peak / 1e9:,.4g} GFLOP/s is more than any such device reaches, {limit / 1e9:,.4g}; {AGAIN}"
    if record.case.precision != "fp32":  # what lacks a type can be faster than its own matmuls, not than those in fp32
        peak = max(peak, plain_peak) if plain_peak else 0.0
    if peaks.above(operations / step, peak):
        reached = f"{operations / step / 1e9:,.4g} GFLOP/s are more than the {peak / 1e9:,.4g}"
        yield f"{reached} that its device reaches in matmuls; {AGAIN}"
    elif operations / fastest > limit:
        reached = f"{operations / fastest / 1e9:,.4g} GFLOP/s are more than the {limit / 1e9:,.4g}"
        yield f"{reached} that any such device reaches; {AGAIN}"
    if workload is not None and workload.item == "B":
        copied, most = workload.items(record.case) / fastest, _limits.bytes_per_s(record)
        if copied > most:
            yield f"{copied / 1e9:,.4g} GB/s are more than the {most / 1e9:,.4g} that any such device copies; {AGAIN}"


def _of_process(record: Record, workload: Workload) -> float:
    """Operations that a process does at least that trains from end to end."""
    if workload.end_to_end is None:
        return 0.0
    trained = plugins.workload(workload.end_to_end.workload)
    batch = record.case.batch or trained.batch
    return trained.flops(record.case) / batch * FEWEST_ITEMS * workload.end_to_end.epochs


def _has_matmul(framework: str) -> bool:
    """Whether a framework has a matmul, by which the peak is measured."""
    if framework not in plugins.built_in("frameworks") or framework == "command":
        return False
    return type(plugins.framework(framework)).matmul is not Framework.matmul
