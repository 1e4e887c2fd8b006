"""How wrong a clock is that does not wait: JAX and MLX on a CPU, where no GPU is needed to see it.

python -m bench.unsynced        for each framework the time of 20 steps until the loop returned, over that until the
                                results were there
"""

from __future__ import annotations

import time
from typing import Any

from mldyno import plugins
from mldyno.records import Case
from mldyno.stats.intervals import median

STEPS, TRIALS = 20, 9
WORKLOADS = ("mlp", "mnist-cnn", "bert-tiny")


def main() -> None:
    """Print a line for each framework and workload."""
    for name in ("jax", "mlx", "tensorflow", "torch"):
        framework = plugins.framework(name)
        framework.start()
        for workload in WORKLOADS:
            definition = plugins.workload(workload)
            case = Case(workload, framework=name, mode="infer", batch=definition.batch, seq=definition.seq)
            program: Any = framework.open(case, framework.version_of(definition))
            program.run(3)
            program.synchronize()
            shares = [_share(program) for _ in range(TRIALS)]
            print(f"{name} {workload}: the loop returned after {median(shares):.3f} of the time that its work took")


def _share(program: Any) -> float:
    began = time.perf_counter()
    program.run(STEPS)
    returned = time.perf_counter() - began
    program.synchronize()
    return returned / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
