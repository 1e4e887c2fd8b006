"""Audit: optimum-benchmark's latency tracker for MPS, around a simulated accelerator of known speed.

From the root of the source tree, on one line: PYTHONPATH=src:tests/simulated MLDYNO_SIM='{"kernel": 0.02}'
.peers/optimum/bin/python -m bench.peers.audit_sync
"""

from __future__ import annotations

import os
import time

from bench.peers import optimum

STEPS, KERNELS, BATCH = 20, 7, 2  # kernels of a forward step of mlp: four products and three ReLUs


def main() -> None:
    """Time the same steps with the tracker as it is for `mps`, and with a wait for the device."""
    import torch
    from optimum_benchmark.trackers.latency import LatencySessionTracker  # type: ignore[import-not-found]
    from simulated_device import SIM  # type: ignore[import-not-found]

    from mldyno import plugins
    from mldyno.records import Case

    torch.set_num_threads(1)
    recipe = plugins.workload("mlp").build["torch"](torch, Case("mlp", mode="infer", batch=BATCH))
    network, inputs = recipe.network.eval().to("sim"), recipe.draw()[0].to("sim")
    tracker = LatencySessionTracker(device="mps", backend="pytorch")
    with torch.inference_mode():
        network(inputs)
        torch.accelerator.synchronize()
        began = time.perf_counter()
        with tracker.session():
            for _ in range(STEPS):
                with tracker.track():
                    network(inputs)
            torch.accelerator.synchronize()
            took = time.perf_counter() - began
    said = tracker.get_latency().p50
    print(f"a step takes the device {KERNELS * SIM.kernel * 1e3:.1f} ms ({KERNELS} kernels of {SIM.kernel * 1e3:g} ms)")
    print(f"the tracker says:       {said * 1e3:.2f} ms")
    print(f"with one wait at the end: {took / STEPS * 1e3:.2f} ms")


if __name__ == "__main__":
    os.environ.update(optimum.OFFLINE)
    main()
