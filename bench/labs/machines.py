"""Several machines on one: namespaces of network, host name, files and processes, with a cable to each.

`login` is where users are: the machine that starts the measuring. `node1`, `node2` are what is measured. Each has a
home, a /tmp and a /run of its own; all see the source tree and the lab's folder. No namespace has a name, so that any
number of labs can be there at once, and the kernel removes each with its last process: a guard ends a lab with the
process that made it, even after kill -9. The network of this machine is untouched. Needs root, iproute2 and util-linux
(Linux).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench.labs.tools import ROOT, MissingTool, needed

NETWORK = "10.77.0"
BARE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SIZE = "1g"  # of a home, and of a /tmp
START_S = 60.0
# A home, a /tmp and a /run; what lies below /tmp and is needed is mounted there again.
FILES = """
set -e
mount -t tmpfs none /run
mkdir -p /run/sshd /run/lock
n=0
for kept in $KEPT; do n=$((n+1)); mkdir /run/kept$n; mount --bind $kept /run/kept$n; done
mount -t tmpfs -o size=$SIZE,mode=1777 none /tmp
n=0
for kept in $KEPT; do n=$((n+1)); mkdir -p $kept; mount --move /run/kept$n $kept; done
mount -t tmpfs -o size=$SIZE none $HOME
mount --bind $PASSWD /etc/passwd
[ $NAME != login ] || mount --bind $SBIN /usr/local/sbin
mount --bind $HOSTS /etc/hosts
hostname $NAME
cd $HOME
echo ready
exec >/dev/null
sleep infinity &
wait
"""


@dataclass(frozen=True)
class Machine:
    """One of the lab's machines: the process that holds its namespaces, by its number here."""

    name: str
    address: str
    pid: int
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a service of this machine finds around itself."""
        return {"HOME": str(self.home), "PATH": BARE_PATH, "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh"}

    def words(self, *words: str) -> list[str]:
        """The words of a command that runs `words` there."""
        return ["nsenter", "-t", str(self.pid), "-p", "-m", "-n", "-u", "-w", *words]

    def run(self, *words: str, **environment: str) -> str:
        """Run a command there, and return what it printed."""
        done = subprocess.run(
            self.words(*words), env={**self.environment, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {shlex.join(words)}: code {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def start(self, *words: str, log: Path, **environment: str) -> None:
        """Start a service there, in the foreground; it belongs to the machine, not to this process."""
        background = f"exec </dev/null >>{shlex.quote(str(log))} 2>&1; {shlex.join(words)} &"
        self.run("setsid", "sh", "-c", background, **environment)

    def path(self, path: str | Path) -> Path:
        """Where a file of this machine is for us."""
        return Path(f"/proc/{self.pid}/root") / str(path).lstrip("/")

    def processes(self, word: str = "") -> list[psutil.Process]:
        """The processes there with a word in their command; not the one that holds the namespaces."""
        own = os.readlink(f"/proc/{self.pid}/ns/mnt")
        there = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.readlink(f"/proc/{process.pid}/ns/mnt") == own and process.status() != psutil.STATUS_ZOMBIE:
                    command = " ".join(process.cmdline())
                    if (
                        word in command
                        and process.pid != self.pid
                        and not command.startswith(("nsenter ", "sleep inf"))
                    ):
                        there.append(process)
        return there

    def fill_disk(self) -> None:
        """Leave no room in its home."""
        usage = os.statvfs(self.path(self.home))
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        self.run("mount", "-o", f"remount,size={max(used, 4096)}", "none", str(self.home))

    def empty_disk(self) -> None:
        """Give its home the room that it had."""
        self.run("mount", "-o", f"remount,size={SIZE}", "none", str(self.home))


@dataclass
class Lab:
    """The machines, the folder that all of them see, and the programs by which a user reaches them."""

    folder: Path
    head: Machine
    nodes: tuple[Machine, ...]

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (self.head, *self.nodes)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def programs(self) -> Path:
        """The folder of the programs that run at `login`: put it first in PATH."""
        return self.folder / "bin"

    def machine(self, name: str) -> Machine:
        return next(each for each in self.machines if each.name == name)

    def program(self, name: str, *words: str, **environment: str) -> None:
        """Make a program of the user's: it runs `words` with its own arguments, in the network of `login`.

        It is there for who logs in at `login`, and in `programs` for who is not in the lab.
        """
        settings = shlex.join(f"{key}={value}" for key, value in environment.items())
        enter = f"nsenter --net=/proc/{self.head.pid}/ns/net --uts=/proc/{self.head.pid}/ns/uts "
        for folder, before in ((self.programs, enter), (self.folder / "sbin", "")):
            path = folder / name
            path.write_text(f'#!/bin/sh\nexec {before}env {settings} {shlex.join(words)} "$@"\n', encoding="utf-8")
            path.chmod(0o755)

    def at_head(self, name: str, *words: str) -> str:
        """Run one of the lab's programs, and return what it printed; nothing where it fails."""
        done = subprocess.run([self.programs / name, *words], capture_output=True, text=True, check=False)
        return done.stdout

    def cut(self, name: str) -> None:
        """Pull a machine's cable."""
        self._cable(name, "down")

    def mend(self, name: str) -> None:
        """Plug it in again."""
        self._cable(name, "up")

    def _cable(self, name: str, state: str) -> None:
        _at(self.head.pid, "ip", "link", "set", f"to-{name}", state)


