"""A system tool is asked within limits: whatever it does, it costs no more than its time, and nothing breaks."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.conftest import Tool

from mldyno import system_queries


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool has less time, and may say less, than in earnest."""
    monkeypatch.setattr(system_queries, "TOOL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(system_queries, "LONGEST_ANSWER_B", 1 << 17)


def written(folder: Path, script: str, mode: int = 0o755) -> str:
    """The path of a tool that does that, and notes its process id first."""
    path = folder / "tool"
    path.write_text(script if script.startswith("#!") else f"#!/bin/sh\necho $$ > {folder}/pid\n{script}\n")
    path.chmod(mode)
    return str(path)


def test_a_tool_is_heard_to_its_end_without_the_space_around_it(tmp_path: Path) -> None:
    assert system_queries.ask(written(tmp_path, "echo; echo ' one'; sleep 0.1; echo 'two ' ")) == "one\ntwo"
    assert system_queries.ask("echo", "found in the PATH") == "found in the PATH"


def test_a_tool_that_is_missing_says_nothing() -> None:
    assert system_queries.ask("no-such-tool-anywhere") == ""
    assert system_queries.ask("") == ""


@pytest.mark.parametrize(
    "script",
    ["echo half; exit 1", "echo half; kill -9 $$", "echo wrong >&2", "#!/no/such/interpreter\n"],
    ids=["fails", "is killed", "only complains", "can't be run"],
)
def test_a_tool_that_fails_says_nothing(script: str, tmp_path: Path) -> None:
    assert system_queries.ask(written(tmp_path, script)) == ""


def test_a_tool_that_may_not_be_run_says_nothing(tmp_path: Path) -> None:
    assert system_queries.ask(written(tmp_path, "echo secret", mode=0o644)) == ""


@pytest.mark.parametrize(
    "script",
    ["exec sleep 3600", "echo half; exec sleep 3600", "exec >&-; exec sleep 3600", "exec yes"],
    ids=["hangs", "hangs after some words", "closes its output and hangs", "does not stop talking"],
)
def test_a_tool_that_hangs_or_talks_on_costs_its_time_and_is_ended(script: str, tmp_path: Path) -> None:
    assert system_queries.ask(written(tmp_path, script)) == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("end", ["wait", "exit 0"], ids=["hangs", "leaves its output open"])
def test_what_a_tool_has_started_is_ended_with_it(end: str, tmp_path: Path) -> None:
    assert system_queries.ask(written(tmp_path, f"sleep 3600 & echo $! > {tmp_path}/child; {end}")) == ""
    with suppress(psutil.NoSuchProcess):
        child = psutil.Process(int((tmp_path / "child").read_text()))
        with suppress(psutil.TimeoutExpired):
            child.wait(5.0)
        assert child.status() == psutil.STATUS_ZOMBIE, "only its parent, which is not ours, has yet to hear of its end"


def test_the_time_that_a_tool_has_can_be_given(tmp_path: Path) -> None:
    slow = written(tmp_path, "sleep 0.8; echo done")
    assert system_queries.ask(slow) == ""
    assert system_queries.ask(slow, timeout_s=5.0) == "done"


def test_what_is_not_text_becomes_text_that_can_be_shown(tmp_path: Path) -> None:
    assert system_queries.ask(written(tmp_path, r"printf 'M\377\0001 \303\251'")) == "M\ufffd\x001 é"


@pytest.mark.parametrize(
    ("platform", "script", "place", "stub"),
    [("darwin", "echo /Library/Developer/CommandLineTools", "tools", False), ("darwin", "exit 2", "tools", True),
     ("darwin", "exit 2", "homebrew", False), ("linux", "exit 2", "tools", False)],
)  # fmt: skip
def test_a_compiler_of_apple_is_a_stub_without_the_command_line_tools(
    platform: str, script: str, place: str, stub: bool, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("xcode-select", f'[ "$1" = -p ] || exit 9; {script}')
    tool("g++", "exit 9")
    monkeypatch.setattr(system_queries, "APPLES_TOOLS", str(tmp_path / place))
    monkeypatch.setattr(sys, "platform", platform)
    assert system_queries.is_stub("g++") is stub
    assert not system_queries.is_stub("a-compiler-that-is-not-there")


def test_a_library_is_found_in_the_loaders_cache_and_folders_without_starting_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the processor of this Python only; what has its name and is no library is none."""
    elf = Path(sys.executable).read_bytes()[:20] if sys.platform == "linux" else b"\x7fELF" + bytes(16)
    other = elf[:18] + bytes((elf[18] ^ 0xFF, elf[19]))
    (tmp_path / "python").write_bytes(elf)
    for folder, content in (("i386", other), ("x86", elf), ("own", elf), ("text", b"INPUT(x)")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libjemalloc.so.2").write_bytes(content)
    (tmp_path / "own" / "libtcmalloc_minimal.so.4").write_bytes(elf)
    keys = [f"libjemalloc.so.2\0{tmp_path}/{folder}/libjemalloc.so.2\0" for folder in ("text", "i386", "x86", "none")]
    (tmp_path / "cache").write_bytes(b"glibc-ld.so.cache1.1\0" + "".join(keys).encode())
    monkeypatch.setattr("mldyno.system_queries.sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr(system_queries, "LOADER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/missing:{tmp_path}/own")
    monkeypatch.setattr("mldyno.system_queries.subprocess.Popen", None)
    assert system_queries.shared_library("jemalloc") == "libjemalloc.so.2"
    assert system_queries.shared_library("tcmalloc_minimal") == "libtcmalloc_minimal.so.4"
    assert system_queries.shared_library("tcmalloc") is None
    (tmp_path / "x86" / "libjemalloc.so.2").unlink()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert system_queries.shared_library("jemalloc") is None
