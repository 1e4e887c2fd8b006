"""A matmul of two square matrices: how fast the device computes at all.

The batch is the size n: an (n, n) input times an (n, n) buffer, both random and normal. Infer only.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Recipe, Workload

SIZE = 1024


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    nn, size = torch.nn, case.batch or SIZE

    class Product(nn.Module):  # type: ignore[name-defined,misc]
        """The input times a matrix that is no parameter."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.randn(size, size))

        def forward(self, x: Any) -> Any:
            return x @ self.factor

    return Recipe(
        network=Product(),
        draw=lambda: (torch.randn(size, size), torch.randn(size, size)),
        loss=nn.functional.mse_loss,
        optimiser=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    )


def flops(case: Case) -> float:
    """A multiplication and an addition for each of n times n times n."""
    return 2.0 * (case.batch or SIZE) ** 3


WORKLOAD = Workload(
    name="matmul", title="Matmul", version=1, item="row", batch=SIZE, params=0, flops=flops,
    build={"torch": torch}, modes=("infer",),
)  # fmt: skip
