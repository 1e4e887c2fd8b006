"""What the devices of a framework are and do in plain products, in each precision, asked in one process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from mldyno.errors import MldynoError
from mldyno.records import Case
from mldyno.runner.worker_process import Ended, WorkerProcess

PATIENCE = 30.0  # s for one device in one precision
PLAIN = "fp32"
HALVES = ("amp-fp16", "amp-bf16")  # by autocast: what is safe in training too
ENOUGH = 1.0  # times the rate in fp32: with this much the other half precision is not tried


@dataclass(frozen=True)
class Rates:
    """Operations a second in plain products, by device and precision; why there are none, where it can't do them."""

    devices: tuple[str, ...]
    start: float
    """Time in s until the framework was imported."""
    found: dict[tuple[str, str], float] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, case: Case) -> float | None:
        """The rate on a case's device in its precision; None if it is not known."""
        return self.found.get((case.device, str(case.precision)))

    def half(self, device: str) -> str | None:
        """The half precision that is fastest on a device; None where it has none."""
        known = [name for name in preferred(device) if (device, name) in self.found]
        return max(known, key=lambda name: self.found[device, name], default=None)

    def gain(self, device: str, precision: str) -> float | None:
        """How many times as fast plain products are in a precision as in fp32."""
        plain, other = self.found.get((device, PLAIN)), self.found.get((device, precision))
        return other / plain if plain and other else None


def preferred(device: str) -> tuple[str, ...]:
    """Half precisions in the order in which they are tried: CPUs have bf16 rather than fp16."""
    return HALVES[::-1] if device == "cpu" else HALVES


def look(python: str, framework: str) -> Rates:
    """The devices that a framework finds here, and their rates in fp32 and in half precision."""
    worker = WorkerProcess(python, lambda: None)
    try:
        worker.start()
        probed = worker.ask({"do": "probe", "frameworks": [framework]}, PATIENCE, lambda step: None)
        seen = probed["frameworks"][framework]
        if "error" in seen:
            raise MldynoError(f"{framework}: {seen['error']}.")
        names = tuple(str(one["name"]) for one in seen["devices"])
        rates = Rates(names, worker.spent)
        for device in names:
            for precision in (PLAIN, *preferred(device)):
                _ask(worker, rates, framework, device, precision)
                if precision != PLAIN and (rates.gain(device, precision) or 0.0) >= ENOUGH:
                    break
        return rates
    except Ended as end:
        raise MldynoError(f"{framework}: {end.reason}.") from None
    finally:
        worker.kill()


def _ask(worker: WorkerProcess, rates: Rates, framework: str, device: str, precision: str) -> None:
    """One rate, or why there is none; a worker that has died takes the rest of the answers with it."""
    case = Case("matmul", framework=framework, device=device, mode="infer", precision=precision)  # type: ignore[arg-type]
    try:
        answer = worker.ask({"do": "foresee", "case": asdict(case)}, worker.spent + PATIENCE, lambda step: None)
    except Ended as end:
        rates.refused[device, precision] = end.reason
        return
    if answer["rate"]:
        rates.found[device, precision] = float(answer["rate"])
