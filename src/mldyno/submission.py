"""Check records for a shared collection: plausible ones pass, judged again from their raw samples.

Shape, id, time and provenance are judged as on import. Each record is judged by its own samples, by the catalogue and
by upper limits of what any device can do; then all records of all files are compared with each other.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from mldyno import plugins
from mldyno.analysis import grouped
from mldyno.analysis.estimates import step_time
from mldyno.analysis.scores import reference
from mldyno.errors import MldynoError
from mldyno.frameworks import TOLERANCE, Framework, Unsupported
from mldyno.records import Machine, Record, seal
from mldyno.runner.recording import over_reference_kernel
from mldyno.stats.intervals import median
from mldyno.store import figures
from mldyno.store.transfer import private_copy
from mldyno.worker import peaks
from mldyno.worker.ranks import own_share
from mldyno.workloads import Workload

AGAIN = "measure it again"
ROUNDING = 0.01  # by which a fact may differ from what samples of six digits say
FAR_FROM_SAMPLES = 2.0  # times faster that a headline may be than the samples: what was usual corrects it
FAR_FROM_REFERENCES = 2.0  # times, by which the steps in reference kernels may differ after the first blocks were cut
FAR_FROM_WARMUP = 5.0  # times faster that the slowest step may be than the fastest of the warm-up
FEWEST_WARMUP = 3  # samples
FAR_FROM_FIRST = 10.0  # times faster that the first step may be than the fastest after it
FAR_FROM_POWER = 5.0  # times, by which energy over power, both measured while steps ran, may differ from a step's time
LEAST_POWER_W, MOST_POWER_W = 0.01, 1e5  # of what any sensor of a node at work measures
FAR_FROM_PHASES = 5.0  # times faster that the phases of a step may be together than the step
FAR_FROM_SHARE = 10.0  # times more operations an item that another phase may have
OF_FIGURES = ("loop_time", "process_time")  # metrics that no measurement has
OF_LOADER = ("data", "epoch")  # phases that make up no step
FEWEST_TO_VARY = 8  # samples, of which a clock gives two that differ
FEWEST_ITEMS = 50_000  # of the data sets that a process trains on

# Upper limits, generous on purpose. On a CPU: its cores, at 6.5 GHz, with two units of 512 bits for fused multiply-adds
# each (64 operations a cycle in fp32, 32 in fp64), or matrix units as AMX in half precision (2,048). Apple's matrix
# units do up to 4 TFLOP/s more, whatever the number of cores. On an accelerator: about twice what the fastest of its
# class does on paper, without sparsity.
CLOCK_HZ = 6.5e9
OPERATIONS_PER_CYCLE = {"fp64": 32.0, "fp32": 64.0, "tf32": 64.0, "half": 2048.0}  # of a core
APPLE_FLOPS = 4e12  # of a cluster's matrix units, in fp32
MOST_CORES, UNKNOWN_CORES = 2048, 256
CLASSES = (
    ("cuda", r"geforce|\brtx\b|\bgtx\b|quadro|titan", {"fp64": 5e12, "fp32": 2e14, "tf32": 5e14, "half": 1e15}),
    ("mps", "", {"fp64": 1e13, "fp32": 1e14, "tf32": 1e14, "half": 3e14}),
    ("xpu", "", {"fp64": 1e14, "fp32": 2e14, "tf32": 1e15, "half": 2e15}),
    ("", "", {"fp64": 3e14, "fp32": 4e14, "tf32": 2.5e15, "half": 5e15}),
)  # of accelerators: kind, words in the vendor's name, FLOP/s; the first that fits
CPU_BYTES_PER_S, ACCELERATOR_BYTES_PER_S = 1e13, 1e14  # copies that a cache may hold

CHIP = re.compile(
    r"\bM ?[1-9]\d?(?: ?(?:Pro|Max|Ultra))?\b"
    r"|\b(?:R ?T ?X|G ?T ?X|Ge ?Force|R ?X|Radeon|Arc) ?(?:PRO )?[AB]?(?:\d{3,4}|\d\d \d\d)(?: ?Ti| ?SUPER| ?XTX?)*\b"
    r"|\bMI ?\d{2,3}X?\b"
    r"|\b(?:T4|L4|L40S?|A10G?|A[34]0|[APV]100|H ?[12]00|B[123]00|G[HB] ?[23]00|A6000)\b|\bTPU ?v?\d[a-z]?\b"
    r"|\bGaudi ?\d\b|\bi[3579]\b|\bCore ?Ultra\b|\bXeon\b|\bEPYC\b|\bRyzen\b|\bThreadripper\b|\bJetson\b",
    re.IGNORECASE,
)  # in the name of a machine: what it claims to be
SPACED_OUT = re.compile(r"(?<!\S)\w(?: \w(?!\S)){2,}")  # letters and digits apart from each other: H 1 0 0
CHIP_COUNT = re.compile(r"\b\d+x(?=[A-Z])|(?<=\d)x\d+\b", re.IGNORECASE)  # beside a chip: 8xH100, H100x8
TRADEMARK = re.compile(r"\((?:R|TM|C)\)|[®™©]", re.IGNORECASE)
LIKE_LATIN = str.maketrans("АВЕЗКМНОРСТУХаеорсухіѕЅІЈΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "ABE3KMHOPCTYXaeopcyxisSIJABEZHIKMNOPTYXo")
"""Cyrillic and Greek letters that are drawn as Latin ones."""
SMALL_CAPITAL = re.compile("LATIN LETTER SMALL CAPITAL [A-Z]")
OWN_FORM = re.compile(r".*, ?(?P<cores>\d+) ?cores?, ?(?P<memory>\d+) ?GB")  # of a name that mldyno gives
MEMORY_VARIES = 0.05  # as a kernel or a driver takes more or less for itself
FEWEST_TO_RECOGNISE = 4  # samples that can be known again
WINDOW = 12  # of them at one end
ALIKE = 2e-5  # by which a ratio of two samples may be off: they have six digits
BUCKET = 1e-4  # wide, in logarithms


def fake(record: Record) -> bool:
    """Return whether no time of a record is real."""
    return bool(record.fact("fake_time")) or record.case.framework == "fake"


def signed_copy(record: Record, key: str | None) -> Record:
    """Return the private copy of a record that this machine signs, with its current key in place of a former one."""
    copy = replace(private_copy(record), proof="signed")
    if copy.machine.key == key:
        return copy
    return seal(replace(copy, machine=replace(copy.machine, key=key), facts={**copy.facts, "private": True}))


def score_first(records: Sequence[Record]) -> list[Record]:
    """Return the records in their order, those of the cases that make the score before the others."""
    rates = reference().rates  # of torch on the cpu, whatever the record is of
    return sorted(records, key=lambda record: replace(record.case, framework="torch", device="cpu") not in rates)


def faults(files: Sequence[Sequence[Record]]) -> list[list[str]]:
    """Return a line for each fault of the records of each file, which are also compared with those of the others."""
    return [[f"record {record.id[:10]} ({record.case.id}): {fault}" for record, fault in of_file]
            for of_file in judged(files)]  # fmt: skip


def judged(files: Sequence[Sequence[Record]], vouched: bool = False) -> list[list[tuple[Record, str]]]:
    """Return the same as records with their faults; where somebody vouches for them, they need no signature."""
    everything = [record for records in files for record in records]
    plain = grouped((record for record in everything if record.case.precision == "fp32"), _place)
    highest = {place: max(map(_peak_of, group)) for place, group in plain.items()}
    others: dict[int, list[str]] = defaultdict(list)
    for record, line in compared(everything):
        others[id(record)].append(line)
    return [
        [(record, fault) for record in records
         for fault in [*_faults(record, highest.get(_place(record), 0.0), vouched), *others[id(record)]]]
        for records in files
    ]  # fmt: skip


def compared(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Yield the faults that show only where records are compared with each other."""
    for machine in grouped(records, lambda record: record.machine.key or record.machine.name).values():
        yield from _hardware_faults(machine)
    yield from _copy_faults(records)


