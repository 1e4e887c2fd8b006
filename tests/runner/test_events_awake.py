"""A machine stays awake while a run lasts, by a tool of its system, and goes on without one."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mldyno.runner import events
from mldyno.runner.events import awake


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a made-up tool of each system notes: its words, and then its end."""
    file = tmp_path / "note"
    for name in ("caffeinate", "systemd-inhibit"):
        tool = tmp_path / name
        tool.write_text(
            f"#!{sys.executable}\nimport signal, sys, time\n"
            f"def end(*_):\n    open({str(file)!r}, 'a').write('ended'); sys.exit()\n"
            f"signal.signal(signal.SIGTERM, end)\n"
            f"open({str(file)!r}, 'w').write(' '.join(sys.argv[1:]) + '\\n')\ntime.sleep(60)\n"
        )
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return file


def heard(file: Path) -> str:
    ends = time.monotonic() + 20
    while not (file.exists() and file.read_text().endswith("\n")) and time.monotonic() < ends:
        time.sleep(0.01)
    return file.read_text()


@pytest.mark.parametrize(("system", "words"), [("darwin", "-i -m -w"), ("linux", "--what=sleep:idle")])
def test_the_systems_own_tool_is_started_and_ended(
    system: str, words: str, note: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr("sys.platform", system)
    with awake():
        said = heard(note)
        assert words in said
        assert str(os.getpid()) in said, "it ends with this process, however that ends"
    assert note.read_text().endswith("ended")


def test_without_such_a_tool_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(events, "SYSTEMD", "/there/is/none")
    with awake():
        pass
    monkeypatch.setattr(events, "SYSTEMD", "/")  # a folder: the tool is asked for, and is nowhere
    monkeypatch.setenv("PATH", "/there/is/none")
    with awake():
        pass
