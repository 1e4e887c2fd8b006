"""A check-up that the user ends: one clear line, and nothing is left behind."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

REHEARSAL = ("doctor", "--quick", "--framework", "fake")


def test_ended_while_a_drivers_tool_hangs(dyno: Dyno) -> None:
    tool = dyno.folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    process = dyno.start(*REHEARSAL, PATH=f"{dyno.folder}:/usr/bin:/bin")
    dyno.wait_until_stuck(process, records=0, workers=1)
    dyno.strike(process, signal.SIGINT)
    done = dyno.finish(process)
    assert done.code == 3
    assert done.lines[1:] == ["mldyno: ended by SIGINT; an incomplete check-up says nothing."]


def test_ended_while_a_feature_is_tried(dyno: Dyno) -> None:
    process = dyno.start(*REHEARSAL, rules=({"match": "fp16/fake/cpu", "fail": "hang"},))
    dyno.wait_until_stuck(process, records=0, workers=1)
    dyno.strike(process, signal.SIGTERM)
    done = dyno.finish(process)
    assert done.code == 3
    assert done.out == ""
    assert done.lines[-1].startswith("mldyno: ended by SIGTERM")
    assert len([line for line in done.lines if line.startswith("mldyno: ")]) == 1


def test_ended_while_it_listens_for_noise(dyno: Dyno) -> None:
    process = dyno.start(*REHEARSAL, "--noise", "60s")
    assert process.stderr is not None
    while "noise" not in process.stderr.readline():
        assert process.poll() is None
    dyno.strike(process, signal.SIGINT)
    done = dyno.finish(process)
    assert done.code == 3
    assert done.lines == ["mldyno: ended by SIGINT; an incomplete check-up says nothing."]