def _place(record: Record) -> tuple[object, ...]:
    return record.machine.name, record.machine.key, record.case.framework, record.case.device


def _peak_of(record: Record) -> float:
    return record.fact("peak_flops") or 0.0


def _faults(record: Record, plain_peak: float, vouched: bool) -> Iterator[str]:
    """Yield the faults of a record; `plain_peak` is the highest in fp32 on its device, 0 where it is unknown."""
    if record.provenance != "measured":
        yield f"it is {record.provenance}, not measured; submit what `mldyno submit` writes on the machine itself"
    if fake(record):
        yield "its times are fake: nothing was computed; leave it out"
    if not record.machine.name.strip() or (record.machine.cpu == "unknown" and not record.machine.devices):
        yield "it says nothing of its machine: neither processor nor devices; measure it again with this mldyno"
    if record.proof != "signed" and not vouched:
        yield "nothing proves that it is of the machine whose key it bears; submit what `mldyno submit` writes"
    if record.status != "ok":
        return
    workload = _of_catalogue(record)
    if not record.alone:
        yield from _energy_faults(record, "paired")
        if workload is not None:
            yield from _pairing_faults(record, workload)
        return
    headline = step_time([record]) if record.values("step_time") else None
    if headline is None:
        yield "no time of a step can be worked out from its samples; leave it out"
        return
    yield from _sample_faults(record, headline.value)
    yield from _energy_faults(record, "steady")
    yield from _device_faults(record)
    for check in ("learned", "agrees"):
        if getattr(record.checks, check) is False:
            yield f"its check '{check}' failed, so it is not ok; {AGAIN}"
    if workload is not None:
        yield from _work_faults(record, workload)
        yield from _check_faults(record)
    yield from _rate_faults(record, workload, headline.value, plain_peak)


