"""Ask workers before a run: frameworks and devices, matmul rates, the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mldyno import interpreters, machine, sources
from mldyno.analysis.answers import PLAIN
from mldyno.axes import LARGEST_WHOLE
from mldyno.errors import MldynoError
from mldyno.machine import Vendors
from mldyno.messages import ForecastCase, FrameworkFacts, FrameworksProbed, ProbeFrameworks, TrySteps
from mldyno.records import Case
from mldyno.worker.client import Ended, WorkerProcess, memory_limit
from mldyno.worker.process_tree import Patience, reserve

PROBE_TIMEOUT_S = 120.0


def probe_frameworks(
    frameworks: Sequence[str],
    check_interrupt: Callable[[], None] = lambda: None,
    python: str | None = None,
    timeout: float = PROBE_TIMEOUT_S,
) -> FrameworksProbed:
    """Ask each framework about itself, in that interpreter; no vendor is asked.

    Each has a separate process: some can't be loaded together.
    """
    version, facts = "unknown", dict[str, FrameworkFacts]()
    for name in frameworks:
        try:
            with WorkerProcess(check_interrupt, python=python and interpreters.path_of(python)) as worker:
                probed = worker.request(ProbeFrameworks((name,)), timeout)
            version, facts[name] = probed.python, probed.frameworks[name]
        except Ended as end:
            facts[name] = FrameworkFacts(end.reason)
    return FrameworksProbed(version, facts)


def with_vendors(probed: FrameworksProbed, vendors: Vendors) -> FrameworksProbed:
    """Return the facts with what vendors say about the devices."""
    facts = {name: replace(each, devices=vendors.describe(each.devices)) for name, each in probed.frameworks.items()}
    return replace(probed, frameworks=facts)


RATE_TIMEOUT_S = 30.0  # for one device in one precision
HALVES = ("amp-fp16", "amp-bf16")  # by autocast: what is safe in training too
GOOD_GAIN = 1.0  # times the rate in fp32: from here on the second half precision is not tried


@dataclass(frozen=True)
class Rates:
    """Matmul rates in FLOP/s by device and precision, or why there are none."""

    devices: tuple[str, ...]
    start: float  # time in s until the framework was imported
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    threads: int | None = None  # CPU threads of the framework

    def of(self, case: Case) -> float | None:
        """Return the rate on a case's device in its precision; None if it is not known."""
        return self.known.get((case.device, str(case.precision)))

    def half(self, device: str) -> str | None:
        """Return the fastest half precision of a device; None where it has none."""
        halves = [name for name in preferred(device) if (device, name) in self.known]
        return max(halves, key=lambda name: self.known[device, name], default=None)

    def gain(self, device: str, precision: str) -> float | None:
        """Return the rate in a precision over that in fp32."""
        plain, rate = self.known.get((device, PLAIN)), self.known.get((device, precision))
        return rate / plain if plain and rate else None


def preferred(device: str) -> tuple[str, ...]:
    """Return half precisions in the order in which they are tried: CPUs have bf16 rather than fp16."""
    return HALVES[::-1] if device == "cpu" else HALVES


def probe_rates(framework: str) -> Rates:
    """Return the devices that a framework finds here, and their rates in fp32 and in half precision."""
    try:
        with WorkerProcess() as worker:
            facts = worker.request(ProbeFrameworks((framework,)), RATE_TIMEOUT_S).frameworks[framework]
            if facts.error:
                raise MldynoError(f"{framework}: {facts.error}.")
            names = tuple(device.name for device in facts.devices)
            rates = Rates(names, worker.spent, threads=facts.threads)
            for device in names:
                for precision in (PLAIN, *preferred(device)):
                    case = Case("matmul", framework=framework, device=device, mode="infer", precision=precision)  # type: ignore[arg-type]
                    try:
                        rate = worker.request(ForecastCase(case), RATE_TIMEOUT_S).rate
                    except Ended as end:  # where the worker has died, all that follows is refused, too
                        rates.refused[device, precision], rate = end.reason, None
                    if rate:
                        rates.known[device, precision] = rate
                    if precision != PLAIN and (rates.gain(device, precision) or 0.0) >= GOOD_GAIN:
                        break
            return rates
    except Ended as end:
        raise MldynoError(f"{framework}: {end.reason}.") from None
    except KeyError:
        raise MldynoError(f"{framework}: the worker's answer does not name it.") from None


