"""What the simulated device can do, tried out in a process that has it; prints what came of it as JSON.

The settings of the device are changed between the trials: one process is enough for all of them.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as functional
from simulated_state import SIM  # type: ignore[import-not-found]

from mldyno import plugins
from mldyno.axes import PRECISIONS
from mldyno.doctor.checkup import feature_names
from mldyno.records import Case
from mldyno.selftest.device_promises import wait
from mldyno.selftest.setup import Setup, tidy
from mldyno.stats.intervals import median
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks
from mldyno.worker.checks import failure
from mldyno.worker.examine import try_feature
from mldyno.worker.session import open_case

MODES = ("infer", "train")
SLOW = {"kernel": 5e-3, "rate": 5e9}  # of these few steps fill a second: a CPU without fp16 is slow to compute them
KINDS = (torch.bfloat16, torch.float16)


@contextmanager
def settings(**changed: Any) -> Iterator[None]:
    """The device with other settings for a while."""
    before = {name: getattr(SIM, name) for name in changed}
    for name, value in changed.items():
        setattr(SIM, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(SIM, name, value)


def passing(do: Callable[[], Any], index: int = 0) -> float:
    """Virtual s until the device has done something."""
    SIM.wait(index)
    began = SIM.virtual_now
    do()
    SIM.wait(index)
    return float(SIM.virtual_now - began)


def raised(do: Callable[[], Any]) -> list[str]:
    """The type and the words of an error."""
    try:
        do()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def judged(
    workload: str = "mlp", warm_up: float = 0.1, steps: int = 20, data: Any = None, **axes: Any
) -> dict[str, Any]:
    """What a worker makes of a case: status, reason, checks, and the facts that it saw; after s of warm-up."""
    found: dict[str, Any] = {"status": "ok", "reason": "", "device_seen": None, "step": None, "checks": {}}
    tidy()
    torch.accelerator.reset_peak_memory_stats()
    try:
        case = open_case(Case(workload, **{"device": "sim", "mode": "infer", "batch": 2, **axes}), data)
        case.warm_up(warm_up)
        found |= case.facts
        case.turn(0.0, steps)
        closed = case.close()
        peaks = [series.values[0] for series in closed.series if series.metric == "peak_device_memory"]
        found |= closed.facts | {"checks": vars(closed.checks), "peak": peaks[0]}
        found |= {"step": median(case.values), "late_changes": case.late_changes}
    except Exception as error:
        found["status"], found["reason"] = failure("torch", error)
    return found


def on_device(*shape: int) -> Any:
    return torch.randn(*shape).to("sim")


# -- costs -------------------------------------------------------------------------------------------


def costs() -> dict[str, float]:
    a, b, there = on_device(64, 64), on_device(64, 64), torch.ones(64, 64)
    low = a.bfloat16()
    with settings(kernel=1e-3, rate=1e6, half=4.0, issue=0.0):
        found = {"product": passing(lambda: a @ b), "half": passing(lambda: low @ low)}
    with settings(kernel=1e-3, rate=0.0, bandwidth=1e6, issue=0.0):
        found["sum"] = passing(lambda: a + b)
    with settings(kernel=1e-3, transfer=1e6, issue=0.0):
        found["in"] = passing(lambda: there.to("sim"))
        found["out"] = passing(a.cpu)
    return found


def transfer() -> dict[str, Any]:
    with settings(kernel=1e-3, transfer=1e6):
        return {placement: judged(placement=placement) for placement in ("host", "roundtrip")}


def truths() -> dict[str, dict[str, Any]]:
    """Steps of known times, from short to long, with and without copies."""
    found = {}
    for kernel in (0.2e-3, 5e-3, 0.5):
        with settings(kernel=kernel, cpu={"kernel": 0.0}):
            for placement in ("device", "host", "roundtrip"):
                found[f"{kernel} {placement}"] = judged(placement=placement)
    return found


def bounds() -> dict[str, dict[str, Any]]:
    """Cases of which it is known what holds them up."""
    trials: dict[str, tuple[dict[str, float], str]] = {
        "compute": ({"rate": 1e9}, "device"), "memory": ({"bandwidth": 1e9}, "device"),
        "copy": ({"kernel": 1e-3, "transfer": 5e5}, "host"), "host": ({"issue": 1e-3}, "device"),
    }  # fmt: skip
    found = {}
    for name, (changed, placement) in trials.items():
        with settings(**{"kernel": 1e-6, **changed}):
            found[name] = judged(placement=placement)
    return found


def queues() -> dict[str, Any]:
    """Training that keeps the device busy and its queue full, and inference that reads its results back."""
    with settings(kernel=20e-6, rate=2e10, issue=1e-6, queue=24):
        return {"full": judged(mode="train", warm_up=0.5), "read_back": judged(placement="roundtrip")}


def fallbacks() -> dict[str, Any]:
    with settings(falls_back=("aten::addmm", "aten::relu")):
        return judged()


def waits() -> dict[str, Any]:
    """A wait hidden in each step; and a device that nobody waits for: what the harness sees of a step."""
    with settings(kernel=0.2e-3, hidden=7):
        found: dict[str, Any] = {"hidden": judged(warm_up=0.5)}
    tidy()
    with settings(kernel=5e-3, issue=1e-3):
        program = open_case(Case("mlp", device="sim", mode="infer", batch=2)).program
        blocks = Blocks(program, clock.now)
        blocks.time(20)
        found["waited_for"] = blocks.time(20) / 20e9
        with settings(deaf=True):
            blocks.time(20)
            found["not_waited_for"] = blocks.time(20) / 20e9
            found["case"] = judged()
    return found


# -- precisions --------------------------------------------------------------------------------------


def casts() -> dict[str, list[str]]:
    linear, convolution = torch.nn.Linear(8, 4).to("sim"), torch.nn.Conv2d(1, 2, 3).to("sim")
    rows, image, heads, labels = on_device(4, 8), on_device(1, 1, 8, 8), on_device(1, 2, 4, 8), torch.zeros(4).long()
    trials: dict[str, Callable[[], Any]] = {
        "linear": lambda: linear(rows), "mm": lambda: rows @ rows.T,
        "addmm": lambda: torch.addmm(rows[:, :4], rows, rows.T),
        "bmm": lambda: torch.bmm(heads[0], heads[0].transpose(1, 2)), "conv2d": lambda: convolution(image),
        "attention": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        "softmax": lambda: functional.softmax(rows.bfloat16(), -1),
        "loss": lambda: functional.cross_entropy(linear(rows), labels.to("sim")),
        "sum": lambda: rows + rows,
    }  # fmt: skip
    found: dict[str, list[str]] = {name: [] for name in trials}
    modes: tuple[Any, ...] = (torch.enable_grad, torch.inference_mode)
    for kind in KINDS:
        for mode in modes:
            with mode(), torch.autocast("sim", dtype=kind):
                for name, trial in trials.items():
                    found[name].append(str(trial().dtype).removeprefix("torch."))
    return found


def deaf_casts() -> dict[str, Any]:
    a = on_device(16, 16)
    with torch.autocast("sim", dtype=torch.bfloat16):
        heard = a @ a
        with settings(autocast="deaf"):
            unheard = a @ a
    return {"heard": str(heard.dtype), "unheard": str(unheard.dtype), "equal": torch.equal(unheard, a @ a)}


def backward_under_autocast() -> dict[str, Any]:
    network = torch.nn.Linear(8, 4).to("sim")
    with torch.autocast("sim", dtype=torch.bfloat16):
        loss = network(on_device(4, 8)).sum()
    loss.backward()
    gradient = network.weight.grad
    rounded = gradient.bfloat16().float()
    return {"kind": str(gradient.dtype), "place": str(gradient.device), "rounded": torch.equal(rounded, gradient)}


def scaling() -> dict[str, Any]:
    """A scaler that begins too high leaves steps out until the gradients are finite."""
    network = torch.nn.Linear(8, 4).to("sim")
    optimiser, scaler = torch.optim.SGD(network.parameters(), lr=0.1), torch.amp.GradScaler("sim", init_scale=2.0**40)
    inputs, labels, scales, losses = on_device(4, 8), torch.zeros(4).long().to("sim"), [], []
    for _ in range(40):
        with torch.autocast("sim", dtype=torch.float16):
            loss = functional.cross_entropy(network(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
        scales.append(scaler.get_scale())
        losses.append(float(loss.detach()))
    return {"scales": scales, "losses": losses}


def refusals() -> dict[str, list[str]]:
    with settings(refuses=("float64", "bfloat16")):
        found = {str(kind): raised(lambda kind=kind: on_device(2).to(kind)) for kind in (torch.float64, torch.bfloat16)}  # type: ignore[misc]
        found["module"] = raised(lambda: torch.nn.Linear(2, 2).double().to("sim"))
        found["supported"] = [str(kind) for kind in torch.sim.get_amp_supported_dtype()]
    return found


def precisions() -> dict[str, dict[str, Any]]:
    """Every precision in both modes, as a worker sees it."""
    with settings(**SLOW):
        return {f"{one} {mode}": judged(mode=mode, precision=one) for one in PRECISIONS for mode in MODES}


def precisions_that_fail() -> dict[str, dict[str, Any]]:
    """Autocast that does nothing, types that the device lacks, products that are wrong."""
    autocast = ("amp-fp16", "amp-bf16")
    found: dict[str, dict[str, Any]] = {}
    with settings(**SLOW, autocast="deaf"):
        found |= {f"deaf {one} {mode}": judged(mode=mode, precision=one) for one in autocast for mode in MODES}
    with settings(**SLOW, refuses=("float64", "bfloat16")):
        found |= {f"lacks {one}": judged(precision=one) for one in ("fp64", "bf16", "amp-bf16", "amp-fp16", "fp32")}
    with settings(**SLOW, spoils=0.05):
        found |= {f"wrong {mode}": judged(mode=mode) for mode in MODES}
    return found


# -- memory ------------------------------------------------------------------------------------------


def peaks() -> dict[str, int]:
    tidy()
    accelerator = torch.accelerator
    start = accelerator.memory_allocated()
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    held = torch.empty(3 << 20, dtype=torch.uint8, device="sim")
    found = {"taken": accelerator.memory_allocated() - start, "reserved": accelerator.memory_reserved() - start}
    del held
    found |= {"left": accelerator.memory_allocated() - start, "peak": accelerator.max_memory_allocated() - start}
    free, total = accelerator.get_memory_info()
    found |= {"total": total, "not_free": total - free - accelerator.memory_reserved()}
    accelerator.reset_peak_memory_stats()
    accelerator.empty_cache()
    return found | {"after_reset": accelerator.max_memory_allocated() - start}


def overflows() -> dict[str, Any]:
    tidy()
    network, inputs = torch.nn.Linear(512, 512).to("sim"), on_device(512, 512)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.5)
    free = SIM.line(0).allocated
    found: dict[str, Any] = {}
    with settings(capacity=free + 1000):
        found["forward"] = raised(lambda: network(inputs))
    loss = network(inputs).sum()
    with settings(capacity=SIM.line(0).allocated + 1000):
        found["backward"] = raised(loss.backward)
    optimiser.zero_grad()
    network(inputs).sum().backward()
    with settings(capacity=SIM.line(0).allocated + 1000):
        found["optimiser"] = raised(optimiser.step)
    optimiser.step()
    found["lives"] = bool(torch.isfinite(network.weight).all())
    with settings(capacity=SIM.line(0).allocated + (6 << 20)):  # room for weights and a pass, not for gradients too
        found["training"] = judged(mode="train", batch=2)
    return found


# -- several devices ---------------------------------------------------------------------------------


def two_devices() -> dict[str, Any]:
    with settings(devices=2):
        torch._C._set_multithreading_enabled(False)
        network, inputs = torch.nn.Linear(4, 4).to("sim:1"), torch.randn(2, 4).to("sim:1")
        network(inputs).sum().backward()
        found: dict[str, Any] = {
            "gradient": str(network.weight.grad.device),
            "mixed": raised(lambda: network(on_device(2, 4))),
            "from_host": raised(lambda: network(torch.randn(2, 4))),
            "busy": passing(lambda: network(inputs), index=1),
            "idle": passing(lambda: network(inputs), index=0),
            "between": str(inputs.to("sim:0").device),
            "held": torch.accelerator.memory_allocated("sim:1"),
            "worker": judged(mode="train", device="sim:1"),
            "first": judged(device="sim"),
            "tenth": judged(device="sim:9"),
        }
        torch._C._set_multithreading_enabled(True)
    with settings(devices=0):
        found["absent"] = judged()
        found["contract"] = raised(Setup(plugins.framework("torch"), "sim", 1).check)
        found["nowhere"] = raised(lambda: on_device(2))
    return found


# -- faults ------------------------------------------------------------------------------------------


def losses_of_the_device() -> dict[str, Any]:
    """After so many operations: in the forward pass, in the backward pass, in whatever comes then."""
    network, inputs = torch.nn.Linear(4, 4).to("sim"), on_device(2, 4)
    loss = network(inputs).sum()
    with settings(lost_after=SIM.launches):
        return {
            "backward": raised(loss.backward), "forward": raised(lambda: network(inputs)), "read": raised(loss.item),
            "wait": raised(torch.accelerator.synchronize), "memory": raised(lambda: torch.empty(2, device="sim")),
            "copy": raised(inputs.cpu), "case": judged(),
        }  # fmt: skip


def astray() -> dict[str, Any]:
    trials: dict[str, tuple[str, dict[str, Any]]] = {
        "everything": ("aten::empty_strided", {}), "outputs": ("aten::addmm", {}),
        "state": ("aten::clone", {"workload": "mnist-linear", "mode": "train"}),
        "gradients": ("aten::mm", {"mode": "train"}),
    }  # fmt: skip
    found = {}
    for name, (operation, axes) in trials.items():
        with settings(astray=(operation,)):
            found[name] = judged(**axes)
    return found


def probes() -> dict[str, Any]:
    """The doctor's features: on a device as it should be, and on ones that are wrong, or let the CPU do it."""
    well = {name: vars(try_feature("torch", "sim", name)) for name in feature_names("torch", quick=True)}
    found: dict[str, Any] = {"well": well}
    with settings(spoils=0.05):
        found["spoilt"] = vars(try_feature("torch", "sim", "fp32"))
    with settings(astray=("aten::mm",)):
        found["astray"] = vars(try_feature("torch", "sim", "fp32"))
    with settings(lost_after=SIM.launches):
        found["lost"] = vars(try_feature("torch", "sim", "fp32"))
    return found


def waiting() -> dict[str, list[dict[str, Any]]]:
    setup = Setup(plugins.framework("torch"), "sim", 1)
    with settings(kernel=5e-3, rate=0.0, issue=1e-3):
        found = {"heard": list(wait(setup))}
        with settings(deaf=True):
            found["unheard"] = list(wait(setup))
    return found


TRIALS: tuple[Callable[[], Any], ...] = (
    costs, transfer, truths, bounds, queues, fallbacks, waits, casts, deaf_casts, backward_under_autocast, scaling,
    refusals, precisions, precisions_that_fail, peaks, overflows, two_devices, losses_of_the_device, astray,
    probes, waiting,
)  # fmt: skip

if __name__ == "__main__":
    plugins.framework("torch").start()
    gc.freeze()  # what is imported; then each case is collected without a walk through all of PyTorch
    gc.freeze = gc.unfreeze = lambda: None
    sys.stdout.write(json.dumps({trial.__name__: trial() for trial in TRIALS}))
