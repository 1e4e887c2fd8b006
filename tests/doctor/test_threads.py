"""Settings of threads, measured against each other in fresh processes that take turns."""

from __future__ import annotations

import json

import pytest

from mldyno.doctor import threads
from mldyno.doctor.threads import measure, worth_trying


def steps(seconds: float, **more: object) -> dict[str, str]:
    """A setting under which the fake framework's step takes so many s."""
    return {"MLDYNO_FAKE": json.dumps([{"step": seconds, **more}])}


@pytest.mark.parametrize(
    ("count", "free", "env", "settings"),
    [(1, 2.0, {}, []), (None, 2.0, {}, []),
     (2, 2.0, {}, [{"OMP_WAIT_POLICY": "PASSIVE"}]),
     (2, 2.0, {"OMP_WAIT_POLICY": "passive"}, []),
     (8, 2.2, {}, [{"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_NUM_THREADS": "2"}]),
     (2, 0.3, {"OMP_WAIT_POLICY": "PASSIVE"}, [{"OMP_NUM_THREADS": "1"}]),
     (4, None, {}, [{"OMP_WAIT_POLICY": "PASSIVE"}])],
    ids=str,
)  # fmt: skip
def test_only_what_could_help_is_tried(
    count: int | None, free: float | None, env: dict[str, str], settings: list[dict[str, str]]
) -> None:
    assert worth_trying(count, free, env) == settings


def test_a_setting_that_doubles_the_speed_is_measured_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in steps(0.004, noise=0.02).items():
        monkeypatch.setenv(name, value)
    found = measure(lambda: None, "fake", 4, [steps(0.002, noise=0.02)])
    assert found is not None
    (faster,) = found.settings
    assert found.step == pytest.approx(0.004, rel=0.02)
    assert faster.ratio == pytest.approx(2.0, rel=0.03)
    assert faster.ratio is not None
    assert (faster.low or 0) <= faster.ratio <= (faster.high or 0)
    assert faster.name.startswith("MLDYNO_FAKE=")


def test_a_step_that_can_not_be_run_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SETS", 1)
    assert measure(lambda: None, "fake", 4, [{"MLDYNO_FAKE": '[{"fail": "kill"}]'}]) is None
