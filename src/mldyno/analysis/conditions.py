"""States of a machine that spoil every measurement, judged in the same way for warnings and for findings.

A condition has its threshold, message and next step in one place, `conditions`. A warning attaches it to a record; a
finding of the doctor reports it before anything is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from mldyno.units import show_bytes, show_percent

WAITING_LIMIT = 0.10  # share of the time that threads may wait for a core
CLEAR_SHARE = 0.3  # of a peak: from here on it is the bottleneck
STOLEN_LIMIT = 0.05  # share of the machine's time that the host of a virtual machine may take
SWAPPED_MEANWHILE = 1 << 20  # B
SWAP_SHARE = 0.1  # swap in use, over the memory


@dataclass(frozen=True)
class State:
    """The state of a machine at a check-up or during a measurement; None where unknown."""

    power: str = "unknown"
    low_power: bool | None = None
    translated: bool = False  # whether Python is Intel code on an Apple chip
    slowed_down: bool = False  # whether anything was slowed down for heat or power
    speed_limit: float | None = None  # the share of its speed that the CPU is held to
    swapped_meanwhile: float | None = None  # B that went to and from the disk during a measurement
    swap_used: int | None = None
    memory: int | None = None


Judged = tuple[str, str] | None  # message and next step


def conditions(state: State) -> dict[str, tuple[str, str]]:
    """Return the conditions that hold, by code, each with its message and the next step."""
    held = {}
    if state.translated:
        held["rosetta"] = (
            "this Python is Intel code that Rosetta translates; it can't use the GPU, and is slow",
            "install Python for arm64 (python.org, Homebrew in /opt/homebrew, Miniforge), and the framework in it",
        )
    if state.power == "battery":
        held["on-battery"] = "it runs on battery", "plug it in: a battery's power plan is another machine"
    if state.low_power:
        held["low-power"] = "it is in low-power mode", "switch low-power mode off"
    moved, used, memory = state.swapped_meanwhile or 0.0, state.swap_used, state.memory
    if moved >= SWAPPED_MEANWHILE:
        message = f"the machine swapped {show_bytes(moved)} meanwhile"
        held["swapping"] = message, "end other programs, or take a smaller batch"
    if used and memory and used > SWAP_SHARE * memory:
        held["swapped"] = (
            f"{show_bytes(used)} have gone from memory to the disk",
            "end other programs, and restart those that stay: what they have swapped comes back only when they need it",
        )
    limited = state.speed_limit is not None and state.speed_limit < 1
    if state.slowed_down or limited:
        limit = f", to {show_percent(state.speed_limit)} of its speed" if limited and state.speed_limit else ""
        message = f"it is slowed down for heat or power{limit}"
        held["throttled"] = message, "let it cool down, give it air and mains power"
    return held
