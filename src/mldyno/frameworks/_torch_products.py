"""Products of matrices, convolutions and the like, seen as they reach the device: where they ran, and in which type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# Products that PyTorch's flop counter does not know: some come whole where nothing is recorded for gradients,
# some devices have them as one kernel.
WHOLE = (
    "linear", "matmul", "einsum", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "lstm",
    "mkldnn_rnn_layer", "_cudnn_rnn", "_lstm_mps", "_thnn_fused_lstm_cell",
)  # fmt: skip


@contextmanager
def watched(torch: ModuleType) -> Iterator[Counter[tuple[str, str]]]:
    """How many products run meanwhile, by device and by the type of the numbers that go in.

    Behind autocast, which has cast these by then; the products of the backward pass count too.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    found: Counter[tuple[str, str]] = Counter()
    names = {*WHOLE, *(packet.__name__ for packet in flop_registry)}

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        """Sees every operation on its way to the device."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in names:
                given = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
                given = [one for one in given if one.is_floating_point()] or given
                found.update((str(one.device), str(one.dtype).removeprefix("torch.")) for one in given[:1])
            return func(*args, **(kwargs or {}))

    with Watch():
        yield found
