"""An error at any command is explained by the framework of its case."""

from __future__ import annotations

import pytest

from mldyno import messages
from mldyno.axes import Case
from mldyno.frameworks.fake import FakeProgram
from mldyno.worker.listen import Worker


def test_memory_that_runs_out_while_the_work_is_checked_is_oom_and_the_case_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_memory(program: FakeProgram) -> None:
        raise MemoryError("no memory for the check")

    monkeypatch.setattr(FakeProgram, "error_vs_reference", without_memory)
    worker = Worker(lambda answer: None)
    case = Case("mlp", framework="fake", batch=8)
    assert isinstance(worker.answer(messages.OpenCase(1, case, 1.0)), messages.CaseOpened)
    failed = worker.answer(messages.CloseCase(1))
    assert isinstance(failed, messages.Failed)
    assert (failed.status, failed.reason) == ("oom", "no memory for the check")
    assert worker.opened == {}
