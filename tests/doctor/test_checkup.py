"""The check-up as a whole: what a user means by it, and a store that can't be read."""

from __future__ import annotations

import pytest

from mldyno.doctor import checkup
from mldyno.errors import UsageError


def test_all_frameworks_that_compute_are_looked_at_unless_one_is_named() -> None:
    assert checkup.wanted("python", False, None, None, None).frameworks == ("torch",)
    assert checkup.wanted("python", False, None, "fake", None).frameworks == ("fake",)
    with pytest.raises(UsageError, match="Did you mean 'torch'"):
        checkup.wanted("python", False, None, "torhc", None)


@pytest.mark.parametrize(
    ("quick", "noise", "seconds"), [(False, None, 60.0), (True, None, None), (True, 5.0, 5.0), (False, 5.0, 5.0)]
)
def test_a_quick_look_listens_for_noise_only_if_asked_to(
    quick: bool, noise: float | None, seconds: float | None
) -> None:
    assert checkup.wanted("python", quick, noise, None, None).noise == seconds


def test_a_store_of_another_kind_is_told_and_no_error() -> None:
    kept = checkup._kept("https://example.org/store")
    assert kept.path == "https://example.org/store"
    assert "only SQLite files" in kept.error
