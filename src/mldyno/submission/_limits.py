"""What no device can do, however it was measured: upper limits, generous on purpose.

On a CPU: its cores, at 6.5 GHz, with two units of 512 bits for fused multiply-adds each (64 operations a cycle in fp32,
32 in fp64), or matrix units as AMX in half precision (2,048). Apple's matrix units do up to 4 TFLOP/s more, whatever
the number of cores. On an accelerator: about twice what the fastest of its class does on paper, without sparsity.
"""

from __future__ import annotations

import re

from mldyno.records import Record

CLOCK_HZ = 6.5e9
OF_CYCLE = {"fp64": 32.0, "fp32": 64.0, "tf32": 64.0, "half": 2048.0}  # operations, of a core
APPLE_FLOPS = 4e12  # of a cluster's matrix units, in fp32
MOST_CORES, UNKNOWN_CORES = 2048, 256
CLASSES = (
    ("cuda", r"geforce|\brtx\b|\bgtx\b|quadro|titan", {"fp64": 5e12, "fp32": 2e14, "tf32": 5e14, "half": 1e15}),
    ("mps", "", {"fp64": 1e13, "fp32": 1e14, "tf32": 1e14, "half": 3e14}),
    ("xpu", "", {"fp64": 1e14, "fp32": 2e14, "tf32": 1e15, "half": 2e15}),
    ("", "", {"fp64": 3e14, "fp32": 4e14, "tf32": 2.5e15, "half": 5e15}),
)  # of accelerators: kind, words in the vendor's name, FLOP/s; the first that fits
CPU_BYTES_PER_S, ACCELERATOR_BYTES_PER_S = 1e13, 1e14  # copies that a cache may hold


def flops(record: Record) -> float:
    """Return the most operations a second that all devices of a case can do."""
    case, machine = record.case, record.machine
    precision = case.precision or "fp32"
    kind = precision if precision in OF_CYCLE else "half"
    if case.device == "cpu":
        cores = min(machine.cores or UNKNOWN_CORES, MOST_CORES)
        apple = APPLE_FLOPS * (2 if kind == "half" else 1) if machine.system == "Darwin" else 0.0
        return case.nodes * (cores * CLOCK_HZ * OF_CYCLE[kind] + apple)
    device = case.device.partition(":")[0]
    titles = " ".join(each.title for each in machine.devices if each.name.partition(":")[0] == device).lower()
    known = next(most for name, words, most in CLASSES if name in ("", device) and re.search(words, titles))
    return (case.ranks or 1) * known[kind]


def bytes_per_s(record: Record) -> float:
    """Return the most that a device can copy in a second."""
    return CPU_BYTES_PER_S if record.case.device == "cpu" else ACCELERATOR_BYTES_PER_S