def _of_catalogue(record: Record) -> Workload | None:
    """Return the workload, where it is one of the catalogue."""
    if record.case.workload not in plugins.built_in("workloads"):
        return None
    workload = plugins.workload(record.case.workload)
    return workload if record.case.version >= workload.version else None  # an older one may have done less


def _show(value: object) -> str:
    return "nothing" if value is None else f"{value:.4g}"


# -- one record: samples, machine, work, rates -----------------------------------------------------


def _sample_faults(record: Record, headline: float) -> Iterator[str]:
    """Yield facts that its samples contradict."""
    steps = [series for series in record.series if series.metric == "step_time"]
    measured = [each for each in steps if each.stage in ("steady", "warmup")]
    counted = sum(each.block * len(each.values) for each in measured if each.turn is not None)
    values = record.values("step_time")
    if not record.case.tracked and (record.fact("steps") != counted or not counted):
        yield f"it says {record.fact('steps')} steps, and its samples are of {counted}; {AGAIN}"
    total = sum(each.block * math.fsum(each.values) for each in (*measured, *(s for s in steps if s.stage == "first")))
    wall = record.fact("wall_time")
    if wall is None or total > (1 + ROUNDING) * wall:
        yield f"it says that it took {_show(wall)} s, and its steps alone took {total:.4g}; {AGAIN}"
    first, firsts = record.fact("first_step"), record.values("step_time", "first")
    if first is None or len(firsts) != 1 or not math.isclose(first, firsts[0], rel_tol=ROUNDING):
        yield f"it says that its first step took {_show(first)} s, and its samples say {firsts or 'nothing'}; {AGAIN}"
    if firsts and FAR_FROM_FIRST * firsts[0] < min(values):
        yield f"its first step is {min(values) / firsts[0]:.3g} times as fast as any after it; {AGAIN}"
    size, largest = record.fact("block_steps"), max(each.block for each in measured)
    if size is not None and size != largest:
        yield f"it says blocks of {size} steps, and its samples are of {largest}; {AGAIN}"
    if extra := sorted({each.metric for each in record.series} & {*OF_FIGURES}):
        yield f"it has a {extra[0]}, which only figures have; {AGAIN}"
    if len(values) >= FEWEST_TO_VARY and max(values) == min(values):
        yield f"its {len(values)} samples are all the same, which no clock gives; leave it out"
    warm = record.values("step_time", "warmup")
    if len(warm) >= FEWEST_WARMUP and min(warm) > FAR_FROM_WARMUP * max(values):
        yield f"all of its steps are over {min(warm) / max(values):.3g} times as fast as in the warm-up; {AGAIN}"
    stated, ratios = record.fact("step_per_reference"), over_reference_kernel(record.series)
    if ratios and not stated:
        yield f"it does not say a step in reference kernels, and its samples say {median(ratios):.4g}; {AGAIN}"
    if stated and ratios and not 1 / FAR_FROM_REFERENCES <= median(ratios) / stated <= FAR_FROM_REFERENCES:
        yield f"it says a step of {stated:.4g} reference kernels, and its samples say {median(ratios):.4g}; {AGAIN}"
    if FAR_FROM_SAMPLES * headline < median(values):
        yield f"what it says is usual makes it {median(values) / headline:.3g} times as fast as its samples; {AGAIN}"


