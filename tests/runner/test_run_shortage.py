"""Memory that other programs took: it is said, waited for, and charged to no case."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mldyno import api
from mldyno.errors import MldynoError
from mldyno.records import Case, Record
from mldyno.results import Results
from mldyno.runner.events import Listener
from mldyno.runner.probing import Search
from mldyno.store import Store
from mldyno.views.outcomes import trust
from mldyno.worker import client, process_tree
from mldyno.worker.process_tree import taken_by_others

FakeRun = Callable[..., Results]
GIB = 1 << 30


class Others:
    """Programs that fill a machine of 24 GiB from a certain worker on, and leave when they were waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, from_worker: int = 1, leaves: bool = True) -> None:
        self.from_worker, self.leaves, self.workers, self.naps = from_worker, leaves, 0, 0
        monkeypatch.setattr(process_tree, "total", lambda: 24 * GIB)
        monkeypatch.setattr(process_tree, "reserve", lambda: GIB)
        monkeypatch.setattr(client, "reserve", lambda: GIB)
        monkeypatch.setattr(client, "WATCH_EVERY_S", 0.01)
        monkeypatch.setattr(process_tree, "PATIENCE_S", 5.0)
        monkeypatch.setattr("mldyno.machine.available_memory", self.available)
        monkeypatch.setattr("time.sleep", self.wait)
        start = client.WorkerProcess.start

        def counted(worker: client.WorkerProcess) -> None:
            self.workers += 1
            start(worker)

        monkeypatch.setattr(client.WorkerProcess, "start", counted)

    @property
    def here(self) -> bool:
        """Whether they have the memory now."""
        return self.workers >= self.from_worker and not (self.leaves and self.naps)

    def available(self) -> int:
        """Memory in B that is left."""
        return GIB // 2 if self.here else 22 * GIB

    def wait(self, seconds: float) -> None:
        """Instead of sleeping."""
        self.naps += 1


class Waits(Listener):
    """Notes what is waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def waiting(self, case: Case, reason: str) -> None:
        """Why."""
        self.lines.append(f"{case.id}: {reason}")


def no_oom(records: list[Record]) -> bool:
    return not any(record.status == "oom" or "not run" in record.reason for record in records)


def test_it_is_waited_for_and_the_case_is_measured_once_more(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, heard = Others(monkeypatch), Waits()
    (record,) = fake_run(mode="infer", listener=heard).records
    assert record.status == "ok"
    assert [warning.code for warning in record.warnings] == ["memory-taken"]
    assert (others.workers, others.naps) == (2, 1)
    (line,) = heard.lines
    assert line.startswith(
        "mlp/infer/fake/cpu/fp32/b128/device: the machine ran out of memory, but this case held only "
    )
    assert "; other programs hold 23." in line
    assert line.endswith("; waiting 5.00 s at most")


def test_where_it_does_not_come_back_the_case_failed_and_nothing_else_is_blocked(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, heard = Others(monkeypatch, leaves=False), Waits()
    results = fake_run(mode="infer", batch=[8, 16, 32], repeats=3, listener=heard)
    assert [record.status for record in results.records] == ["failed"] * 3, "each case once, and no repeat"
    assert all("other programs hold 23." in record.reason for record in results.records)
    assert not results.all_ok
    assert no_oom(results.everything)
    assert len(heard.lines) == 1, "it is waited for once"
    assert others.naps * process_tree.MEMORY_LOOK_EVERY_S == 5.0
    assert not results.left_out


def test_a_good_number_is_not_spoiled_and_trust_says_once_what_happened(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    Others(monkeypatch, from_worker=10, leaves=False)
    results = fake_run(mode="infer", repeats=30)
    assert [record.status for record in results.records] == ["ok"] * 9 + ["failed"]
    assert results.all_ok
    (outcome,) = results.outcomes
    assert outcome.status == "ok"
    said = trust(outcome)
    assert said.count("the machine ran out of memory") == 1
    assert "1 of 10 processes failed (the machine ran out of memory, but this case held only " in said


def test_a_worker_that_says_it_had_no_memory_is_believed_only_where_others_left_it_some(
    fake_run: FakeRun, script: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.WorkerProcess, "_watch_memory", lambda worker: None)
    script({"match": "*", "fail": "oom"})
    Others(monkeypatch, leaves=False)
    (record,) = fake_run(mode="infer").records
    assert (record.status, record.crowded_out) == ("failed", True)


def kernel_kills(monkeypatch: pytest.MonkeyPatch, memory: int) -> Iterator[int]:
    """Let the kernel's count of kills rise whenever it is read, on a machine with that memory in B."""
    kills = iter(range(100))
    monkeypatch.setattr(client, "_kernel_kills", lambda: next(kills))
    monkeypatch.setattr(process_tree, "total", lambda: memory)
    return kills


