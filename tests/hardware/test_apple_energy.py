"""An Apple chip, by a stand-in with the interface of zeus-apple-silicon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mldyno.hardware import Surroundings, Unreadable, apple

# The package: it counts, or ends its process as in a virtual machine.
STUB = """
import os
from types import SimpleNamespace

counted = SimpleNamespace(cpu_total_mj=2000, gpu_mj=3000, dram_mj=500, ane_mj=None, efficiency_cores_mj=[900])

class AppleEnergyMonitor:
    def __init__(self):
        if os.environ.get("STUB_DIES"):
            os.abort()

    def get_cumulative_energy(self):
        return counted
"""


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    (tmp_path / "zeus_apple_silicon.py").write_text(STUB)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    yield
    sys.modules.pop("zeus_apple_silicon", None)


@pytest.mark.usefixtures("package")
def test_an_apple_chip_adds_up_what_does_not_contain_each_other() -> None:
    (chip,) = apple.find_counted_chip(Surroundings()).sensors
    assert (chip.scope, chip.method, chip.read()) == ("package", "counter", 5.5)
    counted = sys.modules["zeus_apple_silicon"].counted
    counted.cpu_total_mj = counted.gpu_mj = counted.dram_mj = None
    with pytest.raises(Unreadable, match="counts nothing"):
        chip.read()


@pytest.mark.usefixtures("package")
def test_where_the_package_ends_its_process_it_ends_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_DIES", "1")
    found = apple.find_counted_chip(Surroundings())
    assert [(each.name, each.reason) for each in found.closed] == [
        ("IOReport", "zeus_apple_silicon can't read it here")
    ]
    assert "zeus_apple_silicon" not in sys.modules
    assert not found.sensors


def test_a_mac_without_the_package_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (closed,) = apple.find_counted_chip(Surroundings()).closed
    assert (closed.reason, closed.cure) == (
        "zeus_apple_silicon is not installed", "pip install 'mldyno[apple]', with a Python before 3.14"
    )  # fmt: skip
