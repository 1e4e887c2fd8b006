"""Audit: what optimum-benchmark's two thread options set.

From the root of the source tree: .peers/optimum/bin/python -m bench.peers.audit_threads
"""

from __future__ import annotations

import os

from bench.peers import optimum


def main() -> None:
    """Ask for 1 thread within an operation and 3 between operations, and print what torch has."""
    import torch
    from optimum_benchmark import PyTorchConfig  # type: ignore[import-not-found]
    from optimum_benchmark.backends.pytorch.backend import PyTorchBackend  # type: ignore[import-not-found]

    PyTorchBackend(
        PyTorchConfig(
            model=str(optimum.MODEL), task=optimum.TASK, library="transformers", device="cpu",
            intra_op_num_threads=1, inter_op_num_threads=3,
        )
    )  # fmt: skip
    print("asked for: intra_op_num_threads 1, inter_op_num_threads 3")
    print(f"torch has: intra-op {torch.get_num_threads()}, inter-op {torch.get_num_interop_threads()}")


if __name__ == "__main__":
    os.environ.update(optimum.OFFLINE)
    main()
