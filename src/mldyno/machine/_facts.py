"""What a source reports of one device, and how its words become facts: in SI units, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mldyno.records import Fact

LONGEST_NAME = 120  # characters of a name or a version
Facts = dict[str, Fact]


@dataclass(frozen=True)
class Description:
    """What a source reports of a device: what its vendor calls it, its memory in B, and facts; only what is known."""

    title: str | None = None
    memory: int | None = None
    facts: Facts = field(default_factory=dict)


def known(**facts: Fact) -> Facts:
    """The facts that are known."""
    return {name: value for name, value in facts.items() if value is not None}


def words(value: object) -> str | None:
    """A short text in one line; None for whatever else a tool may print."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    fine = 0 < len(text) <= LONGEST_NAME and text.isprintable() and "\ufffd" not in text  # what was not UTF-8
    return text if fine else None


def quantity(value: object, times: float = 1.0, over: float = 1.0) -> float | None:
    """A number over 0 in SI units, after a factor and a divisor that make it so; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value) * times / over
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < 1e18 else None


def count(value: object) -> int | None:
    """A whole number over 0; None for anything else."""
    number = quantity(value)
    return int(number) if number is not None and number == int(number) and number < 1e6 else None


def agreed(devices: Sequence[Description]) -> Facts:
    """The facts in which several devices agree: true of each of them, whichever is meant."""
    first = devices[0].facts if devices else {}
    return {name: value for name, value in first.items() if all(device.facts.get(name) == value for device in devices)}
