"""`mldyno run --on` and `mldyno fleet`: what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Mldyno

from mldyno.cli import fleet as commands
from mldyno.engines import Engine, Host
from mldyno.fleet.conductor import Member

RUN = ("run", "mlp", "--framework", "fake", "--mode", "infer", "--repeats", "1")
NOWHERE = '[hosts.here]\nlocal = ""\n[hosts.gone]\nlocal = ""\npython = "/nowhere/python"\n'


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def lab(tmp_path: Path) -> str:
    """A hosts file with this machine, and a host that has no Python."""
    (tmp_path / "lab.toml").write_text(NOWHERE)
    return str(tmp_path / "lab.toml")


def test_a_run_ends_with_its_table_and_a_line_for_each_host(mldyno: Mldyno) -> None:
    code, out, err = mldyno(*RUN, "--on", "local")
    assert code == 0
    assert "time of one step" in out
    assert out.splitlines()[-1].split() == ["local", "done", "1", "record"]
    assert err.splitlines() == ["local: starting", "local: running", "local: done"]


def test_a_host_that_is_refused_is_named_with_the_reason_and_the_others_are_measured(mldyno: Mldyno, lab: str) -> None:
    code, out, err = mldyno(*RUN, "--on", lab)
    assert code == 3
    assert "gone: refused: /nowhere/python: No such file or directory" in err
    assert f"1 host not done; resume with: mldyno run --resume --on {lab}" in out
    assert "here   done" in out


def test_json_has_each_record_as_it_is_beside_its_host_and_each_state(mldyno: Mldyno, lab: str) -> None:
    code, out, err = mldyno(*RUN, "--on", lab, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    records = [line for line in lines if "record" in line]
    assert (code, err) == (3, "")
    assert [(line["host"], line["record"]["case"]["workload"]) for line in records] == [("here", "mlp")]
    assert f'"record": {json.dumps(records[0]["record"], separators=(",", ":"), sort_keys=True)}}}' in out
    assert [line["state"] for line in lines if line["host"] == "gone"] == ["refused"]


def test_a_dry_run_shows_each_host_and_runs_nothing(mldyno: Mldyno, lab: str) -> None:
    code, out, err = mldyno(*RUN, "--device", "all", "--on", lab, "--dry-run")
    assert (code, err) == (3, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert rows["here"].split()[1] == "2"
    assert "No such file" in rows["gone"]
    assert "Nothing was run." in out
    assert "Nothing measured yet" in mldyno("history")[1]
    code, out, _ = mldyno(*RUN, "--on", lab, "--dry-run", "--json")
    (case,) = json.loads(out)["hosts"]["here"]["cases"]
    assert case["case"] == "mlp/infer/fake/cpu/fp32/b128/device"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--on", "shh:mini"), "unknown engine 'shh'. Did you mean 'ssh'"),
        (("--on", "missing.toml"), "name a hosts file"),
        (("--on", "ssh:-oProxyCommand=x"), "can't be a host of ssh"),
        (("--on", "local", "--nodes", "2"), "--nodes and --on exclude each other"),
        (("--on", "local", "--against", "HEAD"), "--against and --on exclude each other"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: tuple[str, ...], reason: str, mldyno: Mldyno) -> None:
    code, out, err = mldyno(*RUN, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err


def test_nothing_to_resume_on_these_hosts_is_exit_code_1(mldyno: Mldyno) -> None:
    code, _, err = mldyno("run", "--resume", "--on", "local")
    assert (code, err) == (1, "mldyno: no unfinished run to resume on these hosts; omit --resume.\n")


def member(name: str, **facts: str) -> Member:
    ended = Member(Host(name, "ssh", name), Engine(), "done" if facts else "refused", "" if facts else "no route")
    ended.facts = facts
    return ended


def test_the_doctor_has_a_row_for_each_host_and_then_only_what_differs(
    mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [
        member("node1", mldyno="0.2.0", cores="64 cores", torch="2.13.0", load="0.1", governor="performance"),
        member("node2", mldyno="0.2.0", cores="1 of 64 cores", torch="2.13.0", load="0.2", governor="powersave"),
        member("node3"),
    ]
    monkeypatch.setattr("mldyno.api.fleet_doctor", lambda on, listener: members)
    code, out, _ = mldyno("fleet", "doctor", "--on", "lab.toml")
    lines = out.splitlines()
    assert code == 3
    assert [line.split()[:2] for line in lines if line.startswith(" node")] == [
        ["node1", "ready"], ["node2", "ready"], ["node3", "refused"]
    ]  # fmt: skip
    assert "node3: refused: no route" in lines
    assert "torch: 2.13.0" in lines
    assert "differ in cores: node1: 64 cores; node2: 1 of 64 cores" in lines
    assert "differ in governor: node1: performance; node2: powersave" in lines
    assert not any(line.startswith("differ in load") for line in lines)
    assert (
        json.loads(mldyno("fleet", "doctor", "--on", "lab.toml", "--json")[1])["hosts"]["node3"]["reason"] == "no route"
    )


def test_progress_on_a_terminal_is_a_line_for_each_host_or_one_for_many(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mldyno.cli import output

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert output.on_terminal()
    for count in (3, 50):
        live = commands.LiveHosts(clock=lambda: 1e9)
        members = [member(f"node{number}") for number in range(count)]
        live.begin(members)
        for each in members:
            each.state, each.done, each.cases, each.left, each.open = "running", 1, 4, 30.0, True
            live.changed(each)
        members[0].state, members[0].reason = "lost", "the connection ended"
        live.changed(members[0])
        live.end()
        err = capsys.readouterr().err
        assert "node0: lost: the connection ended" in err
        assert ("running, 1 of 4 cases, about 30.0 s left" in err) == (count == 3)
        assert ("49 running, 0 ended" in err) == (count == 50)


def test_the_remote_runner_is_no_command_of_a_user_s(mldyno: Mldyno) -> None:
    assert "remote" not in mldyno("fleet", "--help")[1].split()
