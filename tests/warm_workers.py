"""Workers forked from a process that has imported their modules already, which is most of what starting one costs.

They are processes like any other: a session, pipes, an exit code, and signals that end them. Only the interpreter's
start and the imports are shared, by workers with the same settings of what is imported. Ranks are forked from what
starts them. Other interpreters are started as usual, and so are all workers on systems other than Linux.

Run as a script, this file is the process that forks; it uses the standard library only.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

METERS = tuple(f"mldyno.hardware.{name}" for name in ("apple", "battery", "linux", "nvidia", "plug"))
MODULES = {  # that each kind of process imports before it forks
    "plain": ("mldyno.worker.listen", "mldyno.frameworks.fake", "mldyno.frameworks.program", *METERS),
    "torch": (  # its optimisers import torch._dynamo, which takes as long
        "torch", "torch._dynamo", "mldyno.worker.listen", "mldyno.worker.launch", "mldyno.frameworks.torch.ranks",
        *METERS,
    ),
}  # fmt: skip
KINDS = {"torch": "torch", "onnxruntime": "torch", "openvino": "torch", None: "torch"}  # by a case's framework
READ_WHEN_USED = (
    "MLDYNO_", "PYTEST_", "FAKE_", "HF_", "XDG_", "GIT_", "GLOO_", "TORCHINDUCTOR_", "TMPDIR", "HOME", "PATH",
    "COLUMNS", "LINES", "NO_COLOR", "TERM",
)  # fmt: skip
SIMULATED = "MLDYNO_SIM"  # the simulated device: that there is one matters at the start, which one when it forks
MOST_RARE = 3  # processes that are kept for settings that few workers have
MESSAGE_LENGTH = 8  # B in front of each message
Settings = frozenset[tuple[str, str]]


# -- the process that forks --------------------------------------------------------------------------------


def serve(script: str, connection: socket.socket, modules: Sequence[str]) -> int | None:
    """Fork a worker for each request; return None in the worker, and 0 when nobody asks any more."""
    code = compiled(script)
    sys.argv[:], sys.path[0] = [script], os.path.dirname(script)
    names: dict[str, Any] = {"__name__": "start", "__file__": script}
    exec(code, names)
    names["_own_package"]()
    for module in modules:
        import_module(module)
    gc.collect()
    gc.freeze()
    return fork_on_request(script, code, connection)


def compiled(script: str) -> Any:
    """Return the code of a script."""
    with open(script, encoding="utf-8") as file:
        return compile(file.read(), script, "exec")


def fork_on_request(script: str, code: Any, connection: socket.socket) -> int | None:
    """Fork a worker for each request; return None in the worker, and 0 when nobody asks any more."""
    while request := _receive(connection):
        if "reap" in request:
            _, status, usage = os.wait4(request["reap"], 0)
            _send(connection, {"code": os.waitstatus_to_exitcode(status), "cpu": usage.ru_utime + usage.ru_stime})
            continue
        leads, now_leads = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: those of OpenBLAS, which is prepared
            child = os.fork()
        if child == 0:
            os.setsid()
            os.close(leads)
            os.close(now_leads)
            connection.close()
            _become_worker(script, code, request)
            return None
        for pipe in (now_leads, *request["pipes"]):
            os.close(pipe)
        os.read(leads, 1)  # to its end: then the worker leads a session, as one does that Popen has started
        os.close(leads)
        _send(connection, {"pid": child})
    return 0


def _become_worker(script: str, code: Any, request: dict[str, Any]) -> None:
    """Be the worker from here on, as if the script had just been started."""
    for target, pipe in enumerate(request["pipes"]):
        os.dup2(pipe, target)
        os.close(pipe)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if "simulated_device" in sys.modules:
        sys.modules["simulated_device"].begin()
    if request["arguments"]:  # ranks are to be started
        import_module("mldyno.worker.launch").__dict__["subprocess"] = SimpleNamespace(Popen=partial(_fork_rank, code))
    _run(code, [script, *request["arguments"]])


def _run(code: Any, words: Sequence[str]) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__file__"], sys.argv[:] = words[0], words
    exec(code, main.__dict__)


def _fork_rank(code: Any, words: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int]) -> Any:
    """Fork a rank from what starts it; it inherits all sockets, not only those of `pass_fds`."""
    if child := os.fork():
        return SimpleNamespace(pid=child)
    os.environ.clear()
    os.environ.update(env)
    try:
        _run(code, words[1:])
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
    raise SystemExit


def _send(connection: socket.socket, message: dict[str, Any], pipes: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    head = len(data).to_bytes(MESSAGE_LENGTH, "big")
    connection.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", pipes))] if pipes else [])
    connection.sendall(data)


def _receive(connection: socket.socket) -> dict[str, Any]:
    """Return the next message, with the pipes that came with it; nothing where the other side has gone."""
    head, pipes, _, _ = socket.recv_fds(connection, MESSAGE_LENGTH, 3)
    if not head:
        return {}
    length, data = int.from_bytes(head, "big"), b""
    while len(data) < length:
        data += connection.recv(length - len(data))
    message: dict[str, Any] = json.loads(data)
    return {**message, "pipes": pipes} if pipes else message


# -- the side of the tests ---------------------------------------------------------------------------------


class Forked:
    """A forked worker, by the part of Popen's interface that the client of a worker uses."""

    def __init__(self, server: Server, pid: int, pipes: Sequence[int]) -> None:
        self.pid, self._server = pid, server
        self._ended = os.pidfd_open(pid)
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(pipe, mode) for pipe, mode in zip(pipes, ("wb", "rb", "rb"), strict=True)
        )
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, which is negative where a signal ended it."""
        with self._server.lock:
            if self.returncode is not None:
                return self.returncode
        wait = select.poll()
        wait.register(self._ended, select.POLLIN)
        if not wait.poll(None if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        with self._server.lock:
            if self.returncode is None:
                self.returncode = self._server.reap(self.pid)
                os.close(self._ended)
            return self.returncode


class Server:
    """The other end of the connection to a process that forks workers."""

    def __init__(self, connection: socket.socket, environment: Mapping[str, str]) -> None:
        self.lock = threading.RLock()
        self.environment = dict(environment)
        self.forked = 0
        """Workers that have not ended yet."""
        self.cpu = 0.0
        """CPU time in s of the workers that have ended."""
        self._connection = connection

    def fork(self, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Forked:
        """Start a worker with these settings in its environment, and these arguments of its script."""
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
        with self.lock:
            request = {"environment": dict(environment), "arguments": list(arguments), "folder": os.getcwd()}
            _send(self._connection, request, (stdin, stdout, stderr))
            pid = _receive(self._connection)["pid"]
            self.forked += 1
        for pipe in (stdin, stdout, stderr):
            os.close(pipe)
        return Forked(self, pid, (to_stdin, from_stdout, from_stderr))

    def reap(self, pid: int) -> int:
        """Return the exit code of a worker that has ended."""
        _send(self._connection, {"reap": pid})
        answer = _receive(self._connection)
        self.cpu += answer["cpu"]
        self.forked -= 1
        return int(answer["code"])


class OwnServer(Server):
    """A process that forks workers; it ends with this one."""

    def __init__(self, script: str, kind: str, environment: Mapping[str, str]) -> None:
        connection, other = socket.socketpair()
        super().__init__(connection, environment)
        self._process = subprocess.Popen(
            [sys.executable, __file__, script, str(other.fileno()), *MODULES[kind]],
            env=self.environment, start_new_session=True, pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        other.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.wait()


class WarmWorkers:
    """Starts workers by forking where that makes no difference.

    There is a process that forks for each kind and for each set of settings that are read while modules are imported.
    """

    def __init__(self, script: str) -> None:
        self._script = script
        self._environment = dict(os.environ)
        self._servers: dict[tuple[str, Settings], OwnServer] = {}
        self.framework: str | None = None
        """The framework of the next worker; None where it is not known."""
        self.on = True
        """Whether workers are forked now."""
        self.as_subprocess = SimpleNamespace(
            Popen=self.popen, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
        )
        """What stands in for the module `subprocess` where workers are started."""

    def popen(self, words: Sequence[str], **options: Any) -> Any:
        """Fork a worker, or start whatever else is asked for."""
        if self.on and sys.platform == "linux" and list(words[:2]) == [sys.executable, self._script]:
            return self.server(options["env"]).fork(options["env"], words[2:])
        return subprocess.Popen(words, **options)

    def server(self, environment: Mapping[str, str]) -> OwnServer:
        """Return a process that forks workers with this environment, started when it is first needed."""
        settings = frozenset(
            each for each in environment.items() ^ self._environment.items() if not read_when_used(each[0])
        )
        if SIMULATED in environment:
            settings |= {(SIMULATED, "")}
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        if any(folder and not os.path.isabs(folder) for folder in folders):
            settings |= {("folder", os.getcwd())}  # in which the process that forks is started
        kind = KINDS.get(self.framework, "plain")
        if SIMULATED in environment:
            kind = "torch"  # which it imports
        elif self.framework is None and settings and ("torch", settings) not in self._servers:
            kind = "plain"
        if (kind, settings) not in self._servers:
            self._end_unused()
            own = {name: value for name, value in self._environment.items() if read_when_used(name)}
            read_at_start = {
                name: value for name, value in environment.items() if not read_when_used(name) or name == SIMULATED
            }
            self._servers[kind, settings] = OwnServer(self._script, kind, own | read_at_start)
        return self._servers[kind, settings]

    def _end_unused(self) -> None:
        """End processes that fork for rare settings, oldest first, until only some are left."""
        rare = [key for key, server in self._servers.items() if key[1] and not server.forked]
        for key in rare[: max(0, len(rare) - MOST_RARE)]:
            self._servers.pop(key).close()

    @property
    def processes(self) -> set[int]:
        """The numbers of the processes that fork."""
        return {server.pid for server in self._servers.values()}

    def close(self) -> None:
        """End the processes that fork."""
        for server in self._servers.values():
            server.close()


def read_when_used(name: str) -> bool:
    """Return whether a setting is read only when it is used, by whatever modules were imported before."""
    return name.startswith(READ_WHEN_USED)


def without_warm_workers(warm_workers: WarmWorkers) -> Iterator[None]:
    """Start workers for real within a file; a folder's conftest makes a fixture of it."""
    warm_workers.on = False
    yield
    warm_workers.on = True


if __name__ == "__main__":
    ended = serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
    sys.exit(ended)
