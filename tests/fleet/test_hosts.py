"""Which hosts a user means; reading starts nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mldyno.errors import UsageError
from mldyno.fleet.hosts import Entry, found, read


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A hosts file with two hosts and a cluster."""
    path = tmp_path / "lab.toml"
    path.write_text("""
        [hosts.mini]
        ssh = "mini.local"
        [hosts.box]
        ssh = "me@box"
        python = "/opt/torch/bin/python"
        price = "0.80 EUR/h"
        env = {OMP_NUM_THREADS = "8"}
        [clusters.hpc]
        ssh = "login1"
        local = "node1"
        options = {account = "abc"}
    """)
    return path


def test_words_name_engines_and_a_word_without_one_belongs_to_the_engine_before_it() -> None:
    assert read("ssh:mini,box,local") == [Entry("ssh", "mini,box"), Entry("local", "")]


def test_a_file_names_hosts_and_what_holds_for_each(lab: Path) -> None:
    mini, box, _ = (host for host, _ in found(read(str(lab))))
    assert (mini.name, mini.address, mini.python) == ("mini", "mini.local", None)
    assert (box.address, box.python, box.price, box.env) == (
        "me@box", "/opt/torch/bin/python", "0.80 EUR/h", {"OMP_NUM_THREADS": "8"}
    )  # fmt: skip


def test_a_cluster_behind_a_login_node_is_a_pipe_through_a_pipe(lab: Path) -> None:
    host, engine = found(read(str(lab)), "20260101T000000-abcdef", 60.0)[-1]
    words = engine.reach(engine.command(host, ["true"]))
    assert words[0] == "ssh"
    assert words[-2:] == ["login1", "true"]
    assert host.options == {"account": "abc"}


def test_reading_a_hosts_file_starts_nothing(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*words: object, **options: object) -> None:
        raise AssertionError(words)

    monkeypatch.setattr(subprocess, "Popen", started)
    assert len(read(str(lab))) == 3
    assert [entry.engine for entry in read("ssh:a,b,local")] == ["ssh", "local"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no hosts"),
        ("x = ", "is not TOML"),
        ("[machines.a]\nssh = 'a'", "unknown key 'machines'"),
        ("hosts = 3", "unknown key 'hosts'"),
        ("[hosts]\na = 3", "must be a table"),
        ("[hosts.a]\n", "needs one of"),
        ("[hosts.a]\nssh = 'a'\nlocal = ''", "needs one of"),
        ("[hosts.a]\nssh = 'a'\npyton = 'x'", "Did you mean 'python'"),
        ("[hosts.a]\nssh = 3", "must be printable text"),
        ("[hosts.a]\nssh = 'a'\nenv = {A = 1}", "must be a table of texts"),
        (
            "[hosts.a]\nssh = 'a'\nprice = 'cheap'",
            r"\[hosts.a\].price: 'cheap' is not a price; write it as '0.80 EUR/h'",
        ),
        ('[hosts.a]\nssh = "a"\npython = "a\\u001b[2J"', "must be printable text"),
        ("[hosts.'a;b']\nssh = 'a'", "letters, digits"),
        ("[hosts.'-a']\nssh = 'a'", "letters, digits"),
        (f"[hosts.a]\nssh = '{'a' * 2000}'", "must be printable text"),
        ("a." * 10_000 + "b = 1", "not TOML|unknown key"),
    ],
)
def test_a_hostile_or_mistaken_file_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason) as error:
        read(str(path))
    assert "\n" not in str(error.value)


def test_a_host_can_t_have_an_address_that_is_an_option(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text("[hosts.a]\nssh = '-oProxyCommand=touch x'")
    with pytest.raises(UsageError, match="can't be a host of ssh"):
        found(read(str(path)))


def test_a_device_or_a_huge_file_is_no_hosts_file(tmp_path: Path) -> None:
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * (2 << 20))
    with pytest.raises(UsageError, match="over 1 MiB"):
        read(str(big))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match="folder"):
        read(str(tmp_path / "folder.toml"))
    with pytest.raises(UsageError, match="name a hosts file"):
        read(str(tmp_path / "missing.toml"))


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown engine .shh.\. Did you mean .ssh."):
        read("shh:mini")


def test_two_hosts_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="2 hosts are called a-b"):
        found(read("ssh:a@b,a-b"))
