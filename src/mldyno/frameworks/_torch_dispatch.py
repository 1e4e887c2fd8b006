"""The class of modes that see every operation of PyTorch, without its compiler."""

from __future__ import annotations

import sys
from typing import Any


def mode_class() -> Any:
    """PyTorch's TorchDispatchMode. Its own subclasses import the compiler, in 1 to 2 s, used or not."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        """Kept out of the compiler's way only where there is one."""

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return "torch._dynamo" in sys.modules

    return Mode
