"""JAX with several devices, seen from inside a separate process: `python jax_on_devices.py jax FOLDER` prints JSON.

XLA divides the CPU into four devices; ours are called cpu, cuda:0 and cuda:1. The fourth belongs to nobody, and is the
default device of the process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from mldyno import plugins
from mldyno.frameworks import Unsupported
from mldyno.frameworks import jax as jax_framework
from mldyno.records import Case, Device
from mldyno.workloads import Recipe

NAMES = ("cpu", "cuda:0", "cuda:1", "nobody's")


class Several(jax_framework.Jax):
    """JAX with two GPUs."""

    def devices(self) -> list[Device]:
        return [Device(name, "jax") for name in NAMES[:3]]


def named(device: Any) -> str:
    return NAMES[device.id]


def opened(its: Several, device: str, build: Any = None, **axes: Any) -> Any:
    given: dict[str, Any] = {"mode": "train", "batch": 4} | axes
    case = Case("mnist-cnn", framework="jax", device=device, **given)
    return its.open(case, build or its.version_of(plugins.workload("mnist-cnn")))


def places(jax: Any, *trees: Any) -> list[str]:
    return sorted({named(device) for leaf in jax.tree.leaves(trees) for device in leaf.devices()})


def in_turns(its: Several) -> dict[str, Any]:
    """Where two models and what they issue lie, after turns; and whether a wait ends when all is done."""
    programs = {name: opened(its, name, batch=32) for name in NAMES[1:3]}
    done = []
    for program in [*programs.values()] * 2:
        program.run(3)
        program.synchronize()
        done += [leaf.is_ready() for leaf in its.jax.tree.leaves(program.backend.state)]
    places_of = {name: [program.actual_device(), *places(its.jax, program.backend.state, program.fixed)]
                 for name, program in programs.items()}  # fmt: skip
    program = programs["cuda:0"]
    memory = its.allocate(program.case, 1 << 10)
    kernel = its.matmul(program.case, 64)
    kernel.run(1)
    kernel.synchronize()
    error, tolerance = program.error_vs_reference()
    on_default = [array for array in its.jax.live_arrays() if places(its.jax, array) == [NAMES[3]]]
    return {"places": places_of, "done": all(done), "agrees": error <= tolerance, "memory": places(its.jax, memory),
            "arrays_on_default": len(on_default)}  # fmt: skip


def own(its: Several, precision: Any = None) -> tuple[Any, list[str]]:
    """A model of the user on cuda:1, and the devices on which it and its batches were made."""
    jnp, seen = its.jax.numpy, list[str]()

    def noted(array: Any) -> Any:
        seen.append(*places(its.jax, array))
        return array

    def build(_: Any, case: Case) -> Recipe:
        params = noted(jnp.ones((4, 4)))
        network = lambda params, x: jnp.matmul(x, params, precision=precision)  # noqa: E731
        loss = lambda output, targets: (output - targets) ** 2  # noqa: E731
        draw = lambda: (noted(jnp.ones((2, 4))), noted(jnp.zeros((2, 4))))  # noqa: E731
        return Recipe((network, params), draw, loss, lambda _: its.optax.sgd(0.1))

    program = opened(its, "cuda:1", build)
    program.run(1)
    program.synchronize()
    return program, sorted({*seen})


def precisions(its: Several) -> dict[str, Any]:
    """How products are asked for in a step, and what is then said of fp32 where all but the highest are tf32."""
    asked: list[str] = []

    def on_ampere(device: Any, primitive: str, precision: Any) -> str:
        asked.append(f"{named(device)} {primitive} {precision[0].name}")
        return "fp32" if precision[0].name == "HIGHEST" else "tf32"

    real, its.mode_of = its.mode_of, on_ampere  # type: ignore[method-assign]
    its.jax.config.update("jax_default_matmul_precision", "bfloat16")  # as somebody's code may leave it
    said: dict[str, Any] = {}
    for precision in ("fp32", "tf32"):
        program = opened(its, "cuda:0", precision=precision)
        program.run(1)
        said[precision] = [program.backend.fp32_mode(), program.precision_flaw(), sorted(asked)]
        asked.clear()
    said["own"] = own(its, "default")[0].backend.fp32_mode()
    its.mode_of = real  # type: ignore[method-assign]
    said["here"] = opened_and_run(its, precision="fp32").fp32_mode()
    try:
        opened_and_run(its, precision="tf32").fp32_mode()
    except Unsupported as error:
        said["without"] = str(error)
    try:
        opened(its, "cpu", precision="tf32")
    except Unsupported as error:
        said["refused"] = str(error)
    return said


def opened_and_run(its: Several, **axes: Any) -> Any:
    program = opened(its, "cuda:0", **axes)
    program.run(1)
    return program.backend


def main() -> dict[str, Any]:
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    its = Several()
    its.start()
    jax_framework.device_name = named
    its.jax.config.update("jax_default_device", its.jax.devices()[3])
    facts = {"in_turns": in_turns(its), "own": [own(its)[0].actual_device(), own(its)[1]]}
    return {**facts, "precisions": precisions(its)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()))
