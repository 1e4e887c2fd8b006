"""A bare script that trains a workload's model and prints its peak memory in B, for figure 9.

python bench/bare_training.py '{"workload": "mlp", "batch": 8}' 4
"""

from __future__ import annotations

import itertools
import json
import sys

import torch

from mldyno import plugins
from mldyno.hardware.system import peak_resident
from mldyno.records import Case

BATCHES = 4


def main() -> None:
    """Build, draw the batches, train, print."""
    case = Case(**json.loads(sys.argv[1]))
    recipe = plugins.workload(case.workload).build["torch"](torch, case)
    network = recipe.network.train()
    optimiser = recipe.optimiser(network.parameters())
    batches = itertools.cycle([recipe.draw() for _ in range(BATCHES)])
    for inputs, targets in itertools.islice(batches, int(sys.argv[2])):
        recipe.loss(network(inputs), targets).backward()
        optimiser.step()
        optimiser.zero_grad()
    print(peak_resident())


if __name__ == "__main__":
    main()
