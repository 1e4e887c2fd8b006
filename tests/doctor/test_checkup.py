"""The check-up as a whole: what a user means by it, and a store that can't be read."""

from __future__ import annotations

import pytest

from mldyno.doctor import checkup, energy, settings
from mldyno.errors import UsageError
from mldyno.runner.events import Interrupts
from mldyno.timing import spin


def test_all_frameworks_that_compute_are_looked_at_unless_one_is_named() -> None:
    assert checkup.wanted(False, None, None, None).frameworks == ("torch", "jax", "mlx", "tensorflow")
    assert checkup.wanted(False, None, "fake", None).frameworks == ("fake",)
    with pytest.raises(UsageError, match="Did you mean 'torch'"):
        checkup.wanted(False, None, "torhc", None)


@pytest.mark.parametrize(
    ("quick", "noise", "seconds"), [(False, None, 60.0), (True, None, None), (True, 5.0, 5.0), (False, 5.0, 5.0)]
)
def test_a_quick_look_listens_for_noise_only_if_asked_to(
    quick: bool, noise: float | None, seconds: float | None
) -> None:
    assert checkup.wanted(quick, noise, None, None).noise == seconds


def test_a_store_of_another_kind_is_told_and_no_error() -> None:
    kept = checkup._kept("https://example.org/store")
    assert kept.path == "https://example.org/store"
    assert "only SQLite files" in kept.error


def test_the_time_that_is_left_counts_all_parts_to_come_and_shrinks_with_what_is_done() -> None:
    told: list[tuple[str, float]] = []
    wanted = checkup.wanted(False, 10.0, "fake", None)
    parts = checkup.Parts(wanted, Interrupts(), lambda part, left: told.append((part, left)))
    parts.start, parts.devices, parts.ways = 1.0, 2, {"threads": 3, "allocators": 2}
    parts.begin("features", "of gpu", 0.5)
    parts.begin("threads", "the last of its sets", 1 - 1 / settings.SETS)
    parts.begin("noise")
    names, (most, some, least) = zip(*told, strict=True)
    assert names == ("features of gpu", "threads the last of its sets", "noise")
    process_s = 1.0 + settings.WARM_UP_S + settings.TURNS * settings.TURN_S  # a process of a set
    assert least == 10.0
    assert some == pytest.approx(10.0 + 3 * process_s + 2 * settings.SETS * process_s)
    sensors = energy.REST_S + energy.WORK_S
    assert most == pytest.approx(10.0 + 5 * settings.SETS * process_s + spin.SPIN_S + sensors + 1.0 + checkup.COMPILE_S)
