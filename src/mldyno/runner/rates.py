"""What the devices of a framework are and do in matmuls, in each precision, asked in one process."""

from __future__ import annotations

from dataclasses import dataclass, field

from mldyno.client.worker_process import Ended, WorkerProcess
from mldyno.errors import MldynoError
from mldyno.messages import ForecastCase, ProbeFrameworks
from mldyno.records import Case

RATE_TIMEOUT_S = 30.0  # for one device in one precision
PLAIN = "fp32"
HALVES = ("amp-fp16", "amp-bf16")  # by autocast: what is safe in training too
GOOD_GAIN = 1.0  # times the rate in fp32: with this much the other half precision is not tried


@dataclass(frozen=True)
class Rates:
    """Operations a second in matmuls, by device and precision; why there are none, where it can't do them."""

    devices: tuple[str, ...]
    start: float
    """Time in s until the framework was imported."""
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    threads: int | None = None
    """CPU threads of the framework."""

    def of(self, case: Case) -> float | None:
        """The rate on a case's device in its precision; None if it is not known."""
        return self.known.get((case.device, str(case.precision)))

    def half(self, device: str) -> str | None:
        """The half precision that is fastest on a device; None where it has none."""
        halves = [name for name in preferred(device) if (device, name) in self.known]
        return max(halves, key=lambda name: self.known[device, name], default=None)

    def gain(self, device: str, precision: str) -> float | None:
        """How many times as fast matmuls are in a precision as in fp32."""
        plain, other = self.known.get((device, PLAIN)), self.known.get((device, precision))
        return other / plain if plain and other else None


def preferred(device: str) -> tuple[str, ...]:
    """Half precisions in the order in which they are tried: CPUs have bf16 rather than fp16."""
    return HALVES[::-1] if device == "cpu" else HALVES


def look(framework: str) -> Rates:
    """The devices that a framework finds here, and their rates in fp32 and in half precision."""
    try:
        with WorkerProcess() as worker:
            facts = worker.ask(ProbeFrameworks((framework,)), RATE_TIMEOUT_S).frameworks[framework]
            if facts.error:
                raise MldynoError(f"{framework}: {facts.error}.")
            names = tuple(device.name for device in facts.devices)
            rates = Rates(names, worker.spent, threads=facts.threads)
            for device in names:
                for precision in (PLAIN, *preferred(device)):
                    _ask(worker, rates, framework, device, precision)
                    if precision != PLAIN and (rates.gain(device, precision) or 0.0) >= GOOD_GAIN:
                        break
            return rates
    except Ended as end:
        raise MldynoError(f"{framework}: {end.reason}.") from None
    except KeyError:
        raise MldynoError(f"{framework}: the worker's answer does not name it.") from None


def _ask(worker: WorkerProcess, rates: Rates, framework: str, device: str, precision: str) -> None:
    """One rate, or why there is none; a worker that has died takes the rest of the answers with it."""
    case = Case("matmul", framework=framework, device=device, mode="infer", precision=precision)  # type: ignore[arg-type]
    try:
        rate = worker.ask(ForecastCase(case), RATE_TIMEOUT_S).rate
    except Ended as end:
        rates.refused[device, precision] = end.reason
        return
    if rate:
        rates.known[device, precision] = rate
