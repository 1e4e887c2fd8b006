"""What the bridge says of a Ray cluster; and the bridge itself, on a cluster of two nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.labs.machines import Lab, wait_for
from tests.conftest import Tool

from mldyno.engines import Host
from mldyno.engines.ray import BRIDGE, Ray
from mldyno.errors import MldynoError, UsageError

ID = "26d7fa0a96dfb85822834d0c02997536cb233b92dae5e48f7e8b024"
NODES = [
    {"id": f"{ID}1", "name": "b", "address": "10.0.0.2", "python": "/opt/ray/bin/python"},
    {"id": f"{ID}2", "name": "a", "address": "10.0.0.1", "python": "/opt/ray/bin/python"},
]


def says(tool: Tool, *lines: object) -> Ray:
    """An engine whose interpreter prints these lines."""
    printed = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    tool("ray-python", f"cat <<'END'\n{printed}\nEND")
    return Ray(options={"python": "ray-python"})


def test_nodes_have_the_names_of_their_machines_and_their_ids_as_addresses(tool: Tool) -> None:
    engine = says(tool, "a line of something else", *NODES)
    assert [(host.name, host.address[-1], host.python) for host in engine.hosts("")] == [
        ("a", "2", "/opt/ray/bin/python"), ("b", "1", "/opt/ray/bin/python"),
    ]  # fmt: skip
    assert [host.name for host in engine.hosts("b")] == [host.name for host in engine.hosts("10.0.0.2")] == ["b"]
    with pytest.raises(UsageError, match="'c' is no node of this Ray cluster; it has a, b"):
        engine.hosts("a,c")


def test_machines_of_one_name_have_their_addresses_in_it(tool: Tool) -> None:
    engine = says(tool, *({**node, "name": "box"} for node in NODES))
    assert [host.name for host in engine.hosts("")] == ["box-10.0.0.1", "box-10.0.0.2"]


@pytest.mark.parametrize("change", [{"id": "--help"}, {"id": 3}, {"id": None}, {"name": "-x"}, {"name": ""}])
def test_nonsense_of_a_bridge_is_one_line(tool: Tool, change: dict[str, object]) -> None:
    with pytest.raises(MldynoError):
        says(tool, {**NODES[0], **change}).hosts("")


def test_the_interpreter_is_the_one_that_is_named_or_that_of_the_command_ray(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("a", "ray", ID)
    assert Ray(options={"python": "/opt/x"}).command(host, ["true"])[0] == "/opt/x"
    tool("ray", "")
    tool("python", "")
    assert Ray().command(host, ["true"])[0] == str(tmp_path / "tools" / "python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert Ray().command(host, ["true"]) == ["python3", "-c", BRIDGE.read_text(), "pipe", ID, "true"]


def test_an_interpreter_without_ray_is_one_line() -> None:
    with pytest.raises(MldynoError, match="has no Ray; run this on a machine of the cluster, or name an interpreter"):
        Ray(options={"python": sys.executable}).hosts("")


# -- for real ------------------------------------------------------------------------------------------


@pytest.fixture
def engine(ray_lab: Lab, at_login: Lab) -> Ray:
    """The engine of a user at `login`."""
    return Ray(options={"python": "ray-python"})


def piped(engine: Ray, host: Host, script: str, given: str = "") -> subprocess.CompletedProcess[str]:
    words = engine.command(host, ["sh", "-c", script])
    return subprocess.run(words, input=given, capture_output=True, text=True, check=False)


def test_a_process_has_a_node_as_if_ray_had_not_started_it(engine: Ray) -> None:
    script = "hostname; nproc; nice; grep SigBlk /proc/self/status; env; echo error >&2; exit 7"
    for host in engine.hosts(""):
        done = piped(engine, host, script)
        assert (done.returncode, done.stderr) == (7, "error\n")
        name, cores, niceness, blocked, *environment = done.stdout.splitlines()
        assert (name, cores, niceness) == (host.name, "2", "0")
        assert int(blocked.split()[1], 16) == 0
        assert not [line for line in environment if line.startswith(("RAY_", "OMP_", "PYTHONBREAKPOINT"))]


def test_lines_come_as_they_are_written_and_all_of_them(engine: Ray) -> None:
    host = engine.hosts("node1")[0]
    with subprocess.Popen(engine.command(host, ["cat"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        for number in range(5):  # each is answered before the next one is written
            cat.stdin.write(b"%d\n" % number)
            cat.stdin.flush()
            assert cat.stdout.readline() == b"%d\n" % number
        cat.stdin.close()
        assert cat.stdout.read() == b""
    text = "".join(f"line {number}\n" for number in range(100_000))
    assert piped(engine, host, "cat", text).stdout == text


def test_a_node_is_ours_alone(engine: Ray) -> None:
    host = engine.hosts("node2")[0]
    with subprocess.Popen(engine.command(host, ["cat"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b"here\n")
        first.stdin.flush()
        assert first.stdout.readline() == b"here\n"
        with subprocess.Popen(
            engine.command(host, ["echo", "second"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as second:
            time.sleep(3)  # more than a process takes to start
            assert second.poll() is None
            first.stdin.close()
            assert second.communicate()[0] == b"second\n"


def test_a_killed_bridge_leaves_nothing_on_the_node(engine: Ray, ray_lab: Lab) -> None:
    host = engine.hosts("node1")[0]
    with subprocess.Popen(engine.command(host, ["cat"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
        wait_for(lambda: [each for each in ray_lab.nodes[0].processes("cat") if each.name() == "cat"], "the process")
        bridge.kill()
    wait_for(lambda: not [each for each in ray_lab.nodes[0].processes("cat") if each.name() == "cat"], "its end")
