"""The check-up as a whole: what a user means by it, and a store that can't be read."""

from __future__ import annotations

import pytest

from mldyno.doctor import checkup, settings
from mldyno.errors import UsageError
from mldyno.machine import Vendors
from mldyno.messages import FrameworkFacts, FrameworksProbed
from mldyno.runner.events import Interrupts
from mldyno.runner.remote_case import REST_S
from mldyno.timing import clock


def test_all_frameworks_that_compute_are_looked_at_unless_one_is_named() -> None:
    assert checkup.wanted(False, None, None, None).frameworks == (
        "torch", "jax", "mlx", "onnxruntime", "openvino", "tensorflow"
    )  # fmt: skip
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
    state = checkup._store_state("https://example.org/store")
    assert state.path == "https://example.org/store"
    assert "only SQLite files" in state.error


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
    sensors = REST_S + checkup.WORK_S
    assert most == pytest.approx(
        10.0 + 5 * settings.SETS * process_s + clock.SPIN_S + sensors + 1.0 + checkup.COMPILE_S
    )


def test_the_forecast_is_made_of_what_will_be_tried() -> None:
    def at_first(*frameworks: str, quick: bool = False, noise: float | None = 60.0) -> float:
        told: list[float] = []
        wanted = checkup.Wanted(frameworks, noise, quick)
        checkup.Parts(wanted, Interrupts(), lambda part, left: told.append(left)).begin("facts")
        return told[0]

    tried = settings.of_allocators()
    process_s = checkup.START_S + settings.WARM_UP_S + settings.TURNS * settings.TURN_S
    ways = 3 + (1 + len(tried) if tried else 0)
    others = clock.SPIN_S + REST_S + checkup.WORK_S + settings.SETS * ways * process_s
    start = 1.0 + checkup.START_S
    assert at_first("torch") == pytest.approx(start + checkup.START_S + checkup.COMPILE_S + 60.0 + others)
    assert at_first("torch", "jax") == pytest.approx(at_first("torch") + checkup.START_S), "jax has no features to try"
    assert at_first("torch", quick=True, noise=None) == pytest.approx(
        start + checkup.START_S + clock.SPIN_S + REST_S + checkup.WORK_S
    )
    assert 150 < at_first("torch") < 300, "three to four minutes, as the command's help says"


def test_each_framework_is_asked_by_itself_and_a_start_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def seen(names: tuple[str, ...], look: object) -> FrameworksProbed:
        nonlocal now
        now += {"torch": 3.0, "jax": 40.0}[names[0]]
        return FrameworksProbed("3.11", {name: FrameworkFacts() for name in names})

    monkeypatch.setattr(checkup, "probe_frameworks", seen)
    monkeypatch.setattr("time.monotonic", lambda: now)
    told: list[tuple[str, float]] = []
    wanted = checkup.Wanted(("torch", "jax"), 60.0, False)
    parts = checkup.Parts(wanted, Interrupts(), lambda part, left: told.append((part, left)))
    installed = checkup._frameworks(wanted, Vendors(), parts)
    assert [each.name for each in installed] == ["torch", "jax"]
    assert parts.start == 3.0, "the first that runs is the one that settings are tried with"
    assert [part for part, _ in told] == ["facts of torch", "facts of jax"]


def test_on_a_machine_that_takes_twice_as_long_twice_as_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = 0.0, list[float]()
    monkeypatch.setattr("time.monotonic", lambda: now)
    parts = checkup.Parts(checkup.Wanted(("fake",), 60.0, True), Interrupts(), lambda part, left: told.append(left))
    parts.begin("facts")
    parts.begin("noise")
    now = 2 * (told[0] - told[1])
    parts.begin("noise")
    now = 0.1
    parts.begin("noise")
    assert told[1:] == pytest.approx([60.0, 120.0, 60.0])
