"""Fixtures for what a machine is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Tool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a system tool into the PATH, ahead of what is there: tool("sysctl", "cat FILE")."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def put(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at the platform sees macOS; psutil has looked before."""
    import psutil  # noqa: F401

    monkeypatch.setattr("sys.platform", "darwin")
