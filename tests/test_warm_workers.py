"""A worker that tests fork behaves as one that is started."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import psutil
import pytest
from tests.warm_workers import Forked, WarmWorkers

from mldyno.axes import Case
from mldyno.messages import ProbeFrameworks
from mldyno.results import Results
from mldyno.worker import client
from mldyno.worker.client import Ended, WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
FAKE = Case("mlp", framework="fake")


@pytest.mark.parametrize("framework", ["fake", "torch"])
def test_it_answers_as_one_that_is_started(framework: str, warm_workers: WarmWorkers) -> None:
    answers = []
    for warm_workers.on in (False, True):
        with WorkerProcess(case=Case("mlp", framework=framework)) as worker:
            assert isinstance(worker._process, Forked) == warm_workers.on
            answers.append(worker.request(ProbeFrameworks((framework,)), 120))
    assert answers[0] == answers[1]


def test_it_measures_as_one_that_is_started(fake_run: Callable[..., Results], warm_workers: WarmWorkers) -> None:
    taken = []
    for warm_workers.on in (False, True):
        (record,) = fake_run("mlp", mode="infer", device="gpu", steps=40).records
        taken.append([(each.metric, each.stage, each.values) for each in record.series if each.metric == "step_time"])
    assert taken[0] == taken[1]


def test_it_has_a_session_and_its_end_is_seen_by_its_signal() -> None:
    with WorkerProcess(case=FAKE) as worker:
        assert worker._process is not None
        pid = worker._process.pid
        assert os.getsid(pid) == pid != os.getsid(0)
        assert worker._process.poll() is None
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(Ended, match="ended by SIGTERM"):
            worker.request(ProbeFrameworks(("fake",)), 120)
        assert worker._process.poll() == -signal.SIGTERM


def test_settings_that_matter_while_modules_are_imported_get_another_process_that_forks(
    monkeypatch: pytest.MonkeyPatch, warm_workers: WarmWorkers
) -> None:
    warm_workers.framework = "fake"
    usual = warm_workers.server(os.environ)
    for name, same in (("MLDYNO_FAKE", True), ("OMP_NUM_THREADS", False), ("PYTHONPATH", False), ("MLDYNO_SIM", False)):
        with monkeypatch.context() as patch:
            patch.setenv(name, "7")
            server = warm_workers.server(os.environ)
            assert (server is usual) == same
            assert server is warm_workers.server(os.environ)
            assert same or server.environment[name] == "7"


def test_ranks_are_forked_too(warm_workers: WarmWorkers) -> None:
    case = Case("mnist-mlp", framework="torch", mode="train", batch=2, ranks=2)
    with WorkerProcess(case=case) as worker:
        assert isinstance(worker._process, Forked)
        launcher = psutil.Process(worker._process.pid)
        assert [*worker.request(ProbeFrameworks(("torch",)), 120).frameworks] == ["torch"]
        while len(ranks := launcher.children()) < 2:  # on a busy machine the first one answers earlier
            time.sleep(0.01)
        assert len(ranks) == 2
        assert all("warm_workers.py" in " ".join(rank.cmdline()) for rank in ranks)


def test_another_interpreter_and_another_script_need_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SCRIPT", os.devnull)
    with WorkerProcess(case=FAKE) as worker:
        assert not isinstance(worker._process, Forked)
