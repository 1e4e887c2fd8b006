"""AMD's report of a card, from made-up files: no such card is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from mldyno.hardware import linux
from mldyno.hardware.linux import Amd, held_back
from mldyno.records import Case, Device

CASE = Case("mlp", device="cuda:0")


def block(status: int, layout: tuple[int, int] = (1, 3), length: int = 120) -> bytes:
    """What the kernel shows of an AMD card: a header, and the reasons to hold its clock down."""
    head = length.to_bytes(2, "little") + bytes(layout)
    return (head + bytes(64) + status.to_bytes(4, "little") + bytes(length))[:length]


@pytest.mark.parametrize(
    ("shown", "held"),
    [(block(0), False), (block(1 << 7), True), (block(1, (2, 0)), None), (block(1, (1, 4)), None), (b"", None),
     (block(1, length=40), None)],
)  # fmt: skip
def test_amds_report_is_read_where_its_layout_is_known(shown: bytes, held: bool | None) -> None:
    assert held_back(shown) is held


def test_the_share_of_looks_at_which_amds_clock_was_held_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "card0" / "device" / "gpu_metrics"
    report.parent.mkdir(parents=True)
    report.write_bytes(block(0))
    monkeypatch.setattr(linux, "AMD_METRICS", str(tmp_path / "card*" / "device" / "gpu_metrics"))
    meter = Amd()
    assert not meter.start(CASE, Device("cpu", "torch"))
    assert meter.start(CASE, Device("cuda:0", "torch"))
    for status in (0, 4, 4, 0):
        report.write_bytes(block(status))
        meter.end_window()
    (share,) = meter.stop()
    assert (share.metric, share.values) == ("gpu_held_back", (0.5,))
    (tmp_path / "card1" / "device").mkdir(parents=True)
    (tmp_path / "card1" / "device" / "gpu_metrics").write_bytes(block(0))
    assert not meter.start(CASE, Device("cuda:0", "torch")), "nobody says which of two is meant"
