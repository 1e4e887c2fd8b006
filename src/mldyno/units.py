"""Units and intervals: parse what a user types into SI base units, and show quantities as a person reads them.

Everywhere else a quantity is in s, B, J, W, 1/s or 1/J. Only this module knows ms and GiB, and only this module
formats a number with its interval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mldyno.errors import UsageError

UNITS = ("s", "B", "J", "W", "1/s", "1/J", "1")
PERIODS = {"s": ("second", 1.0), "min": ("minute", 60.0), "h": ("hour", 3600.0), "day": ("day", 86_400.0)}
"""Periods of a rate, where it is shown: in words, and in s."""

LARGEST_LOG = 700.0  # its exponential and the inverse of that are finite and over 0

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_NUMBER = re.compile(r"^\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-zµ%]*)\s*$")
_DAYS_AGO = {"today": 0, "yesterday": 1}
_HOURS = {"h": 1, "d": 24, "w": 168}
_AGO = re.compile(r"^(\d{1,5})\s*([hdw])$")

N = TypeVar("N", bound="Interval")


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % confidence interval; both ends are None where the data gives none."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def around(cls: type[N], value: float, half_width: float | None, **fields: Any) -> N:
        """Return the number with a symmetric interval; without one where the half-width is None or infinite."""
        if half_width is None or not math.isfinite(half_width):
            return cls(value, **fields)
        return cls(value, value - half_width, value + half_width, **fields)

    @classmethod
    def of_logs(cls: type[N], centre: float, half_width: float, **fields: Any) -> N:
        """Return the exponential of a logarithm with a symmetric interval."""
        value = math.exp(centre)
        if not math.isfinite(half_width):
            return cls(value, **fields)
        low, high = max(centre - half_width, -LARGEST_LOG), min(centre + half_width, LARGEST_LOG)
        return cls(value, math.exp(low), math.exp(high), **fields)

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends; None where there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def inverse(self) -> Interval:
        """1 over the number; an end of 0 has no inverse, and gives no interval."""
        return self._each(lambda number: 1 / number) if self.low and self.high else Interval(1 / self.value)

    @property
    def complement(self) -> Interval:
        return self._each(lambda number: 1 - number)

    def scaled_by(self, factor: float) -> Interval:
        """Return the number and its ends times a factor over 0."""
        return self._each(lambda number: number * factor)

    def clipped(self, low: float, high: float) -> Interval:
        """Return the number and its ends moved into a range."""
        return self._each(lambda number: min(high, max(low, number)))

    def _each(self, change: Callable[[float], float]) -> Interval:
        """Return the number and its ends, changed and in order."""
        return Interval(change(self.value), *sorted(map(change, self.ends or ())))


def _parse(text: str, kind: str, factors: dict[str, float], plain: float, example: str) -> float:
    match = _NUMBER.match(text)
    unit = match.group(2) if match else ""
    if match is None or (unit and unit not in factors):
        raise UsageError(f"'{text}' is not a {kind}; write it as {example} (units: {', '.join(factors)}).")
    value = float(match.group(1)) * (factors[unit] if unit else plain)
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"'{text}' is not a {kind}: it must be more than 0 and finite.")
    return value


def parse_duration(text: str) -> float:
    """Return seconds from `60s`, `2m`, `500ms`, or a bare number of seconds."""
    return _parse(text, "duration", _SECONDS, 1.0, "60s, 2m or 500ms")


def parse_fraction(text: str) -> float:
    """Return a fraction from `2%` or `0.02`; it must lie under 1."""
    value = _parse(text, "fraction", {"%": 0.01}, 1.0, "2% or 0.02")
    if value >= 1:
        raise UsageError(f"'{text}' is 100 % or more; write it as 2% or 0.02.")
    return value


@dataclass(frozen=True)
class Price:
    """What a machine costs: so much of a currency an hour."""

    per_hour: float
    currency: str  # its code of three letters, as in ISO 4217

    def __str__(self) -> str:
        return f"{self.per_hour:.12g} {self.currency}/h"


_PRICE = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([A-Za-z]{3})\s*/\s*(s|min|h|day)\s*")


def parse_price(text: str) -> Price:
    """Return the price that `0.80 EUR/h` or `19 USD/day` means; it must be more than 0."""
    match = _PRICE.fullmatch(text)
    if match is None:
        example = "write it as '0.80 EUR/h': a number, the three letters of a currency, and s, min, h or day"
        raise UsageError(f"'{text[:40]}' is not a price; {example}.")
    amount = float(match[1]) * PERIODS["h"][1] / PERIODS[match[3]][1]
    if amount <= 0:
        raise UsageError(f"'{text[:40]}' is not a price: it must be more than 0; without a price omit it.")
    return Price(amount, match[2].upper())


def parse_bytes(text: str) -> int:
    """Return bytes from `2GiB`, `500MB`, or a bare number of bytes."""
    return int(_parse(text, "size", {k: float(v) for k, v in _BYTES.items()}, 1.0, "2GiB or 500MB"))


def parse_since(text: str, now: float) -> str:
    """Return the moment that `yesterday`, `3d` or `2026-11-01` means, in UTC; `now` is in s since 1970."""
    from datetime import datetime, timedelta, timezone

    word, moment = text.strip().lower(), datetime.fromtimestamp(now, timezone.utc)
    ago = _AGO.match(word)
    try:
        if word in _DAYS_AGO:
            moment = datetime(moment.year, moment.month, moment.day) - timedelta(days=_DAYS_AGO[word])
        elif ago:
            moment -= timedelta(hours=int(ago.group(1)) * _HOURS[ago.group(2)])
        else:
            moment = datetime.fromisoformat(word.replace("z", "+00:00"))
            moment = moment if moment.tzinfo is None else moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise UsageError(f"'{text[:40]}' is not a time; write it as yesterday, 3d, 12h or 2026-11-01.") from None
    return moment.isoformat()[:19]


def digits(value: float, error: float | None = None, most: int = 3) -> str:
    """Return the value with the significant digits that its error justifies, at most `most`, at least two."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    count = most
    if error:
        count = max(2, min(most, math.ceil(-math.log10(abs(error / value))) + 1))
    decimals = count - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    return f"{rounded:,.{max(0, decimals)}f}"


