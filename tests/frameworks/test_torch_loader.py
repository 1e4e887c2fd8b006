"""Batches from a data set by PyTorch's DataLoader: with workers the same ones, and no worker outlives its process."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tests.datasets.tiny_set import generate, read
from tests.frameworks.test_every_framework import started

from mldyno import datasets, plugins
from mldyno.frameworks import Unsupported
from mldyno.frameworks.torch.loader import Items
from mldyno.records import Case
from mldyno.worker.session import CaseSession

PATIENCE_S = 60.0  # for processes to come and to go
HOLDS_WORKERS = """
import sys, time
from pathlib import Path
from tests.frameworks.test_torch_loader import opened, small
program = opened(small(Path(sys.argv[1])), loader_workers=2)
program.load_first()
print("loaded", flush=True)
time.sleep(600)
"""


def small(folder: Path) -> datasets.Opened:
    """A data set of 200 and 100 items in files of a folder."""
    return datasets.Opened("tiny", "synthetic", *read(folder), (0.5,), (0.3,))


@pytest.fixture
def data(tmp_path: Path) -> datasets.Opened:
    generate(tmp_path, lambda size: None)
    return small(tmp_path)


def opened(data: datasets.Opened, **axes: Any) -> Any:
    case = Case("mnist-linear", **{"mode": "train", "batch": 16, "placement": "loader", **axes})
    return started("torch").open(case, plugins.workload(case.workload).build["torch"], data)


def workers() -> list[psutil.Process]:
    """The processes that this one has started, but for those that serve all others."""
    return [each for each in psutil.Process().children() if "resource_tracker" not in " ".join(each.cmdline())]


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    before = workers()
    yield
    psutil.wait_procs([each for each in workers() if each not in before], timeout=PATIENCE_S)
    assert [each for each in workers() if each not in before] == []


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("number", [1, 2])
def test_workers_give_the_same_batches_in_the_same_order_over_all_epochs(
    data: datasets.Opened, mode: str, number: int
) -> None:
    alone, helped = opened(data, mode=mode), opened(data, mode=mode, loader_workers=number, prefetch=3)
    for program in (alone, helped):
        assert program.load_first()
    pairs = list(itertools.islice(zip(alone.batches, helped.batches, strict=True), 30))
    assert all(torch.equal(mine, theirs) for batches in pairs for mine, theirs in zip(*batches, strict=True))
    for batches in zip(alone.loader.held_out(), helped.loader.held_out(), strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(*batches, strict=True))
    helped.end()


def test_workers_stay_for_the_next_epoch_and_go_with_the_program(data: datasets.Opened) -> None:
    before = set(workers())
    program = opened(data, loader_workers=2)
    program.load_first()
    first = set(workers()) - before
    assert len(first) == 2
    program.run(30)  # of which an epoch has 12
    assert set(workers()) - before == first
    program.end()


@pytest.fixture
def _spawn() -> Iterator[None]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def test_the_workers_of_an_epoch_start_before_it_and_change_no_order(data: datasets.Opened) -> None:
    before = set(workers())
    alone, helped = opened(data), opened(data, loader_workers=2)
    helped.prepare_phases()
    ready = set(workers()) - before
    assert len(ready) == 4
    for _ in range(2):
        for batches in zip(alone.loader.epoch(), helped.loader.epoch(), strict=True):
            assert all(torch.equal(mine, theirs) for mine, theirs in zip(*batches, strict=True))
    helped.run_phase("epoch")
    assert set(workers()) - before == ready
    helped.end()


@pytest.mark.usefixtures("_spawn")
def test_workers_that_are_spawned_as_on_macos_are_ready_before_an_epoch_is_timed(data: datasets.Opened) -> None:
    before = set(workers())
    program = opened(data, mode="infer", loader_workers=1)
    program.prepare_phases()
    ready = set(workers()) - before
    assert ["spawn_main" in " ".join(each.cmdline()) for each in ready] == [True]
    program.run_phase("epoch")
    assert set(workers()) - before == ready
    program.end()


def test_what_a_worker_gets_can_be_pickled_and_holds_no_module(data: datasets.Opened) -> None:
    items = Items(torch, data, data.train)
    copied = pickle.loads(pickle.dumps(items))
    assert torch.equal(copied[7][0], items[7][0])
    assert copied[7][1] == items[7][1]


def test_what_was_loaded_ahead_can_be_let_go_and_blocks_hold_a_turn_of_each_worker(data: datasets.Opened) -> None:
    plain, program = opened(data), opened(data, loader_workers=2, prefetch=4)
    assert (plain.loads_ahead, plain.steps_in_cycle) == (0, 1)
    assert (program.loads_ahead, program.steps_in_cycle) == (8, 2)
    expected = list(itertools.islice(plain.batches, 9))[8]
    program.drop_loaded()
    assert torch.equal(next(program.batches)[0], expected[0])
    program.end()


def test_a_case_with_workers_tells_its_first_batch_apart_and_has_no_reference_kernel(data: datasets.Opened) -> None:
    program = opened(data, loader_workers=2)
    session = CaseSession(program.case, started("torch"), program, {})
    facts: Any = session.warm_up(0.5).facts
    assert facts["first_batch"] > 0
    assert facts["block_steps"] % 2 == 0
    assert "reference_size" not in facts
    assert {series.metric for series in session.turn(0.1).series} == {"step_time"}
    program.end()


def test_pinned_memory_on_the_cpu_is_unsupported(data: datasets.Opened) -> None:
    with pytest.raises(Unsupported, match=r"pinned memory is for copies to CUDA or XPU; on cpu PyTorch pins nothing"):
        opened(data, pin_memory=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a process with its parent")
def test_no_worker_outlives_a_process_that_was_killed(data: datasets.Opened, tmp_path: Path) -> None:
    command, paths = [sys.executable, "-c", HOLDS_WORKERS, str(tmp_path)], {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **paths}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"loaded\n"
        theirs = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGKILL)
    assert len(theirs) == 2
    until = time.monotonic() + PATIENCE_S
    while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in theirs):
        assert time.monotonic() < until
        time.sleep(0.05)
