"""PostgreSQL on one machine of a lab: by a Unix socket in the lab's folder, and by TCP inside the lab only."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench.labs.machines import Lab, machines, wait_for
from bench.labs.tools import Tools, needed

OWNER, PORT = "mldyno", 54329
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")  # PostgreSQL refuses to run as root


@dataclass
class Server:
    """A server with an empty database, which trusts whoever can reach it."""

    lab: Lab

    @property
    def folder(self) -> Path:
        return self.lab.folder / "postgres"

    def url(self, database: str = "postgres", user: str = OWNER) -> str:
        """Return the URL of a database by the socket, for a process that is not in the lab."""
        return f"postgresql://{user}@/{database}?host={self.folder}&port={PORT}"

    def start(self) -> None:
        """Start it, also after `kill`: PostgreSQL then recovers first."""
        tools = Tools("postgres")
        settings = ["-c", f"listen_addresses={self.lab.head.address}", "-c", f"unix_socket_directories={self.folder}"]
        words = [tools.program("postgres"), "-D", str(self.folder / "data"), "-p", str(PORT), *settings]
        self.lab.head.start(*AS_NOBODY, *words, log=self.lab.folder / "log" / "postgres", **tools.environment)
        wait_for(self.answers, "PostgreSQL")

    def answers(self) -> bool:
        """Return whether it takes connections."""
        words = [Tools("postgres").program("pg_isready"), "-q", "-h", str(self.folder), "-p", str(PORT)]
        return subprocess.run(words, check=False, env=Tools("postgres").environment).returncode == 0

    def processes(self) -> list[psutil.Process]:
        """All processes of the server."""
        return self.lab.head.processes("postgres")

    def kill(self) -> None:
        """End all of it by kill -9, and wait until none is left."""
        while there := self.processes():
            for process in there:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(there, timeout=1)


@contextmanager
def postgres() -> Iterator[Server]:
    """A new server in a lab of its own."""
    needed("setpriv")
    tools = Tools("postgres")
    with machines(0) as lab:
        server = Server(lab)
        server.folder.mkdir()
        server.folder.chmod(0o777)
        make = [tools.program("initdb"), "-D", str(server.folder / "data"), "-U", OWNER, "-A", "trust", "--no-locale"]
        lab.head.run(*AS_NOBODY, *make, "-E", "UTF8", "--no-sync", **tools.environment, HOME=str(server.folder))
        server.start()
        yield server
