"""Units are read strictly and shown as a person reads them."""

from __future__ import annotations

import math

import pytest

from mldyno.errors import UsageError
from mldyno.units import (
    Interval,
    digits,
    interval_parts,
    parse_bytes,
    parse_duration,
    parse_fraction,
    parse_since,
    show,
    show_error,
    show_interval,
    show_percent,
    show_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("2m", 120.0), ("500ms", 0.5), ("1.5", 1.5), ("1h", 3600.0), ("3 us", 3e-6)]
)
def test_a_duration_is_read_in_any_usual_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "10 parsecs", "-3s", "0s", "nan", "inf", "1e999s"])
def test_a_bad_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(text)


def test_a_fraction_is_read_with_and_without_percent() -> None:
    assert parse_fraction("2%") == parse_fraction("0.02") == pytest.approx(0.02)


@pytest.mark.parametrize("text", ["100%", "2", "0%", "two"])
def test_a_fraction_of_one_or_more_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_fraction(text)


def test_sizes_know_binary_and_decimal_units() -> None:
    assert parse_bytes("2GiB") == 2 << 30
    assert parse_bytes("2GB") == 2 * 10**9


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5e-9, "2.50 ns"),
        (1.234e-3, "1.23 ms"),
        (0.5, "500 ms"),
        (63.0, "63.0 s"),
        (7200.0, "2.00 h"),
        (149, "2.48 min"),
    ],
)
def test_seconds_are_shown_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(123.456, 0.1, "123"), (123.456, 30.0, "120"), (0.0123456, 1e-5, "0.0123"), (1.0, 0.04, "1.00")],
)
def test_a_number_has_the_digits_that_its_error_justifies(value: float, error: float, text: str) -> None:
    assert digits(value, error) == text


def test_sizes_and_rates_are_shown_with_their_units() -> None:
    assert show(3 * 2**30, "B") == "3.00 GiB"
    assert show(1500.0, "1/s") == "1,500 /s"


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.018, "1.8 %"), (0.12, "12 %"), (0.00052, "0.052 %"), (0.00001, "under 0.01 %"), (0.0, "0 %"), (1.0, "100 %")],
)
def test_a_share_is_shown_as_small_as_it_is(fraction: float, text: str) -> None:
    assert show_percent(fraction) == text


def test_an_error_stands_behind_its_value_and_never_shows_a_row_of_noughts() -> None:
    assert show_error(2.0, 0.036) == " ±1.8 %"
    assert show_error(2.0, 1e-17) == " ±0.01 %"
    assert show_error(2.0, None) == ""


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("today", "2026-11-17T00:00:00"),
        ("yesterday", "2026-11-16T00:00:00"),
        ("3d", "2026-11-14T12:30:00"),
        ("12 h", "2026-11-17T00:30:00"),
        ("2w", "2026-11-03T12:30:00"),
        ("2026-11-01", "2026-11-01T00:00:00"),
        ("2026-11-01 09:15", "2026-11-01T09:15:00"),
        ("2026-11-01T09:15:00+02:00", "2026-11-01T07:15:00"),
        ("2026-11-01T09:15:00Z", "2026-11-01T09:15:00"),
    ],
)
def test_a_moment_is_read_as_a_day_a_date_or_a_time_ago(text: str, moment: str) -> None:
    assert parse_since(text, 1_794_918_600.0) == moment  # 2026-11-17 12:30 UTC


@pytest.mark.parametrize("text", ["", "soon", "3", "3 parsecs", "2026-13-01", "-3d", "123456d"])
def test_what_is_no_moment_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time; write it as yesterday, 3d, 12h or 2026-11-01"):
        parse_since(text, 1_794_918_600.0)


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.3, 1.02, 1.7, "1.3x (1.02-1.7)"),
        (1.3, 1.004, 1.7, "1.3x (1.004-1.7)"),
        (1.16, 1.0003, 1.3, "1.2x (1.0003-1.3)"),
        (1.008, 1.004, 1.012, "1.008x (1.004-1.012)"),
        (1.06, 1.05, 1.07, "1.06x (1.05-1.07)"),
        (0.77, 0.6, 0.98, "0.77x (0.60-0.98)"),
        (0.8, 0.5, 0.996, "0.80x (0.50-0.996)"),
        (1.02, 0.94, 1.11, "1.02x (0.94-1.11)"),
        (1.1, 0.97, 1.3, "1.1x (0.97-1.3)"),
        (1.0, 1.0, 1.0, "1.00x (1.00-1.00)"),
        (1234.0, 900.0, 1600.0, "1,200x (900-1,600)"),
        (12.0, 10.0, 14.0, "12x (10-14)"),
        (0.42, 0.01, 0.66, "42 % (1-66)"),
        (0.42, 0.003, 0.66, "42 % (0.3-66)"),
        (0.0, 0.0, 0.46, "0 % (0-46)"),
        (0.035, 0.01, 0.06, "3.5 % (1.0-6.0)"),
        (0.0005, 0.0, 0.0035, "0.05 % (0.00-0.35)"),
        (0.161, 0.160, 0.162, "16.1 % (16.0-16.2)"),
        (-0.01, -0.03, 0.01, "-1.0 % (-3.0 to 1.0)"),
        (0.4, 0.4, 0.4, "40 % (40-40)"),
    ],
)
def test_an_interval_of_a_factor_holds_1_and_one_of_a_share_0_only_where_it_does(
    value: float, low: float, high: float, text: str
) -> None:
    assert show_interval(Interval(value, low, high), "%" if "%" in text else "x") == text


def test_an_interval_that_says_nothing_is_not_written_out() -> None:
    assert show_interval(Interval(1.8, 1e-4, 1e300), "x") == "1.8x (±100 % or more)"


def test_a_factor_without_an_interval_stands_alone() -> None:
    assert show_interval(Interval(2.0), "x") == "2.00x"


def test_other_numbers_have_the_digits_that_their_interval_justifies_or_those_asked_for() -> None:
    assert show_interval(Interval(5.04, 4.9, 5.2)) == "5.04 (4.90-5.20)"
    assert show_interval(Interval(5000.0, 4000.0, 6100.0)) == "5,000 (4,000-6,100)"
    assert show_interval(Interval(103.4, 92.0, 114.0), decimals=0) == "103 (92-114)"
    assert interval_parts(Interval(1.004, 0.98, 1.02), decimals=2) == ("1.00", "(0.98-1.02)")
    assert interval_parts(Interval(0.161), "%") == ("16 %", "")


def test_the_inverse_and_the_complement_of_an_interval_swap_its_ends() -> None:
    assert Interval(2.0, 1.0, 4.0).inverse == Interval(0.5, 0.25, 1.0)
    assert Interval(2.0, 0.0, 4.0).inverse == Interval(0.5)
    assert Interval(0.75, 0.5, 1.0).complement == Interval(0.25, 0.0, 0.5)
    assert Interval(2.0).complement == Interval(-1.0)
    assert Interval(1.5, -1.0, 2.0).clipped(0, 1) == Interval(1.0, 0.0, 1.0)
    assert Interval.around(2.0, math.inf) == Interval(2.0)
    assert Interval.around(2.0, 0.5) == Interval(2.0, 1.5, 2.5)
    assert Interval.of_logs(0.0, 5000.0).high == pytest.approx(math.exp(700))