def _energy_faults(record: Record, stage: str) -> Iterator[str]:
    """Yield what no power of a machine makes of a step's energy and time."""
    energies, powers = record.values("energy", stage), record.values("power", stage)
    if not energies or not (times := record.values("step_time", stage)):
        return
    energy, step = median(energies), median(times)
    if not LEAST_POWER_W <= energy / step <= MOST_POWER_W * record.case.nodes:
        yield f"a step of {energy:.4g} J in {step:.4g} s is {energy / step:.4g} W, which no machine takes; {AGAIN}"
    elif stage == "steady" and not powers:
        yield f"it has the energy of a step, and no power; {AGAIN}"
    elif powers and not 1 / FAR_FROM_POWER <= energy / step / median(powers) <= FAR_FROM_POWER:
        yield f"its energy and time of a step make {energy / step:.4g} W, and it says {median(powers):.4g} W; {AGAIN}"


def _device_faults(record: Record) -> Iterator[str]:
    """Yield what its machine lacks for the device and the framework that it names."""
    case, machine = record.case, record.machine
    if case.own_work:
        return
    names = {device.name for device in machine.devices if device.framework == case.framework}
    if case.framework != "command" and not _is_among(case.device, names):
        yield f"its machine has no device {case.device} in {case.framework}; {AGAIN}"
    seen = record.fact("device_seen")
    if seen is not None and not _is_among(case.device, {seen}):
        yield f"it ran on {seen}, and says {case.device}; {AGAIN}"
    kind, per_node = case.device.partition(":")[0], (case.ranks or 1) // max(1, case.nodes)
    if kind != "cpu" and sum(name.partition(":")[0] == kind for name in names) < per_node:
        yield f"its machine has fewer than {per_node} devices of {kind}; {AGAIN}"
    if record.software.framework != case.framework:
        yield f"{record.software.framework} computed it, and it says {case.framework}; {AGAIN}"
    if None not in (case.threads, record.software.threads) and case.threads != record.software.threads:
        yield f"it ran with {record.software.threads} threads, and says {case.threads}; {AGAIN}"
    ran = re.match(r"[\d.]*\d", record.software.python)
    if case.python is not None and ran is not None and case.python.partition("+")[0] != ran[0]:
        yield f"it ran in Python {ran[0]}, and says {case.python}; {AGAIN}"
    if machine.cores is not None and machine.cores > MOST_CORES:
        yield f"no machine has {machine.cores:,} cores; {AGAIN}"
    memory = max(record.values("peak_memory", "process"), default=0.0)
    if machine.memory is not None and memory > machine.memory:
        yield f"its process took {memory:.4g} B, and its machine has {machine.memory:.4g}; {AGAIN}"


def _is_among(device: str, names: set[str]) -> bool:
    """Return whether a device has one of the names, with or without the number of the first."""
    return bool(names & {device, f"{device}:0", device.removesuffix(":0")})


