"""Single kernels: how fast a device computes, and how fast its memory and the transfer to it are. Infer only.

matmul: A matmul of two square matrices: how fast the device computes at all
copy: A copy of bytes: how fast the device's memory is, and the transfer between it and the host

In matmul, the batch is the size n: an (n, n) input times an (n, n) buffer, both random and normal.
In copy, the batch is the size in MiB of random bytes. Placement `device` copies them into a buffer on the same
device; what is moved is counted once, though it is read and written. With `host` the transfer to the
device is all the work, with `roundtrip` that and the transfer back.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Recipe, Workload

SIZE = 1024
MEBIBYTES, MEBIBYTE = 64, 2**20
WORD = 8  # bytes copied as one number: single ones take twice the time on a CPU


def matmul(torch: ModuleType, case: Case) -> Recipe:
    """Return the recipe for PyTorch."""
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
    """Count a multiplication and an addition for each of n times n times n."""
    return 2.0 * (case.batch or SIZE) ** 3


MATMUL = Workload(
    name="matmul", title="Matmul", version=1, item="row", batch=SIZE, params=0, flops=flops,
    build={"torch": matmul}, modes=("infer",),
)  # fmt: skip


def copy(torch: ModuleType, case: Case) -> Recipe:
    """Return the recipe for PyTorch."""
    nn, size = torch.nn, (case.batch or MEBIBYTES, MEBIBYTE // WORD)
    crosses = case.placement in ("host", "roundtrip")
    if crosses and case.device == "cpu":
        raise NotImplementedError(
            "nothing is copied between the host and its own CPU; placement device can be measured"
        )

    class Copy(nn.Module):  # type: ignore[name-defined,misc]
        """Copies its input into a buffer."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("place", torch.zeros(size, dtype=torch.int64))

        def forward(self, x: Any) -> Any:
            return self.place.copy_(x)

    class Handover(nn.Module):  # type: ignore[name-defined,misc]
        """Hands its input on; its buffer only shows on which device it lies."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("place", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            return x

    def draw() -> tuple[Any, Any]:
        """Draw integers, which no precision makes smaller; a right copy is equal to them."""
        data = torch.randint(-(2**62), 2**62, size)
        return data, data

    return Recipe(
        network=Handover() if crosses else Copy(),
        draw=draw,
        loss=nn.functional.l1_loss,
        optimiser=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    )


COPY = Workload(
    name="copy", title="Copy", version=1, item="B", batch=MEBIBYTES, params=0, flops=lambda case: 0.0,
    count=lambda case: (case.batch or MEBIBYTES) * MEBIBYTE, build={"torch": copy}, modes=("infer",),
)  # fmt: skip


WORKLOADS = {"matmul": MATMUL, "copy": COPY}
