"""Audit: what optimum-benchmark's autocast options do on a CPU.

From the root of the source tree: .peers/optimum/bin/python -m bench.peers.audit_autocast
"""

from __future__ import annotations

import os
from typing import Any

from bench.peers import optimum


def main() -> None:
    """Ask for autocast to bfloat16, and print what is switched on and what the layers compute in."""
    import torch
    from optimum_benchmark.backends.pytorch.backend import PyTorchBackend  # type: ignore[import-not-found]

    again = {"intra_op_num_threads": None}  # torch takes the number of threads between operations only once
    autocast = {"autocast_enabled": True, "autocast_dtype": "bfloat16"}
    asked, seen = _built(PyTorchBackend(optimum.backend(**autocast)))
    print(f"asked for autocast: cpu {torch.is_autocast_enabled('cpu')}, cuda {torch.is_autocast_enabled('cuda')}")
    asked()
    print(f"linear layers gave: {', '.join(sorted(seen))}")
    meant, seen = _built(PyTorchBackend(optimum.backend(**again)))
    with torch.autocast("cpu", torch.bfloat16):
        meant()
    print(f"with torch.autocast('cpu', torch.bfloat16) they give: {', '.join(sorted(seen))}")


def _built(backend: Any) -> tuple[Any, set[str]]:
    """A step of the backend's model, and the set of types that its linear layers give."""
    import torch

    backend.load()
    network, seen = backend.pretrained_model, set[str]()
    for module in network.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _module, _inputs, output: seen.add(str(output.dtype)))
    inputs = {"input_ids": torch.randint(1, 30_000, (optimum.BATCH, optimum.SEQ))}
    return lambda: backend.forward(inputs, {}), seen


if __name__ == "__main__":
    os.environ.update(optimum.OFFLINE)
    main()
