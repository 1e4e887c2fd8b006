"""The facts of a record and of its devices: one entry each, with what its value may be.

What is written is held to its entry, and so is what comes in. A fact that is not known is null, or not there. A
record may hold facts that have no entry, of another version: any plain value, on whose type nothing may rely. The
tables of facts in docs/reference.md are held to these by a test.

Rule: standard library only, since a worker in any interpreter uses this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mldyno.printable import LONGEST_TEXT
from mldyno.units import count, digits, show_hertz

Kind = Literal["count", "number", "text", "flag"]
SMALLEST, LARGEST = 1e-30, 1e30  # what a number in a record may be, apart from 0, so that ratios stay finite
LONGEST_TIME_S = 1e9  # 30 years: beyond this no system waits
_WORDS = {"count": "a whole number", "number": "a number", "flag": "true or false", "text": "text"}
_TYPES = {"count": (int,), "number": (float, int), "flag": (bool,), "text": (str,)}


@dataclass(frozen=True)
class Entry:
    """One fact: its type, SI unit, range and wording."""

    kind: Kind
    unit: str = ""
    least: float = 0
    most: float = LARGEST
    show: Callable[[Any], str] | None = None
    """How a value is put into words; None where its name and value say it."""

    def flaw(self, value: Any) -> str:
        """What the value must be and is not; empty where it fits."""
        if type(value) not in _TYPES[self.kind]:
            return f"must be {_WORDS[self.kind]}"
        if self.kind == "flag":
            return ""
        if self.kind == "text":
            return "" if len(value) <= LONGEST_TEXT else f"is longer than {LONGEST_TEXT:,} characters"
        fits = self.least <= value <= self.most and (value == 0 or abs(value) >= SMALLEST)
        return "" if fits else f"must be {_WORDS[self.kind]} from {self.least:g} to {self.most:g}"


_COUNT, _SOME = Entry("count"), Entry("count", least=1)
_TIME, _NUMBER = Entry("number", "s", most=LONGEST_TIME_S), Entry("number", "1")
_SHARE, _FREEDOM = Entry("number", "1", most=10), Entry("number", "1", least=0.1, most=1000)
_RATE, _TEXT, _FLAG = Entry("number", "1/s"), Entry("text"), Entry("flag")
_LABEL = Entry("text", show=lambda value: "")  # says which one it is, not what it is

FACTS: Mapping[str, Entry] = {
    # the work
    "items_per_step": _SOME, "item": _TEXT, "params": _COUNT, "flops_per_step": _NUMBER,
    "bytes_per_step": Entry("number", "B"), "copied_per_step": Entry("number", "B"), "kernels_per_step": _COUNT,
    "host_syncs_per_step": _COUNT, "phases": _TEXT, "beside": _TEXT, "data": _TEXT, "end_to_end": _FLAG,
    "architecture": _TEXT, "transformers": _TEXT, "weights": _TEXT, "weights_in": _TEXT,
    "batch_per_rank": _SOME, "batch_in_all": _SOME, "nodes": _TEXT,
    "epochs": _SOME, "ended": _TEXT,
    # how it was measured
    "import_time": _TIME, "build_time": _TIME, "first_batch": _TIME, "first_step": _TIME, "wall_time": _TIME,
    "steps": _COUNT, "block_steps": _SOME, "target": _NUMBER, "warmup_steady": _FLAG, "overhead_share": _NUMBER,
    "load_time": _TIME, "issued_share": _NUMBER, "drained_share": _NUMBER, "events_share": _NUMBER,
    "fallbacks_per_step": _COUNT, "emulated": _FLAG, "convolutions": _FLAG, "late_changes": _COUNT, "fake_time": _FLAG,
    "translated": _FLAG, "step_per_reference": _NUMBER, "reference_size": _SOME,
    # what was usual on its machine
    "process_spread": _SHARE, "process_freedom": _FREEDOM, "reference_slope": Entry("number", "1", most=3),
    "reference_slope_error": _SHARE,
    "reference_usual": _TIME, "reference_error": _SHARE, "reference_freedom": _FREEDOM,
    "compile_time": _TIME, "graphs": _COUNT, "graph_breaks": _COUNT, "compile_cached": _FLAG, "recompiles": _COUNT,
    # what proves it
    "proof": _TEXT, "blas": _TEXT,
    "device_seen": _TEXT, "products_in": _TEXT, "not_checked": _TEXT, "device_peak_by": _TEXT,
    "accuracy": Entry("number", "1", most=1), "loss_first": _NUMBER, "loss_last": _NUMBER,
    "gradient_error": _NUMBER,
    # what PyTorch's wrapper for ranks says of itself
    "ddp_buckets": _TEXT, "ddp_forward_compute_time": _TIME, "ddp_backward_compute_time": _TIME,
    "ddp_backward_comm_time": _TIME, "ddp_backward_compute_comm_overlap_time": _TIME,
    # what told its energy
    "energy_scope": _TEXT, "energy_by": _TEXT, "energy_method": _TEXT, "energy_error": _SHARE, "energy_lost": _TEXT,
    "energy_others": _NUMBER,
    # peaks
    "peak_flops": _RATE, "peak_bandwidth": Entry("number", "B/s"), "peak_copy_bandwidth": Entry("number", "B/s"),
    # published figures
    "note": _TEXT,
    # commands, and copies without them
    "command": _TEXT, "private": _FLAG,
    # models of the user's own
    "restored_settings": _TEXT, "same_batch": _TEXT, "inference_without": _TEXT, "loss_in_inference": _FLAG,
    "draws_random": _FLAG,
}  # fmt: skip
NAMED: Mapping[str, Entry] = {"_items": _SOME, "_loss_first": _NUMBER, "_loss_last": _NUMBER}
"""Facts of a phase, or of a check of a workload's own, by what follows its name."""
DEVICE_FACTS: Mapping[str, Entry] = {
    "driver": _TEXT, "kernel_driver": _TEXT,
    "power_limit": Entry("number", "W", show=lambda value: f"at most {digits(value)} W"),
    "clock": Entry("number", "1/s", show=lambda value: f"up to {show_hertz(value)}"),
    "memory_clock": Entry("number", "1/s", show=lambda value: f"memory at up to {show_hertz(value)}"),
    "cores": _COUNT, "performance_cores": _COUNT, "efficiency_cores": _COUNT,
    "threads": _COUNT, "governor": _TEXT, "compute_capability": _TEXT, "multiprocessors": _COUNT,
    "compute_units": _COUNT, "uuid": _LABEL, "pci_bus": _LABEL, "pci_product": _LABEL,
}  # fmt: skip

_ANY_NUMBER = Entry("number", least=-LARGEST)
_OF_TYPE: Mapping[type, Entry] = {str: _TEXT, bool: _FLAG, int: _ANY_NUMBER, float: _ANY_NUMBER}


def flaw(entries: Mapping[str, Entry], name: str, value: Any) -> str:
    """Return why a fact can't be what it is; empty where it can."""
    if value is None:
        return ""
    entry = entries.get(name) or next((NAMED[end] for end in NAMED if name.endswith(end)), None)
    return (entry or _OF_TYPE[type(value)]).flaw(value)


def flaws(entries: Mapping[str, Entry], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts that can't be what they are, each with the reason."""
    return {name: wrong for name, value in facts.items() if (wrong := flaw(entries, name, value))}


def in_words(entries: Mapping[str, Entry], name: str, value: Any) -> str:
    """Put a fact into words: driver 535.104.05, 12 performance cores; empty where there is nothing to say."""
    entry, spoken = entries.get(name), name.replace("_", " ")
    if entry is not None and entry.show is not None and value is not None:
        return entry.show(value)
    if isinstance(value, str):
        return f"{spoken} {value}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return count(int(value), spoken.removesuffix("s")) if is_number else ""
