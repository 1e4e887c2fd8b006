"""Asks NVIDIA's library for its cards and prints them as JSON. Run by its path, as a process of its own.

So a driver that hangs or crashes takes nothing with it but this process, which has a time limit.
Standard library only, and the package nvidia-ml-py, whose module is called pynvml.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any


def cards(nvml: Any) -> list[dict[str, Any]]:
    """All cards that the library `nvml` knows, in its order, each with what it reports; in W, 1/s and B."""
    nvml.nvmlInit()
    try:
        driver = _answer(nvml.nvmlSystemGetDriverVersion)
        handles = [
            _answer(partial(nvml.nvmlDeviceGetHandleByIndex, index)) for index in range(nvml.nvmlDeviceGetCount())
        ]
        return [{"driver": driver, **_card(nvml, handle)} for handle in handles if handle is not None]
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, handle: Any) -> dict[str, Any]:
    return {
        "name": _answer(lambda: nvml.nvmlDeviceGetName(handle)),
        "uuid": _answer(lambda: nvml.nvmlDeviceGetUUID(handle)),
        "pci_bus": _answer(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId),
        "power_limit": _answer(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),  # from mW
        "clock": _answer(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),  # from MHz
        "memory_clock": _answer(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6),
        "memory": _answer(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
    }


def _answer(ask: Callable[[], Any]) -> Any:
    """An answer; None where this card does not give it. Older versions give text as bytes."""
    try:
        answer = ask()
    except Exception:
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


if __name__ == "__main__":
    import pynvml

    sys.stdout.write(json.dumps(cards(pynvml)))