Scale = tuple[float, str]  # the factor of a unit, and its name
_TIME_STEPS = ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"))
_BYTE_STEPS = ((2**10, 1.0, "B"), (2**20, 2**10, "KiB"), (2**30, 2**20, "MiB"))
_ENERGY_STEPS = ((1e-3, 1e-6, "µJ"), (1.0, 1e-3, "mJ"), (1e4, 1.0, "J"))
_SCALES: Mapping[str, tuple[tuple[tuple[float, float, str], ...], Scale]] = {
    "s": (_TIME_STEPS, (3600.0, "h")), "B": (_BYTE_STEPS, (2.0**30, "GiB")), "J": (_ENERGY_STEPS, (1e3, "kJ")),
}  # fmt: skip
NARROW_FACTOR = 0.1  # a factor with a narrower interval has as many decimals as its ends
WIDEST_FACTOR = 100.0  # times a factor: an interval that ends beyond it is not shown
MOST_DECIMALS = 5  # to distinguish an end of an interval from 1, or from 0
LARGEST_READABLE = 10_000.0  # below this a number is read without counting its digits


def scale_of(value: float, unit: str) -> Scale:
    """Return the unit in which a person reads a value: ms, min, MiB, mJ; /s as it is."""
    steps, last = _SCALES.get(unit, ((), (1.0, unit)))
    factor, name = next(((factor, name) for top, factor, name in steps if abs(value) < top), last)
    return factor, name.removeprefix("1") if name.startswith("1/") else name


def common_scale(values: Sequence[float], unit: str) -> Scale | None:
    """Return the unit of the smallest of these values, if all can be read in it; None where they lie too far apart."""
    known = [value for value in values if value > 0]
    if not known:
        return None
    factor, name = scale_of(min(known), unit)
    return (factor, name) if max(known) / factor < LARGEST_READABLE else None


def show_seconds(value: float, error: float | None = None) -> str:
    """Return a duration as a person reads it: 2.31 ms, 14.2 s, 3.4 min."""
    return show(value, "s", error)


def show_bytes(value: float) -> str:
    """Return a size as a person reads it: 312 MiB, 1.4 GiB."""
    return show(value, "B")


