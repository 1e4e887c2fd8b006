"""The command `mldyno` for shells, forked from a process that has imported it, as are its workers.

A command is a process like any other: it has the shell's streams, folder and settings, and its exit code. In a folder
for the PATH lies a script `mldyno` that asks for one and waits for its end. Where a setting that is read while modules
are imported differs, it runs the real command.

Run as a script, this file is the process that forks.
"""

from __future__ import annotations

import gc
import marshal
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

REAL = os.path.join(sysconfig.get_path("scripts"), "mldyno")
MODULES = (  # that a command or its simulated worker imports
    "mldyno.worker.listen", "mldyno.frameworks.fake", "mldyno.cli", "mldyno.cli.measure", "mldyno.cli.explore",
    "mldyno.cli.read", "mldyno.cli.share", "mldyno.api.running", "mldyno.api.reading", "mldyno.api.sharing",
    "mldyno.api.examining", "mldyno.views.answers", "mldyno.views.tables", "rich.table", "rich.console",
)  # fmt: skip
SET_BY_SHELLS = {"_", "OLDPWD", "PWD", "SHLVL"}
REQUEST = """#!{python} -IS
import _socket, marshal, posix, sys

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
connection.connect({address!r})
request = marshal.dumps((sys.argv[1:], posix.getcwd(), posix.environ))
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
connection.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
connection.send(request)
code = connection.recv(1)
if code == b"":
    sys.exit("mldyno: the process that forks commands has ended")
if code == {other!r}:
    posix.execv({real!r}, [{real!r}, *sys.argv[1:]])
posix._exit(code[0])
"""
OTHER_SETTINGS = b"\xfe"  # in place of an exit code


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """Yield a folder for the PATH, in which `mldyno` is a forked command."""
    address, bin_ = str(folder / "commands"), folder / "bin"
    bin_.mkdir()
    script = bin_ / "mldyno"
    script.write_text(REQUEST.format(python=sys.executable, address=address, other=OTHER_SETTINGS, real=REAL))
    script.chmod(0o755)
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(address)
        listening.listen()
        server = subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno())], pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip
    try:
        yield bin_
    finally:
        server.terminate()
        server.wait()


# -- the process that forks --------------------------------------------------------------------------------


def serve(listening: socket.socket) -> None:
    """Fork a command for each request, until it is ended; return in the commands and in their workers."""
    for module in MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    own = dict(os.environ)
    while True:
        connection, _ = listening.accept()
        with closing(connection):
            head, streams, _, _ = socket.recv_fds(connection, 8, 3)
            words, place, environment = marshal.loads(_whole(connection, int.from_bytes(head, "big")))
            settings = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
            if not _alike(settings, own):
                connection.send(OTHER_SETTINGS)
            elif os.fork() == 0:
                listening.close()
                _run(connection, words, place, settings, streams)
                return
            for stream in streams:
                os.close(stream)
        while _ended():
            pass


def _alike(settings: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Return whether only settings differ that are read when they are used."""
    different = {name for name, _ in settings.items() ^ own.items()} - SET_BY_SHELLS
    return all(map(warm_workers.read_when_used, different))


def _ended() -> bool:
    """Return whether a child that had ended was there."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def _whole(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        data += connection.recv(length - len(data))
    return data


def _run(
    connection: socket.socket, words: list[str], place: str, settings: Mapping[str, str], streams: list[int]
) -> None:
    """Fork a command, and its workers when it asks; send its exit code."""
    from mldyno.worker import client

    to_command, to_workers = socket.socketpair()
    command = os.fork()
    if command == 0:
        to_command.close()
        connection.close()
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        os.chdir(place)
        os.environ.clear()
        os.environ.update(settings)
        client.__dict__["subprocess"] = _as_subprocess(warm_workers.Server(to_workers, settings), client.SCRIPT)
        sys.argv[:], sys.path[0] = [REAL, *words], os.path.dirname(REAL)
        import_module("mldyno.__main__").main()
        return
    to_workers.close()
    for stream in streams:
        os.close(stream)
    code = warm_workers.compiled(client.SCRIPT)
    sys.path[0] = os.path.dirname(client.SCRIPT)
    if warm_workers.fork_on_request(client.SCRIPT, code, to_command) is None:
        return
    connection.send(bytes([os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]) & 0xFF]))
    os._exit(0)


def _as_subprocess(workers: Any, script: str) -> SimpleNamespace:
    """Return what stands in for the module `subprocess` where a command starts its workers."""

    def popen(words: list[str], **options: Any) -> Any:
        if words == [sys.executable, script] and _alike(options["env"], workers.environment):
            return workers.fork(options["env"])
        return subprocess.Popen(words, **options)

    return SimpleNamespace(Popen=popen, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)


if __name__ == "__main__":
    sys.path.insert(1, os.path.dirname(os.path.dirname(__file__)))
    from tests import warm_workers

    serve(socket.socket(fileno=int(sys.argv[1])))