STEPS_TRIED = 2  # the optimiser's state is there from the second step on
LEAST_SHARE = 0.5  # of the memory that was free at first; with less, other programs are in the way
EXACT_BATCH = 64  # up to which the answer is exact; larger answers are exact to 1/64


@dataclass(frozen=True)
class Attempt:
    """A batch that was tried: its peak memory in B where it fitted, else the reason."""

    batch: int
    fits: bool
    peak: int | None = None
    reason: str = ""


@dataclass
class Search:
    """The search for the largest batch of a case: the batches tried so far."""

    case: Case
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def fits(self) -> Attempt | None:
        return max((tried for tried in self.attempts if tried.fits), key=lambda tried: tried.batch, default=None)

    @property
    def too_large(self) -> Attempt | None:
        return min((tried for tried in self.attempts if not tried.fits), key=lambda tried: tried.batch, default=None)

    def next(self, most: int) -> int | None:
        """Return the batch to try next; None where the answer is known, or `most` fits."""
        low, high = self.fits, self.too_large
        if high is None:
            following = 2 * low.batch if low else self.case.batch or 1
            return min(following, most) if low is None or low.batch < most else None
        floor = low.batch if low else 0
        if high.batch - floor <= max(1, floor // EXACT_BATCH):
            return None
        return (floor + high.batch) // 2


def largest_batch(case: Case, timeout: float, most: int | None, tell: Callable[[Attempt], None]) -> Search:
    """Search for the largest batch, from the case's own up: double until one does not fit, then bisect.

    A batch fits where a few whole steps of it end well. On the CPU a process is refused memory beyond what the machine
    can spare. A batch that is too slow to try in `timeout` s ends the search like one that runs out of memory.
    """
    search, patience, spare = Search(case), Patience(), _spare() or 0
    while (batch := search.next(most or LARGEST_WHOLE)) is not None:
        tried, needed = replace(case, batch=batch), round(LEAST_SHARE * spare)
        if (_spare() or needed) < needed and not patience.wait(needed):
            raise MldynoError(
                f"{tried.id}: other programs took the memory that was free at first; try again when they are done."
            )
        attempt = _attempt(tried, timeout, search.fits is not None, patience)
        search.attempts.append(attempt)
        tell(attempt)
    return search


def _attempt(case: Case, timeout: float, smaller_fits: bool, patience: Patience, again: bool = False) -> Attempt:
    """Try a batch; try again where other programs had taken the memory and gave it back.

    Where memory runs out, some frameworks crash, and some libraries fail with other errors: where a smaller batch fits,
    that means the same.
    """
    batch = case.batch or 1
    try:
        with WorkerProcess(case=case) as worker:
            command = TrySteps(case, STEPS_TRIED, _spare(), sources.known(case.workload))
            return Attempt(batch, True, worker.request(command, timeout).peak)
    except Ended as end:
        reason = f"{end.status}: {end.reason}"
        if end.status == "timeout":
            reason += "; give it more with --timeout"
        if end.held is not None and not again and patience.wait(0):
            return _attempt(case, timeout, smaller_fits, patience, again=True)
        failed = end.crashed or end.reason.startswith("RuntimeError")
        if end.status in ("oom", "timeout") or (failed and smaller_fits):
            return Attempt(batch, False, reason=reason)
        raise MldynoError(f"{case.id}: {reason}.") from None


def _spare() -> int | None:
    """Return the memory in B that the machine can spare for a worker, and the user allows it."""
    left = machine.available_memory()
    limits = [limit for limit in (memory_limit(), None if left is None else left - reserve()) if limit is not None]
    return max(1 << 20, min(limits)) if limits else None