def show_hertz(value: float) -> str:
    """Return a clock as a person reads it: 1.59 GHz, 405 MHz."""
    return f"{digits(value / 1e9)} GHz" if value >= 1e9 else f"{digits(value / 1e6)} MHz"


def show(value: float, unit: str, error: float | None = None, scale: Scale | None = None) -> str:
    """Return a value of any of the product's units as a person reads it, or in the unit that is asked for."""
    factor, name = scale or scale_of(value, unit)
    shown = digits(value / factor, None if error is None else error / factor)
    return shown if unit == "1" else f"{shown} {name}"


def count(number: int, noun: str) -> str:
    """Return a number of things: 1 record, 12,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


Form = Literal["", "x", "%"]
_NEUTRAL: Mapping[Form, float] = {"x": 1.0, "%": 0.0}  # no difference, no share


def show_interval(number: Interval, form: Form = "", decimals: int | None = None) -> str:
    """Show a number with its interval: a factor as 1.3x (1.02-1.7), a share as 38 % (35-41), else 103 (92-114)."""
    return " ".join(filter(None, interval_parts(number, form, decimals)))


def interval_parts(number: Interval, form: Form = "", decimals: int | None = None) -> tuple[str, str]:
    """Return the number and its interval as texts; the second is empty where there is no interval.

    Both have the digits that the interval justifies, unless `decimals` are given. An end of a factor is never rounded
    to 1, nor one of a share to 0.
    """
    scale, sign = (100, " %") if form == "%" else (1, form)
    value = number.value * scale
    if number.ends is None:
        return (show_percent(number.value) if form == "%" else f"{digits(value)}{sign}"), ""
    low, high = (end * scale for end in number.ends)
    if form == "x" and high > WIDEST_FACTOR * value:
        return f"{digits(value, value)}x", "(±100 % or more)"
    if decimals is not None:
        text, ends = f"{value:,.{decimals}f}", [f"{end:,.{decimals}f}" for end in (low, high)]
    else:
        text, places = _justified(value, low, high, form)
        ends = [_not_neutral(end, places, form) for end in (low, high)]
    return f"{text}{sign}", f"({ends[0]}{' to ' if low < 0 else '-'}{ends[1]})"


def _justified(value: float, low: float, high: float, form: Form) -> tuple[str, int]:
    """Show a value with the digits that its interval justifies; and return how many decimals that are."""
    half_width = (high - low) / 2
    text = digits(value, half_width, most=2 if form == "%" else 3)
    places = _decimals(text)
    if half_width:
        places = min(places, _decimals(digits(half_width, most=2)))
    if half_width and form == "%":  # two digits may be too few
        apart = (number for number in range(places, places + 3) if f"{low:.{number}f}" != f"{high:.{number}f}")
        places = next(apart, places)
    if form == "x" and (low > 1 or high < 1) and high - low < NARROW_FACTOR:
        places = max(_decimals(_not_neutral(each, places, form)) for each in (value, low, high))
    return f"{value:,.{places}f}" if places else text, places


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


def _not_neutral(value: float, decimals: int, form: Form) -> str:
    """Show a value with these decimals, or as many more as distinguish it from no difference or no share."""
    texts = [f"{value:,.{number}f}" for number in range(decimals, max(decimals, MOST_DECIMALS) + 1)]
    return next((text for text in texts if float(text.replace(",", "")) != _NEUTRAL.get(form)), texts[0])


def show_percent(fraction: float) -> str:
    """Return a fraction in percent with two significant digits: 1.8 %, 0.052 %, 0 %."""
    return "under 0.01 %" if 0 < abs(fraction) < 0.0001 else f"{digits(100 * fraction, most=2)} %"


def show_error(value: float, half_width: float | None) -> str:
    """Show the relative error of a value, to follow it: ' ±1.8 %'; empty where it is unknown."""
    if half_width is None or value <= 0:
        return ""
    return " ±100 % or more" if half_width >= value else f" ±{show_half_width(half_width / value)}"


def show_half_width(fraction: float) -> str:
    """Show a relative half-width, at least 0.01 %: no clock is more precise."""
    return "0.01 %" if fraction < 0.0001 else show_percent(fraction)