def test_a_worker_that_the_kernel_killed_while_it_held_little_is_tried_again(
    fake_run: FakeRun, script: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    script({"match": "*", "fail": "kill"})
    kills = kernel_kills(monkeypatch, 24 * GIB)
    (record,) = fake_run(mode="infer").records
    assert (record.status, record.crowded_out) == ("failed", True)
    assert record.reason.startswith("killed by the system for want of memory: the machine ran out of memory, but")
    assert next(kills) == 4, "two workers, each looked at before and after"


def test_memory_of_the_program_that_starts_a_worker_is_not_charged_to_the_worker(
    fake_run: FakeRun, script: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    script({"match": "*", "fail": "kill"})
    kernel_kills(monkeypatch, 4 * GIB)
    ballast = bytearray(GIB)  # as in a notebook that holds a model: over a tenth of the machine's memory
    ballast[:: mmap.PAGESIZE] = b"x" * len(range(0, GIB, mmap.PAGESIZE))
    (record,) = fake_run(mode="infer").records
    assert (record.status, record.crowded_out) == ("failed", True)
    assert len(ballast) == GIB


def test_a_worker_that_the_kernel_killed_while_it_held_much_ran_out_of_memory(
    fake_run: FakeRun, script: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WATCH_EVERY_S", 0.0)  # its memory is read before it dies
    script({"match": "*", "fail": "kill"})
    kills = iter(range(100))
    monkeypatch.setattr(client, "_kernel_kills", lambda: next(kills))
    monkeypatch.setattr(process_tree, "total", lambda: 1 << 10)
    (record,) = fake_run(mode="infer").records
    assert (record.status, record.reason) == ("oom", "killed by the system for want of memory")


@pytest.mark.parametrize(("held", "grown", "others"), [
    (GIB, None, True),  # less than a tenth of 24 GiB
    (GIB, 0, True),
    (6 * GIB, 12 * GIB, True),  # they took more since it was started
    (6 * GIB, GIB, False),
    (6 * GIB, None, False),
])  # fmt: skip
def test_who_filled_the_machine(held: int, grown: int | None, others: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "total", lambda: 24 * GIB)
    assert taken_by_others(held, grown) is others


# -- the largest batch -------------------------------------------------------------------------------


def searched(**more: Any) -> Search:
    return api.max_batch("mlp", ["infer"], 256, framework="fake", **more)["infer"]


def test_the_largest_batch_is_looked_for_when_the_memory_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(monkeypatch, from_worker=2)
    search = searched()
    assert others.naps
    assert [attempt.fits for attempt in search.attempts] == [True, True]
    assert search.fits is not None
    assert search.fits.batch == 256


def test_a_batch_is_not_called_too_large_where_others_keep_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    Others(monkeypatch, from_worker=2, leaves=False)
    with pytest.raises(MldynoError, match="other programs"):
        searched()


def test_a_run_that_is_resumed_does_not_measure_the_case_again(store: Store, fake_run: FakeRun) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Others(patch, leaves=False)
        fake_run(mode="infer")
    with pytest.raises(MldynoError, match="no unfinished run"):
        api.unfinished(store, None)