@contextmanager
def machines(count: int = 2) -> Iterator[Lab]:
    """A lab of a head and so many nodes, without any service."""
    needed("ip", "nsenter", "unshare", "mount")
    if os.geteuid() != 0:
        raise MissingTool("the labs make namespaces of networks, which only root may; run the tests as root")
    folder = Path(tempfile.mkdtemp(prefix="mldyno-lab-", dir="/tmp"))  # short: sockets lie in it
    folder.chmod(0o711)
    for part in ("home", "shared", "bin", "sbin", "log"):
        (folder / part).mkdir()
    addresses = {"login": f"{NETWORK}.1"}
    addresses |= {f"node{number}": f"{NETWORK}.{10 + number}" for number in range(1, count + 1)}
    named = "".join(f"{address} {name}\n" for name, address in addresses.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{named}", encoding="utf-8")
    users = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
    others = [line for line in users if not line.startswith(("root:", "sshd:"))]
    own = [f"root:x:0:0:root:{folder / 'home'}:/bin/sh", "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin"]
    (folder / "passwd").write_text("\n".join([*own, *others, ""]), encoding="utf-8")
    owner = os.pidfd_open(os.getpid())
    guard = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", sys.executable, "-I",
         str(Path(__file__).with_name("guard.py")), str(folder), str(owner)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(owner,), start_new_session=True, cwd="/",
    )  # fmt: skip
    os.close(owner)
    holders: list[subprocess.Popen[bytes]] = []
    try:
        _ready(guard, "the lab's guard")
        first = psutil.Process(guard.pid).children()[0].pid
        for name in addresses:
            holders.append(_holder(first, name, folder))
        made = [
            Machine(name, address, psutil.Process(holder.pid).children()[0].children()[0].pid, folder / "home")
            for (name, address), holder in zip(addresses.items(), holders, strict=True)
        ]
        _wire(made)
        yield Lab(folder, made[0], tuple(made[1:]))
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        for process in (guard, *holders):
            process.wait()


def _holder(guard: int, name: str, folder: Path) -> subprocess.Popen[bytes]:
    """Make the namespaces of a machine; return what waits for the process that holds them, which is its grandchild."""
    seen_by_all = dict.fromkeys([folder, ROOT, Path(sys.prefix), Path(sys.base_prefix)])
    kept = [path for path in seen_by_all if path.is_relative_to("/tmp")]
    settings = {
        "PATH": BARE_PATH, "HOME": str(folder / "home"), "NAME": name, "SIZE": SIZE, "PASSWD": str(folder / "passwd"),
        "SBIN": str(folder / "sbin"), "HOSTS": str(folder / "hosts"), "KEPT": shlex.join(map(str, kept)),
    }  # fmt: skip
    enter = ("nsenter", "-t", str(guard), "-p", "-m")
    make = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts")
    holder = subprocess.Popen(
        [*enter, *make, "sh", "-c", FILES], env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        start_new_session=True, cwd="/",
    )  # fmt: skip
    _ready(holder, name)
    return holder


def _wire(made: Sequence[Machine]) -> None:
    head, *nodes = made
    _at(head.pid, "ip", "link", "add", "hub", "type", "bridge")
    _at(head.pid, "ip", "addr", "add", f"{head.address}/24", "dev", "hub")
    for device in ("lo", "hub"):
        _at(head.pid, "ip", "link", "set", device, "up")
    for node in nodes:
        cable, far = f"to-{node.name}", str(node.pid)
        _at(head.pid, "ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", far)
        _at(head.pid, "ip", "link", "set", cable, "master", "hub", "up")
        _at(node.pid, "ip", "link", "set", "lo", "up")
        _at(node.pid, "ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
        _at(node.pid, "ip", "link", "set", "eth0", "up")


def _at(pid: int, *words: str) -> None:
    subprocess.run(["nsenter", "-t", str(pid), "-n", *words], check=True, capture_output=True)


def _ready(process: subprocess.Popen[bytes], what: str) -> None:
    assert process.stdout is not None
    with process.stdout as out:
        if out.readline() != b"ready\n":
            raise RuntimeError(f"{what} did not start: code {process.wait()}")


def wait_for(true: Callable[[], object], what: str, longest: float = START_S) -> None:
    """Wait until something is true; fail after so many s."""
    ends = time.monotonic() + longest
    while not true():
        if time.monotonic() > ends:
            raise RuntimeError(f"not within {longest:.0f} s: {what}")
        time.sleep(0.05)
