"""The words of OpenSSH's client."""

from __future__ import annotations

import shlex

import pytest

from mldyno.engines.ssh import Ssh
from mldyno.errors import UsageError


def test_a_host_is_what_follows_the_dashes_and_the_words_are_quoted_for_its_shell() -> None:
    (host,) = Ssh().hosts("me@box")
    words = Ssh().command(host, ["python3", "-c", "print('a b')"])
    assert words[0] == "ssh"
    assert words[words.index("--") + 1 :] == ["me@box", shlex.join(["python3", "-c", "print('a b')"])]


def test_an_interpreter_in_the_home_there_is_found_and_its_name_is_quoted_too() -> None:
    (host,) = Ssh().hosts("box")
    assert Ssh().command(host, ["~/my env/bin/python", "-c", "~/x"])[-1] == "~/'my env/bin/python' -c '~/x'"


def test_nothing_can_ask_for_a_password() -> None:
    (host,) = Ssh().hosts("box")
    assert "BatchMode=yes" in Ssh().command(host, [])


def test_addresses_become_names() -> None:
    assert [host.name for host in Ssh().hosts("mini,me@box,[::1]")] == ["mini", "me-box", "1"]


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "a;b", "a@b@c", "a/b", "@a", "me@-x", "a'b", "$x"])
def test_an_address_can_t_be_an_option_or_hold_what_a_shell_reads(address: str) -> None:
    with pytest.raises(UsageError, match="can't be a host"):
        Ssh().hosts(address)