def _work_faults(record: Record, workload: Workload) -> Iterator[str]:
    """Yield facts that the catalogue contradicts."""
    case = record.case
    if case.version > workload.version:
        yield f"version {case.version} of {workload.name} is not known here; update mldyno"
        return
    if case.framework not in plugins.built_in("frameworks"):
        yield f"framework {case.framework} is not known here; update mldyno, or leave it out"
        return
    if case.mode not in workload.modes:
        yield f"{workload.name} has no mode {case.mode}; leave it out"
        return
    if bool(workload.batch) != bool(case.batch) or bool(workload.seq) != bool(case.seq):
        yield f"a case of {workload.name} has {'batch and sequence' if workload.seq else 'a batch and no sequence'}"
        return
    if (case.framework == "command") != (workload.end_to_end is not None):
        yield f"{workload.name} is {'' if workload.end_to_end else 'not '}run as a whole process; leave it out"
        return
    if case.framework != "command" and case.precision is None:
        yield f"a case of {workload.name} has a precision; {AGAIN}"
    if record.fact("item") not in (None, workload.item):
        yield f"its items are called {record.fact('item')}, and in the catalogue {workload.item}; {AGAIN}"
    for name, expected in work_of(record, workload).items():
        stated = record.fact(name)
        if stated is None or not math.isclose(stated, expected, rel_tol=1e-9):
            what = name.replace("_", " ")
            yield f"its {what} is {_show(stated)}, and in the catalogue it is {expected:.10g}; {AGAIN}"
    memory = min(record.values("peak_memory", "process"), default=math.inf)
    if memory < workload.params:
        yield f"its process took {memory:.4g} B, which do not hold {workload.params:,} parameters; {AGAIN}"


def work_of(record: Record, workload: Workload) -> dict[str, float]:
    """Return the facts of a step that follow from the case alone."""
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


def _check_faults(record: Record) -> Iterator[str]:
    """Yield checks of the catalogue's work that did not pass, or are missing."""
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
        yield f"its results differ by {_show(checks.error)}, and at most {most:.2g} is allowed; {AGAIN}"
    if checks.agrees and checks.error == 0 and case.precision not in ("fp32", None):
        yield f"{case.precision} did not take effect: results are those of fp32 to the last bit; {AGAIN}"


def _rate_faults(record: Record, workload: Workload | None, headline: float, plain_peak: float) -> Iterator[str]:
    """Yield more work a second than its device does in matmuls, or than any such device can do."""
    step = median(record.values("step_time"))
    fastest = min(step, headline)
    operations = record.fact("flops_per_step") or 0.0
    if workload is not None:
        operations = work_of(record, workload).get("flops_per_step", 0.0) or _operations_of_process(record, workload)
    peak, limit = _peak_of(record), _most_flops(record)
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
    yield from _phase_faults(record, step, operations if workload is not None else 0.0, limit)
    if workload is not None and workload.item == "B":
        copied = workload.items(record.case) / fastest
        most = CPU_BYTES_PER_S if record.case.device == "cpu" else ACCELERATOR_BYTES_PER_S
        if copied > most:
            yield f"{copied / 1e9:,.4g} GB/s are more than the {most / 1e9:,.4g} that any such device copies; {AGAIN}"


def _phase_faults(record: Record, step: float, operations: float, limit: float) -> Iterator[str]:
    """Yield phases that are faster than any such device, or than the step that they make up; or have other items."""
    named = [name for name in (record.fact("phases") or "").split(", ") if name not in OF_LOADER]
    times = {name: median(values) for name in named if (values := record.values(f"{name}_time"))}
    if times and FAR_FROM_PHASES * sum(times.values()) < step:
        yield f"its phases take {sum(times.values()):.4g} s, and the step that they make up {step:.4g}; {AGAIN}"
    if not times or not operations:
        return
    items = {name: record.fact(f"{name}_items") or 0 for name in times}
    in_all = record.fact("items_per_step") or 0
    if not in_all or sum(items.values()) != in_all:
        yield f"its phases have {sum(items.values()):,} items, and its step {in_all:,}; {AGAIN}"
        return
    for name, time in times.items():
        if not time or operations * items[name] / in_all / time > FAR_FROM_SHARE * limit:
            yield f"its phase {name} takes {time:.4g} s, which is less than any such device needs; {AGAIN}"


