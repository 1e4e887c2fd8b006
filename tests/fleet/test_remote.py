"""The remote runner as a process, with this test as its conductor."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mldyno.fleet import wire
from mldyno.fleet.boot import RUN as START
from mldyno.fleet.wheel import LOADER
from mldyno.machine_lock import HELD, held
from mldyno.store import Query, Store
from mldyno.store.codec import decode

RUN = "20260101T000000-abcdef"
DEADLINE_S = 60.0  # for whatever must happen, on however busy a machine


class Remote:
    """A remote runner, and what it has said so far."""

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, **options)
        self.said: list[wire.Said] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def gone(self) -> None:
        """End it, and close its pipes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self._thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with suppress(OSError):
                stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def ask(self, request: wire.Request) -> None:
        """Send a request, when it has said hello."""
        self.until(lambda said: isinstance(said, wire.Hello))
        self.write(wire.line_of(request))

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def until(self, enough: Callable[[wire.Said], bool]) -> wire.Said:
        """Hear what it says until that is enough."""
        while True:
            line = self._lines.get(timeout=DEADLINE_S)
            assert line, f"ended without it: {self.said[-3:]}"
            self.said.append(wire.said(line))
            if enough(self.said[-1]):
                return self.said[-1]

    def record(self) -> wire.Measured:
        said = self.until(lambda said: isinstance(said, wire.Measured))
        assert isinstance(said, wire.Measured)
        return said

    def end(self) -> wire.End:
        """Hear its end, and wait for that of the process."""
        said = self.until(lambda said: isinstance(said, wire.End))
        assert isinstance(said, wire.End)
        assert self.process.wait(DEADLINE_S) == 0
        return said

    @property
    def ids(self) -> set[str]:
        return {decode(said.record).id for said in self.said if isinstance(said, wire.Measured)}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a host."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def remote(data: Path) -> Iterator[Callable[..., Remote]]:
    """Starts remote runners; none lives longer than the test."""
    started: list[Remote] = []

    def start(**options: Any) -> Remote:
        started.append(Remote([sys.executable, "-c", START, "fleet", "remote"], **options))
        return started[-1]

    yield start
    for each in started:
        each.gone()


def measuring(repeats: int = 1, **options: Any) -> wire.Request:
    """Ask for cases of the fake framework."""
    given = {"framework": ["fake"], "mode": ["infer"], "repeats": repeats, **options}
    return wire.Request("measure", RUN, "node1", ("mlp",), given, login=True, known={RUN: ()})


def own_store(data: Path) -> Store:
    """The store of the remote runners of a host."""
    (path,) = (data / "mldyno" / "fleet").glob("*.sqlite")
    return Store(path)


def stored(data: Path) -> set[str]:
    return set(own_store(data).ids(Query({"run": RUN, "imported_from": ""}, heads=False)))


def test_it_says_hello_measures_and_ends_and_its_own_store_has_what_it_sent(
    remote: Callable[..., Remote], data: Path
) -> None:
    host = remote()
    host.ask(measuring(2))
    assert host.end() == wire.End("done")
    (hello, *_) = host.said
    assert isinstance(hello, wire.Hello)
    assert hello.pid == host.process.pid
    assert host.ids == stored(data)
    assert len(host.ids) == 2
    (first, _) = own_store(data).select(Query({"run": RUN}, provenances=("measured",)))
    assert (first.run.id, first.machine.name) == (RUN, "node1")


def test_a_second_contact_of_a_run_measures_what_is_missing_and_sends_what_is_not_known(
    remote: Callable[..., Remote], data: Path
) -> None:
    host = remote()
    host.ask(measuring(500))
    first = host.record()
    host.record()
    host.close()
    assert host.end().status == "interrupted"
    before = stored(data)
    known = decode(first.record).id
    again = remote()
    again.ask(wire.Request(**{**vars(measuring(500)), "known": {RUN: (known,)}, "purpose": "measure"}))
    while len(again.ids) < len(before) - 1:
        again.record()
    assert again.ids == before - {known}


@pytest.mark.parametrize("how", ["silence", "SIGTERM", "SIGINT"])
def test_however_it_is_ended_it_ends_tidily_and_keeps_what_was_measured(
    how: str, remote: Callable[..., Remote], data: Path
) -> None:
    host = remote()
    host.ask(wire.Request(**{**vars(measuring(1000)), "silent": 0.5 if how == "silence" else 60.0}))
    if how != "silence":
        host.record()
        host.process.send_signal(signal.Signals[how])
    end = host.end()
    assert end.status == "interrupted"
    assert ("nothing was heard for 0.5 s" if how == "silence" else how) in end.reason
    assert host.ids == stored(data)


def test_it_ends_though_its_engine_has_blocked_the_signal(remote: Callable[..., Remote]) -> None:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    host = remote(preexec_fn=block)
    host.ask(measuring(1000))
    host.record()
    host.close()
    assert host.end().status == "interrupted"


def test_a_contact_that_was_stopped_is_ended_by_the_next_one_of_its_run(
    remote: Callable[..., Remote], data: Path
) -> None:
    stopped = remote()
    stopped.ask(measuring(1000))
    stopped.record()
    stopped.process.send_signal(signal.SIGSTOP)
    threading.Thread(target=stopped.process.wait).start()  # its end is noticed, as by a shell
    again = remote()
    again.ask(measuring(1000))
    again.record()
    assert stopped.process.wait(DEADLINE_S) is not None
    again.close()
    assert again.end().status == "interrupted"
    assert again.ids == stored(data)


