"""Settings of a measurement: each is a field of `Settings` with an entry.

The options of commands, the keywords of Python and the keys of suites follow from the entries. A plan holds the values.
Times are in s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mldyno.axes import LARGEST_WHOLE, axis_named
from mldyno.errors import UsageError, unknown
from mldyno.units import parse_duration, parse_fraction, parse_price

DATA = ("auto", "real", "synthetic")
CHECKS = ("learned", "agrees")  # that a user may omit for their own model
MOST_REPEATS = 1000


@dataclass(frozen=True)
class Setting:
    """The entry of one setting."""

    help: str
    read: Callable[[Setting, Any], Any]  # return the value that a user means; raise UsageError where there is none
    usual: str = ""  # the default, for the help
    metavar: str = ""
    values: tuple[str, ...] = ()  # all values, if they are a closed list of words
    most: int | None = None  # the largest whole number allowed; None for the limit of records
    in_suites: bool = True
    keyword: str = ""  # its name as an option and in Python, if not the field's
    name: str = ""

    def parse(self, value: Any) -> Any:
        """Return the value of what a user typed, or gave in Python."""
        return self.read(self, value)


def quantity(parse: Callable[[str], float]) -> Callable[[Setting, Any], float]:
    """Return a reader of numbers with a unit; floats are in the SI unit."""

    def read(setting: Setting, value: Any) -> float:
        if isinstance(value, float):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(f"{setting.name} must be a number, or text such as '60s' or '2%'.")
        if isinstance(value, int) and abs(value) >= LARGEST_WHOLE:
            raise UsageError(f"{setting.name} has a whole number beyond 2^53; write a smaller one.")
        return parse(str(value))

    return read


def whole_number(setting: Setting, value: Any) -> int:
    """Read a whole number from 1 on."""
    if type(value) is not int:
        raise UsageError(f"{setting.name} must be a whole number.")
    most = setting.most or LARGEST_WHOLE - 1
    if not 0 < value <= most:
        raise UsageError(f"--{setting.name} must be between 1 and {most:,}.")
    return value


def word(setting: Setting, value: Any) -> str:
    """Read a word, one of the entry's values if it has any."""
    if not isinstance(value, str):
        raise UsageError(f"{setting.name} must be a word.")
    if setting.values and value not in setting.values:
        raise unknown(setting.name, value, setting.values)
    return value


def axis(setting: Setting, value: Any) -> str:
    """Read the name of an axis."""
    return axis_named(word(setting, value))


def checks(setting: Setting, value: Any) -> tuple[str, ...]:
    """Read checks to omit: one, or a list."""
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    return names


def price(setting: Setting, value: Any) -> str:
    """Read what this machine costs."""
    return str(parse_price(word(setting, value)))


def flag(setting: Setting, value: Any) -> bool:
    """Read a flag."""
    if type(value) is not bool:
        raise UsageError(f"{setting.name} must be true or false.")
    return value


def _setting(default: Any, help: str, read: Callable[[Setting, Any], Any], **entry: Any) -> Any:  # as options call it
    return field(default=default, metadata={"setting": Setting(help, read, **entry)})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The precision and the duration with which each case is measured."""

    steps: int | None = _setting(None, "Run exactly this many steps instead of stopping at the target.", whole_number)
    budget: float = _setting(
        60.0, "Measure each case for at most this long, over all its processes.", quantity(parse_duration), usual="60s",
        metavar="TIME")  # fmt: skip
    target: float = _setting(
        0.02, "Stop at this relative CI half-width.", quantity(parse_fraction), usual="2%",
        metavar="SHARE")  # fmt: skip
    repeats: int | None = _setting(
        None, "Measure each case in this many fresh processes.", whole_number, usual="3 or more", most=MOST_REPEATS
    )
    energy: bool = _setting(False, "Also measure the energy of a step, where a sensor reports it.", flag)
    timeout: float | None = _setting(
        None, "Stop a case that takes longer than this in all.", quantity(parse_duration), usual="15m", metavar="TIME"
    )
    limit: float | None = _setting(
        None, "Start no further case after this long in all.", quantity(parse_duration), metavar="TIME"
    )
    data: str = _setting("auto", "Data set for placement loader: real, synthetic, or what there is.", word, values=DATA)
    by: str | None = _setting(None, "Compare the cases along this axis at the end.", axis, metavar="AXIS")
    price: str | None = _setting(
        None, "What this machine costs, such as '0.80 EUR/h', for the price of steps.", price, metavar="PRICE",
        in_suites=False)  # fmt: skip
    unchecked: tuple[str, ...] = _setting(
        (), "Checks to omit for your own model: learned, agrees.", checks, metavar="LIST", in_suites=False,
        keyword="no_check")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """Settings of a run that its plan does not hold: how its targets are read, and where other machines join it."""

    rendezvous: str | None = _setting(
        None, "With --nodes: this machine's address, where others join.", word, metavar="HOST:PORT", in_suites=False
    )
    against: str | None = _setting(
        None, "Compare your file with an older version of it.", word, metavar="REV|FILE", in_suites=False
    )
    trust: bool = _setting(
        False, "Let a suite, or a run begun elsewhere, run code that it names.", flag, in_suites=False
    )
    weights: bool = _setting(False, "For hf: models, use the trained weights, not random ones.", flag, in_suites=False)
    download: bool = _setting(False, "For hf: models, fetch what is not here yet.", flag, in_suites=False)


SETTINGS: dict[str, Setting] = {
    entry.name: replace(setting, name=entry.name, keyword=setting.keyword or entry.name)
    for entry in fields(RunSettings) for setting in (entry.metadata["setting"],)
}  # fmt: skip
OF_PLANS = tuple(entry.name for entry in fields(Settings))
IN_SUITES = tuple(name for name, setting in SETTINGS.items() if setting.in_suites)
_BY_KEYWORD = {setting.keyword: setting for setting in SETTINGS.values()}


def axes_and_settings(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keywords or options of a call into axes and settings; omit those that are None."""
    given = {name: value for name, value in options.items() if value is not None}
    axes = {name: value for name, value in given.items() if name not in _BY_KEYWORD}
    return axes, {_BY_KEYWORD[name].name: value for name, value in given.items() if name in _BY_KEYWORD}


def parsed(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings that are given, each as its entry reads it."""
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    return {name: SETTINGS[name].parse(value) for name, value in given.items()}