def _pairing_faults(record: Record, workload: Workload) -> Iterator[str]:
    """Yield more operations a second in the rounds of a comparison than any such device can do."""
    values, limit = record.values("step_time", "paired"), _most_flops(record)
    operations = work_of(record, workload).get("flops_per_step", 0.0) or _operations_of_process(record, workload)
    if values and operations / median(values) > limit:
        reached = f"{operations / median(values) / 1e9:,.4g} GFLOP/s are more than the {limit / 1e9:,.4g}"
        yield f"{reached} that any such device reaches; {AGAIN}"


def _operations_of_process(record: Record, workload: Workload) -> float:
    """Return the fewest operations of a process that trains from end to end."""
    if workload.end_to_end is None:
        return 0.0
    trained = plugins.workload(workload.end_to_end.workload)
    batch = record.case.batch or trained.batch
    return trained.flops(record.case) / batch * FEWEST_ITEMS * workload.end_to_end.epochs


def _has_matmul(framework: str) -> bool:
    """Return whether a framework has a matmul, by which the peak is measured."""
    if framework not in plugins.built_in("frameworks") or framework == "command":
        return False
    return type(plugins.framework(framework)).matmul is not Framework.matmul


def _most_flops(record: Record) -> float:
    """Return the most operations a second that all devices of a case can do."""
    case, machine = record.case, record.machine
    precision = case.precision or "fp32"
    kind = precision if precision in OPERATIONS_PER_CYCLE else "half"
    if case.device == "cpu":
        cores = min(machine.cores or UNKNOWN_CORES, MOST_CORES)
        if case.threads:
            cores = min(cores, case.threads * max(1, (case.ranks or 1) // case.nodes))
        apple = APPLE_FLOPS * (2 if kind == "half" else 1) if machine.system == "Darwin" else 0.0
        return case.nodes * (cores * CLOCK_HZ * OPERATIONS_PER_CYCLE[kind] + apple)
    device = case.device.partition(":")[0]
    titles = " ".join(each.title for each in machine.devices if each.name.partition(":")[0] == device).lower()
    known = next(most for name, words, most in CLASSES if name in ("", device) and re.search(words, titles))
    return (case.ranks or 1) * known[kind]


# -- several records: one key on two machines, one measurement under two names ----------------------


def _hardware_faults(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Yield the records of one machine with other hardware than an earlier one, or with a name that claims other."""
    records = sorted(records, key=lambda record: record.proof != "signed")
    first = records[0].machine
    titles: dict[tuple[str, str], str] = {}
    of_runs: dict[str, Machine] = {}
    parts = {text for record in records for text in (record.machine.cpu, *(d.title for d in record.machine.devices))}
    words = _squeezed(" ".join(parts))
    for record in records:
        machine = record.machine
        if line := _difference(first, machine) or _difference(of_runs.setdefault(record.run.id, machine), machine):
            yield record, f"its key comes with other hardware: {line}; a key is of one machine only"
        for device in machine.devices:
            known = titles.setdefault((device.framework, device.name), device.title)
            if known != device.title:
                yield record, f"its key comes with other hardware: {device.title}, and {known} in another record"
        yield from ((record, line) for line in _claims(machine, words))


def _difference(known: Machine, machine: Machine) -> str:
    """Say in what hardware two machines differ; return nothing where they don't."""
    for name in ("system", "arch", "cpu", "cores"):
        if getattr(known, name) != getattr(machine, name):
            return f"{name} {getattr(machine, name)}, and {getattr(known, name)} in another record"
    if not math.isclose(known.memory or 0, machine.memory or 0, rel_tol=MEMORY_VARIES):
        return f"memory of {machine.memory} B, and {known.memory} in another record"
    return ""


def _claims(machine: Machine, words: str) -> Iterator[str]:
    """Yield chips, cores and memory that a name claims and its machine lacks."""
    plain = SPACED_OUT.sub(lambda apart: apart[0].replace(" ", ""), _plain(machine.name))
    chips = CHIP.findall(CHIP_COUNT.sub("", plain))
    for chip in chips:
        if _squeezed(chip) not in words:
            yield f"its machine is called '{machine.name}', and none of its parts is {chip}; give it another name"
            return
    if not chips and _squeezed(machine.name) in map(_squeezed, figures.machines()):
        yield f"its machine is called '{machine.name}', as a published one; give it another name"
    form = OWN_FORM.fullmatch(" ".join(machine.name.split()))
    if form and machine.memory and (
        int(form["cores"]) != machine.cores or int(form["memory"]) != round(machine.memory / 2**30)
    ):  # fmt: skip
        yield f"its machine is called '{machine.name}', and has {machine.cores} cores and {machine.memory} B of memory"


def _squeezed(text: str) -> str:
    return "".join(_plain(text).casefold().split())


def _plain(text: str) -> str:
    """Return a text in plain letters, with spaces for all that separates words: M1_Max, RTX-4090."""
    letters = unicodedata.normalize("NFKC", TRADEMARK.sub(" ", text)).translate(LIKE_LATIN)
    return re.sub(r"[\W_]+", " ", "".join(map(_latin, letters)))


def _latin(letter: str) -> str:
    """Return a small capital as a letter, and a digit of any script as one from 0 to 9."""
    digit, name = unicodedata.decimal(letter, -1), unicodedata.name(letter, "")
    return str(digit) if digit >= 0 else name[-1] if SMALL_CAPITAL.fullmatch(name) else letter


def _copy_faults(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Yield records whose samples are those of another one, times a constant, in any order, or except for one end."""
    buckets: dict[Hashable, list[tuple[list[float], Record]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.proof != "signed"):
        values = _own_samples(record)
        if len(values) < FEWEST_TO_RECOGNISE or max(values) <= (1 + 10 * ALIKE) * min(values):
            continue
        shapes = [((kind, len(shape)), round(shape[1] / BUCKET), shape) for kind, shape in _shapes(values)]
        original = next(
            (theirs for kind, bucket, shape in shapes for near in (bucket - 1, bucket, bucket + 1)
             for known, theirs in buckets.get((kind, near), ())
             if all(abs(a - b) <= ALIKE for a, b in zip(shape, known, strict=True))), None,
        )  # fmt: skip
        if original is None:
            for kind, bucket, shape in shapes:
                buckets[kind, bucket].append((shape, record))
        elif _measurement(record) != _measurement(original):
            times = median(values) / median(_own_samples(original))
            source = f"record {original.id[:10]} of {original.machine.name} ({original.case.id})"
            scaled = "" if math.isclose(times, 1, rel_tol=1e-3) else f", times {times:.3g}"
            yield record, f"its samples are those of {source}{scaled}; a measurement is submitted once"


def _own_samples(record: Record) -> list[float]:
    return record.values("step_time") or record.values("step_time", "paired")


def _measurement(record: Record) -> tuple[object, ...]:
    """Return what is the same in two texts of one measurement, such as a record and its private copy."""
    run = record.run
    return record.machine.key, record.machine.name, record.case, run.id, run.repeat, run.process, run.pairing, run.group


def _shapes(values: Sequence[float]) -> Iterator[tuple[str, list[float]]]:
    """Yield samples as logarithms without their scale: both ends, and all of them in order of size."""
    parts = {"start": values[:WINDOW], "end": values[-WINDOW:]}
    if max(values) > 1.001 * min(values):
        parts["sorted"] = sorted(values)
    for kind, part in parts.items():
        logs = list(map(math.log, part))
        yield kind, [each - logs[0] for each in logs]