def test_a_machine_that_has_two_names_in_a_run_is_measured_once(remote: Callable[..., Remote]) -> None:
    first, second = remote(), remote()
    first.ask(replace(measuring(1000), host="a"))
    first.record()
    second.ask(replace(measuring(1000), host="b"))
    assert second.end() == wire.End("refused", "it is the same machine as a; name it once")
    first.close()
    assert first.end().status == "interrupted"


def test_a_user_s_files_are_there_by_their_names_and_gone_afterwards(
    remote: Callable[..., Remote], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    suite = '[[cases]]\nworkload = ["mlp"]\nframework = ["fake"]\nmode = ["infer"]\nbatch = [4, 8]\n'
    host = remote()
    host.ask(wire.Request("measure", RUN, "node1", ("small.toml",), {"repeats": 1}, files={"small.toml": suite},
                          login=True, known={RUN: ()}))  # fmt: skip
    assert host.end() == wire.End("done")
    assert len(host.ids) == 2
    assert not [*tmp_path.glob("mldyno-*")]


def test_devices_mean_what_is_there(remote: Callable[..., Remote]) -> None:
    host = remote()
    host.ask(measuring(device=["all"]))
    assert host.end().status == "done"
    devices = {decode(said.record).case.device for said in host.said if isinstance(said, wire.Measured)}
    assert devices == {"cpu", "gpu"}


def test_a_command_is_timed_with_the_environment_of_the_hosts_file(remote: Callable[..., Remote]) -> None:
    host = remote()
    host.ask(wire.Request("measure", RUN, "node1", (), {"budget": 0.1}, ("sh", "-c", "exit $CODE"), env={"CODE": "0"},
                          login=True, known={RUN: ()}))  # fmt: skip
    assert host.end().status == "done"
    assert {decode(said.record).status for said in host.said if isinstance(said, wire.Measured)} <= {"ok", "unsteady"}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (wire.Request("measure", RUN, targets=("mlq",), login=True), "unknown workload or suite 'mlq'"),
        (wire.Request("measure", RUN, targets=("mlp",), options={"budget": "soon"}, login=True), "soon"),
        (wire.Request("measure", RUN, targets=("../x.py",), files={"../x.py": ""}, login=True), "not the name of a"),
    ],
)
def test_what_can_t_be_done_there_is_one_line(
    request_: wire.Request, reason: str, remote: Callable[..., Remote]
) -> None:
    host = remote()
    host.ask(request_)
    end = host.end()
    assert (end.status, reason in end.reason) == ("failed", True)


def test_a_line_that_is_no_request_is_refused(remote: Callable[..., Remote]) -> None:
    host = remote()
    host.write(b"measure everything\n")
    assert host.end().status == "refused"


def test_a_login_node_is_not_measured(
    remote: Callable[..., Remote], tool: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("sinfo", "true")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    host = remote()
    host.ask(wire.Request("measure", RUN, targets=("mlp",), options={"framework": ["fake"]}))
    end = host.end()
    assert (end.status, "login node" in end.reason) == ("refused", True)


def test_a_full_disk_there_still_sends_what_was_measured(
    remote: Callable[..., Remote], data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import resource

    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))

    host = remote(preexec_fn=limited)
    host.ask(measuring(200))
    end = host.end()
    assert (end.status, "store" in end.reason) == ("failed", True)
    assert host.ids > stored(data)


def test_a_dry_run_measures_nothing(remote: Callable[..., Remote], data: Path) -> None:
    host = remote()
    host.ask(wire.Request("dry-run", "", "node1", ("mlp",), {"framework": ["fake"]}, login=True))
    assert host.end() == wire.End("done")
    cases = [said.case for said in host.said if isinstance(said, wire.Expected)]
    assert cases == ["mlp/train/fake/cpu/fp32/b128/device", "mlp/infer/fake/cpu/fp32/b128/device"]
    assert not [*(data / "mldyno" / "fleet").glob("*.sqlite")]


def test_an_end_of_input_before_the_request_leaves_no_process(remote: Callable[..., Remote]) -> None:
    host = remote()
    host.close()
    assert host.process.wait(DEADLINE_S) is not None


def test_it_is_found_by_an_interpreter_that_gets_its_first_line(data: Path) -> None:
    from mldyno.fleet.wheel import boot_line

    host = Remote([sys.executable, "-c", LOADER], cwd=os.devnull.rpartition("/")[0])
    host.write(boot_line())
    host.ask(wire.Request("dry-run", "", "node1", ("mlp",), {"framework": ["fake"]}, login=True))
    assert host.end() == wire.End("done")
    host.gone()


def test_a_host_on_which_another_process_measures_says_so_at_once_and_measures_nothing(
    remote: Callable[..., Remote], data: Path
) -> None:
    with held():
        host = remote(env={name: value for name, value in os.environ.items() if name != HELD})
        host.ask(wire.Request("measure", RUN, "node1", command=("true",), login=True, known={RUN: ()}))
        end = host.end()
    assert end.status == "busy"
    if sys.platform == "linux":
        assert end.reason.startswith(f"process {os.getpid()} of ")
    assert host.ids == set()
