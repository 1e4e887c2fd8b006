"""The drain test and its like: with each framework on the CPU, and on the fake device, whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mldyno import plugins
from mldyno.frameworks.fake import CLOCK, FakeProgram
from mldyno.selftest import device_promises as promises
from mldyno.selftest import setup as setups
from mldyno.selftest.device import measure
from mldyno.selftest.measures import Measure
from mldyno.selftest.setup import Setup, TaskResult

FRAMEWORKS = ("torch", "tensorflow", "jax", "mlx", "onnxruntime", "openvino")
Start = Callable[[str], Setup]


@pytest.fixture
def start() -> Start:
    def start(name: str) -> Setup:
        framework = plugins.framework(name)
        framework.start()
        return Setup(framework, "cpu", 1)

    return start


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_framework_reads_a_later_result_back_after_the_work_that_it_waited_for(
    name: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "WAITS", 2)
    monkeypatch.setattr(promises, "LONG_CHAIN_NS", 1)
    monkeypatch.setattr(setups, "BATCHES", (2,))
    rows = list(promises.wait(start(name)))
    assert len(rows) == 2
    assert all(0 < row["issued"] <= row["waited"] for row in rows)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_framework_has_work_of_a_known_size_and_computes_after_a_refusal(name: str, start: Start) -> None:
    setup = start(name)
    assert setup.product(64).work == 2 * 64**3
    rows = [*promises.overflow(setup)]
    assert measure("overflow", TaskResult(rows), "cpu").ok
    assert setup.allocates == ("lacks" not in rows[0]) == (name not in ("onnxruntime", "openvino"))
    (counted,) = promises.memory(setup)
    assert counted["counted"] is None


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    monkeypatch.setattr("mldyno.timing.clock.now", CLOCK)
    monkeypatch.setenv("MLDYNO_FAKE", '[{"step": 0.001, "issue": 1e-5, "slow": [0, 1.0]}]')
    yield Setup(plugins.framework("fake"), "gpu", 1)
    CLOCK.wait()


def waited(setup: Setup) -> Measure:
    return measure("wait", TaskResult([*promises.wait(setup)]), "sim")


def test_a_wait_that_does_not_wait_is_found(fake: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(fake).value == pytest.approx(1.0, abs=0.01)
    monkeypatch.setattr(FakeProgram, "synchronize", lambda self: None)
    found = waited(fake)
    assert found.ok is False
    assert found.value < 0.5


def test_a_framework_that_can_not_copy_outputs_is_not_blamed(fake: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProgram, "returns", None)
    lacks = waited(fake)
    assert (lacks.ok, lacks.n, lacks.note) == (True, 0, "fake can't copy an output to the host")
