"""Matmuls, convolutions and the like, watched as they reach the device: where they ran, and in which type.

In this file and those beside it, "matmuls" means all of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from mldyno.frameworks._torch_dispatch import mode_class

# Those that PyTorch's flop counter does not know: some come whole where nothing is recorded for gradients,
# some devices have them as one kernel.
COMPOSITE = (
    "linear", "matmul", "einsum", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "lstm",
    "mkldnn_rnn_layer", "_cudnn_rnn", "_lstm_mps", "_thnn_fused_lstm_cell",
)  # fmt: skip


@contextmanager
def watch_matmuls(torch: ModuleType) -> Iterator[Counter[tuple[str, str]]]:
    """How many matmuls run meanwhile, by device and by the type of the numbers that go in.

    Behind autocast, which has cast these by then; those of the backward pass count too.
    """
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    counts: Counter[tuple[str, str]] = Counter()
    names = {*COMPOSITE, *(packet.__name__ for packet in flop_registry)}

    class Watch(mode_class()):  # type: ignore[misc]
        """Sees every operation on its way to the device."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in names:
                inputs = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
                inputs = [tensor for tensor in inputs if tensor.is_floating_point()] or inputs
                counts.update((str(tensor.device), str(tensor.dtype).removeprefix("torch.")) for tensor in inputs[:1])
            return func(*args, **(kwargs or {}))

    with Watch():
        yield counts
