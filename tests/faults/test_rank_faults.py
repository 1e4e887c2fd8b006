"""Whatever befalls one rank of several: there is a record that names it, in time, and no process is left behind."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.faults.conftest import wait_for

from mldyno.records import Record
from mldyno.worker import start

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

pytestmark = pytest.mark.timeout(600)
RUN = ("run", "mnist-mlp", "--mode", "train", "--placement", "device", "--ranks", "2", "--batch", "16",
       "--repeats", "1", "--budget", "2s")  # fmt: skip
# Read by Python when it starts, be it a rank or what ranks are forked from: what the second rank does as soon as it
# trains.
CUSTOM = """
import os, sys
if os.environ.get("RANK") == "1" or any("warm_workers" in word for word in sys.orig_argv):
    import signal, time
    import torch
    ddp, seen = torch.nn.parallel.DistributedDataParallel, [0]
    begin, forward = ddp.__init__, ddp.forward
    def fault():
        return os.environ.get("MLDYNO_TEST_FAULT") if os.environ.get("RANK") == "1" else None
    def faulty_begin(self, *given, **more):
        if fault() == "raise":
            raise RuntimeError("broken on purpose")
        if fault() == "memory":
            raise MemoryError("no memory on purpose")
        begin(self, *given, **more)
    def faulty_forward(self, *given, **more):
        seen[0] += 1
        if fault() == "kill" and seen[0] > 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault() == "hang" and seen[0] > 20:
            time.sleep(3600)
        if fault() == "slow":
            time.sleep(0.01)
        return forward(self, *given, **more)
    ddp.__init__, ddp.forward = faulty_begin, faulty_forward
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where Python finds what it reads when it starts."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "sitecustomize.py").write_text(CUSTOM, encoding="utf-8")
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def measured(dyno: Dyno, path: str, fault: str, *more: str) -> Record:
    done = dyno.quickly(*RUN, *more, PYTHONPATH=path, MLDYNO_TEST_FAULT=fault)
    (record,) = dyno.records()
    assert done.code == (0 if record.status == "ok" else 3)
    return record


def test_a_rank_that_raises_before_the_first_step_is_named(dyno: Dyno, path: str) -> None:
    record = measured(dyno, path, "raise")
    assert (record.status, record.reason) == ("failed", "rank 1: RuntimeError: broken on purpose")


def test_a_rank_out_of_memory_makes_it_out_of_memory(dyno: Dyno, path: str) -> None:
    record = measured(dyno, path, "memory")
    assert (record.status, record.reason) == ("oom", "rank 1: no memory on purpose")


def test_a_rank_that_is_killed_is_named(dyno: Dyno, path: str) -> None:
    record = measured(dyno, path, "kill")
    assert (record.status, record.reason) == ("failed", "rank 1 was ended by SIGKILL")


def test_a_rank_that_hangs_ends_with_the_timeout(dyno: Dyno, path: str) -> None:
    record = measured(dyno, path, "hang", "--timeout", "5s")
    assert record.status == "timeout"


def test_a_rank_that_is_slower_than_the_others_is_named(dyno: Dyno, path: str) -> None:
    record = measured(dyno, path, "slow", "--budget", "0.3s")
    assert record.status == "ok", record.reason
    assert "rank 1 takes" in dyno("show", record.id[:10]).out


def test_when_what_started_the_ranks_is_killed_they_go_with_it(dyno: Dyno) -> None:
    process = dyno.start(*RUN, "--budget", "60s")

    def launchers() -> list[psutil.Process]:
        return [each for each in dyno.living() if start.LAUNCH in each.cmdline()]

    wait_for(lambda: any(len(each.children()) == 2 for each in launchers()), 120.0, "two ranks")
    os.kill(launchers()[0].pid, signal.SIGKILL)
    assert dyno.finish(process).code == 3
    (record,) = dyno.records()
    assert record.status == "failed"


def test_more_ranks_than_cores_are_allowed_and_warned_of(dyno: Dyno, path: str) -> None:
    ranks = (os.cpu_count() or 1) + 1
    dyno.quickly("run", "mnist-linear", "--mode", "train", "--placement", "device", "--ranks", str(ranks), "--batch",
                 "8", "--repeats", "1", "--budget", "0.3s", PYTHONPATH=path)  # fmt: skip
    (record,) = dyno.records()
    assert record.status == "ok", record.reason
    assert "oversubscribed" in [warning.code for warning in record.warnings]
