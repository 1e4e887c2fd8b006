"""sshd on each machine of a lab, and `ssh` at its head."""

from __future__ import annotations

import subprocess

from bench.labs.machines import Lab, wait_for
from bench.labs.tools import Tools

SERVER = """
Port 22
ListenAddress {address}
HostKey {folder}/key-{name}
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
"""
CLIENT = """
Host *
  User root
  IdentityFile {folder}/user
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking ask
  LogLevel ERROR
"""


def start(lab: Lab) -> None:
    """Start sshd on all machines, and make `ssh`: it reaches them by their names, with a user's key."""
    tools = Tools("ssh")
    sshd, keygen = tools.program("sshd"), tools.program("ssh-keygen")
    folder = lab.folder / "ssh"
    folder.mkdir()
    for name in ("user", *(f"key-{node.name}" for node in lab.machines)):
        subprocess.run(
            [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True,
            env={**tools.environment, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    known = [f"{node.name} {(folder / f'key-{node.name}.pub').read_text(encoding='utf-8')}" for node in lab.machines]
    (folder / "known").write_text("".join(known), encoding="utf-8")
    hosts = [f"Host {each.name}\n  HostName {each.address}\n  HostKeyAlias {each.name}\n" for each in lab.machines]
    (folder / "config").write_text("".join(hosts) + CLIENT.format(folder=folder), encoding="utf-8")
    lab.program("ssh", tools.program("ssh"), "-F", str(folder / "config"), **tools.environment, HOME=str(lab.home))
    for node in lab.machines:
        config = folder / f"sshd-{node.name}.conf"
        config.write_text(SERVER.format(folder=folder, name=node.name, address=node.address), encoding="utf-8")
        node.start(sshd, "-D", "-e", "-f", str(config), log=lab.folder / "log" / "sshd", **tools.environment)
    for node in lab.machines:
        wait_for(lambda node=node: _listens(node.pid), f"sshd on {node.name}")  # type: ignore[misc]


def _listens(pid: int) -> bool:
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as connections:
        return ":0016 00000000:0000 0A" in connections.read()
