"""Compiled models: what the compiler did is told apart from the steps, and what it does again is found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frameworks.test_torch_program import DATA
from tests.frameworks.test_torch_program import program as program_of

from mldyno.records import Case
from mldyno.worker.session import CaseSession, open_case

COMPILED = Case("mnist-mlp", mode="infer", batch=4, compile=True)


@pytest.fixture(autouse=True)
def nothing_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither in this process nor in a cache on disk; plain C++, quick to compile: no probing of vector extensions."""
    from torch._inductor import config as inductor  # takes long: only where these tests run

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with inductor.patch({"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}):
        yield
    torch._dynamo.reset()


def measured(case: CaseSession) -> dict[str, Any]:
    case.warm_up(0.1)
    case.turn(0.0, 2)
    closed = case.close()
    return {"facts": closed.facts, "checks": vars(closed.checks)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_compiled_model_agrees_and_its_compilation_stands_apart() -> None:
    answer = measured(open_case(COMPILED))
    facts = answer["facts"]
    assert answer["checks"]["agrees"] is True
    assert (facts["graphs"], facts["graph_breaks"], facts["recompiles"]) == (1, 0, 0)
    assert facts["compile_cached"] is False
    assert facts["compile_time"] > 0.1
    assert "kernels_per_step" not in facts, "of a compiled model they are not seen"


def test_a_graph_that_is_compiled_again_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    case = open_case(COMPILED)
    program: Any = case.program
    case.warm_up(0.1)
    inputs, targets = program.fixed
    program.batches = itertools.cycle([(inputs[:3], targets[:3])])  # what the compiler took for granted is no more
    case.turn(0.0, 2)
    assert int(case.close().facts["recompiles"] or 0) >= 1


def test_an_epoch_compiles_no_graph_that_was_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=compiler))
    case = Case("mnist-cnn", mode="train", batch=16, placement="loader", compile=True)
    program = program_of(case, data=DATA)
    program.run(2)
    program.prepare_phases()
    prepared = len(graphs)
    program.run_phase("epoch")
    assert 1 < prepared == len(graphs)
