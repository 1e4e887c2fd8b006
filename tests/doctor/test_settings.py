"""Settings of threads and allocators, measured against each other in fresh processes that take turns."""

from __future__ import annotations

import json

import pytest

from mldyno.doctor import settings
from mldyno.doctor.settings import measure, of_allocators, of_threads, passive_wait_helps
from mldyno.doctor.symptoms import Setting, Trial
from mldyno.records import Case
from mldyno.units import Interval
from mldyno.worker import client

STEP = Case("mlp", framework="fake", batch=64)


def steps(seconds: float, **more: object) -> dict[str, str]:
    """A setting under which the fake framework's step takes so many s."""
    return {"MLDYNO_FAKE": json.dumps([{"step": seconds, **more}])}


PASSIVE, BOUND = {"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_PROC_BIND": "true"}


@pytest.mark.parametrize(
    ("count", "free", "env", "tried"),
    [(1, 2.0, {}, []), (None, 2.0, {}, []),
     (2, 2.0, {}, [PASSIVE, BOUND]),
     (2, 2.0, {"OMP_WAIT_POLICY": "passive", "OMP_PROC_BIND": "close"}, []),
     (8, 2.2, {}, [PASSIVE, BOUND, {"OMP_NUM_THREADS": "2"}]),
     (2, 0.3, {"OMP_WAIT_POLICY": "PASSIVE"}, [BOUND, {"OMP_NUM_THREADS": "1"}]),
     (4, None, {}, [PASSIVE, BOUND])],
    ids=str,
)  # fmt: skip
def test_only_what_could_help_is_tried(
    count: int | None,
    free: float | None,
    env: dict[str, str],
    tried: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mldyno.doctor.settings.sys.platform", "linux")
    assert list(of_threads(count, free, env).values()) == tried


def test_threads_are_bound_to_cores_on_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.doctor.settings.sys.platform", "darwin")
    assert list(of_threads(2, 2.0, {}).values()) == [PASSIVE]


def test_the_allocators_that_can_be_had_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.worker.client.sys.platform", "linux")
    monkeypatch.setattr("mldyno.worker.client.platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr("mldyno.worker.client.shared_library", {"jemalloc": "libjemalloc.so.2"}.get)
    assert of_allocators() == {
        "--allocator steady": client.KEEP_FREED_MEMORY,
        "--allocator jemalloc": {"LD_PRELOAD": "libjemalloc.so.2"},
    }


def test_a_setting_that_doubles_the_speed_is_measured_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in steps(0.004, noise=0.02).items():
        monkeypatch.setenv(name, value)
    trial = measure(lambda: None, STEP, 4, {"--allocator steady": steps(0.002, noise=0.02)})
    assert isinstance(trial, Trial)
    (faster,) = trial.settings
    assert trial.step == pytest.approx(0.004, rel=0.02)
    assert faster.gain.value == pytest.approx(2.0, rel=0.03)
    assert (faster.gain.low or 0) <= faster.gain.value <= (faster.gain.high or 0)
    assert faster.name.startswith("MLDYNO_FAKE=")
    assert faster.option == "--allocator steady"


def test_threads_that_spin_on_are_waited_for_before_another_process_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rested: list[int] = []
    monkeypatch.setattr("mldyno.runner.pairing._let_rest", lambda case: rested.append(case.turns))
    monkeypatch.setattr(settings, "TURNS", 2)
    assert measure(lambda: None, STEP, 4, {"sleeping": PASSIVE}, sets=1) is not None
    assert rested == [0, 0, 1, 1, 2, 2], "each of two processes: when it is warm, and after each turn"


def test_a_step_that_can_not_be_run_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SETS", 1)
    assert measure(lambda: None, STEP, 4, {"killed": {"MLDYNO_FAKE": '[{"fail": "kill"}]'}}) is None


def tried(ratio: float, monkeypatch: pytest.MonkeyPatch, free: float = 1.0) -> Setting | None:
    """What a quick look comes to, where threads that sleep make a step so many times as fast."""
    trial = Trial(
        "fake", "mlp", 2, 1e-3, (Setting("OMP_WAIT_POLICY=PASSIVE", 1e-3, Interval(ratio, 0.9 * ratio, 1.1 * ratio)),)
    )
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr("mldyno.doctor.settings.clock.free_cores", lambda cores: free)
    monkeypatch.setattr("mldyno.doctor.settings.measure", lambda *arguments, **options: trial)
    return passive_wait_helps("fake", 2, 2)


def test_threads_sleep_for_quick_only_where_that_clearly_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tried(1.6, monkeypatch)
    assert chosen is not None
    assert chosen.name == "OMP_WAIT_POLICY=PASSIVE"
    assert tried(1.05, monkeypatch) is None


def test_where_cores_are_free_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(1.6, monkeypatch, free=1.9) is None
