"""A bare script for torchrun that trains a workload's model with DistributedDataParallel, for figure 14.

torchrun --nproc-per-node 2 bench/bare_ranks.py '{"workload": "mnist-mlp", "batch": 64}' 10
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mldyno import plugins
from mldyno.records import Case

BATCHES = 4
BLOCK_S = 0.2


def main() -> None:
    """Warm up, then time blocks for so many s; the first rank prints the median time of a step, by the slowest rank."""
    dist.init_process_group("gloo")
    case = Case(**json.loads(sys.argv[1]))
    recipe = plugins.workload(case.workload).build["torch"](torch, case)
    network = DistributedDataParallel(recipe.network.train())
    optimiser = recipe.optimiser(network.parameters())
    batches = itertools.cycle([recipe.draw() for _ in range(BATCHES)])

    def block(steps: int) -> float:
        dist.barrier()
        began = time.perf_counter()
        for inputs, targets in itertools.islice(batches, steps):
            recipe.loss(network(inputs), targets).backward()
            optimiser.step()
            optimiser.zero_grad()
        slowest = torch.tensor(time.perf_counter() - began)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return float(slowest) / steps

    block(3)
    steps = max(1, round(BLOCK_S / block(5)))
    times, ends = [], time.monotonic() + float(sys.argv[2])
    going = torch.tensor(1)
    while int(going):
        times.append(block(steps))
        going = torch.tensor(int(time.monotonic() < ends))
        dist.broadcast(going, 0)
    if dist.get_rank() == 0:
        print(sorted(times)[len(times) // 2], flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo may outlive the group, and abort an interpreter that takes its time to end


if __name__ == "__main__":
    main()
