"""Hosts by OpenSSH's own `ssh`, as the user's configuration names them.

Logins that only the program knows work: agents, jump hosts, Kerberos. Nothing is asked for: a host that wants a
password, or whose key is not known, is refused with ssh's own line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mldyno.engines import Engine, Host, names_in

ADDRESS = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9_:\[][A-Za-z0-9_.:%\]-]{0,252}")
OPTIONS = {
    "BatchMode": "yes", "ConnectTimeout": "10", "ServerAliveInterval": "5", "ServerAliveCountMax": "4",
    "ClearAllForwardings": "yes", "RemoteCommand": "none",
}  # fmt: skip


class Ssh(Engine):
    """The words as one line for the shell there, quoted; one connection for the whole run."""

    def hosts(self, wanted: str) -> list[Host]:
        addresses = names_in(wanted, "ssh", ADDRESS)
        return [Host(re.sub("[^A-Za-z0-9_.-]", "-", address).strip("-."), "ssh", address) for address in addresses]

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        options = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
        home = "~/" if words and words[0].startswith("~/") else ""  # of the user there
        line = home + shlex.join([words[0].removeprefix("~/"), *words[1:]]) if words else ""
        return ["ssh", "-T", *options, "--", host.address, line]


ENGINE = Ssh
