"""Ranks of PyTorch, started on this machine: what a job of two says of itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mldyno import api, plugins, rendezvous, system_queries
from mldyno.analysis.breakdown import split
from mldyno.frameworks import Unsupported
from mldyno.frameworks.program import cores
from mldyno.frameworks.torch.ranks import INTERFACES, LOOPBACK, RankProgram, TorchTeam, compute_cores, environment
from mldyno.records import Case, Record
from mldyno.results import Results
from mldyno.runner import pairing
from mldyno.store import Store
from mldyno.worker.ranks import own_share

OWN_MODEL = """
import torch
def build(batch_size=4):
    return torch.nn.Linear(16, 4), torch.randn(batch_size, 16), torch.arange(batch_size) % 4
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """A network without batch norm, in two ranks with the batch to themselves, and in two that share it."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLDYNO_MACHINE", "test bench")
        patch.setattr(pairing, "FRESH_PAIRS", 1)  # each takes two jobs
        yield api.run("mnist-mlp", mode="train", placement="device", ranks=2, batch=16, scaling=["weak", "strong"],
                      repeats=1, budget=0.5, store=Store(folder / "records.sqlite"))  # fmt: skip


def record(results: Results, scaling: str) -> Record:
    (found,) = [each for each in results.records if each.case.scaling == scaling and each.alone]
    assert found.status == "ok", found.reason
    return found


def test_batches_of_a_rank_and_of_all_are_stated(results: Results) -> None:
    weak, strong = record(results, "weak"), record(results, "strong")
    assert (weak.fact("batch_per_rank"), weak.fact("batch_in_all"), weak.fact("items_per_step")) == (16, 32, 32)
    assert (strong.fact("batch_per_rank"), strong.fact("batch_in_all"), strong.fact("items_per_step")) == (8, 16, 16)


def test_the_step_is_taken_apart_in_rounds_of_one_job(results: Results) -> None:
    weak = record(results, "weak")
    kinds = ("step", "compute", "bare", "exchange", "alone", "all_cores")
    lengths = {len(weak.values(f"{kind}_time", "beside")) for kind in kinds}
    assert len(lengths) == 1
    assert lengths.pop() >= 4
    parts = split(results.outcomes[0])
    assert parts is not None
    assert parts.ranks == 2
    assert parts.over_same_threads is not None
    assert 0 < parts.over_same_threads.value < 4


def test_each_ranks_series_and_memory_are_kept(results: Results) -> None:
    weak = record(results, "weak")
    steps = [series for series in weak.series if series.metric == "step_time" and series.turn is not None]
    blocks = [len(series.values) for series in steps if series.stage in ("warmup", "steady")]  # a slow start is cut
    assert sum(len(series.values) for series in steps if series.stage == "rank-1") == sum(blocks)
    for rank in range(2):
        assert weak.values("step_time", f"rank-{rank}")
        assert weak.values("compute_time", f"rank-{rank}")
    assert len(weak.values("rank_peak_memory", "process")) == 2


def test_it_has_proven_that_the_ranks_trained_together(results: Results) -> None:
    weak = record(results, "weak")
    assert weak.checks.learned
    assert weak.fact("loss_first") == pytest.approx(math.log(10), rel=0.1), "as it was before the first update"
    assert weak.fact("gradient_error") < 1e-4
    assert weak.fact("ddp_buckets")


def test_a_model_that_is_sharded_has_the_gradient_of_one_that_is_not(store: Store) -> None:
    results = api.run("bert-tiny", mode="train", ranks=2, parallel="fsdp", batch=2, seq=8, repeats=1, budget=1.0,
                      store=store)  # fmt: skip
    (record,) = results.records
    assert record.status == "ok", record.reason
    assert record.case.id.endswith("/r2/fsdp")
    assert record.checks.learned
    assert record.fact("gradient_error") < 1e-4
    assert len(record.values("rank_peak_memory", "process")) == 2


def test_a_users_own_model_in_ranks_is_held_against_the_peak(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text(OWN_MODEL)
    (record,) = api.run(str(path), mode="train", ranks=2, batch=4, steps=4, budget=0.5, repeats=1, store=store).records
    assert record.status in ("ok", "unsteady"), record.reason  # four steps need not have settled on a busy machine
    per_rank = 4 * 16 * 2 * 2  # forward and the gradient of the weights; there is none of the inputs
    assert record.fact("flops_per_step") == 2 * 4 * per_rank
    assert record.fact("peak_flops") > 0


def test_threads_of_ranks_do_not_fight_and_they_talk_over_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    settings = environment(Case("mlp", ranks=4), 8)
    assert (settings["OMP_NUM_THREADS"], settings["GLOO_SOCKET_IFNAME"]) == ("2", LOOPBACK)
    assert {settings[name] for name in INTERFACES} == {LOOPBACK}
    assert {environment(Case("mlp", ranks=4, nodes=2), 8)[name] for name in INTERFACES} == {"eth0"}
    assert environment(Case("mlp", ranks=4, threads=1), 8)["OMP_NUM_THREADS"] == "1"
    assert environment(Case("mlp", ranks=4), 2)["OMP_NUM_THREADS"] == "1"


def test_ranks_and_the_process_beside_them_compute_on_the_performance_cores_of_a_mac(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_queries, "kernel_number", lambda name: None)
    assert compute_cores() == cores()
    mac = {"hw.perflevel0.physicalcpu": 8, "hw.perflevel1.physicalcpu": 2}
    monkeypatch.setattr(system_queries, "kernel_number", mac.get)
    assert plugins.framework("torch").environment(Case("mlp", ranks=4))["OMP_NUM_THREADS"] == "2"
    threads: list[int] = []
    program: Any = SimpleNamespace(team=SimpleNamespace(leads=True), _alone=threads.append)
    program.torch = SimpleNamespace(set_num_threads=threads.append, get_num_threads=lambda: 2)
    RankProgram._alone_on_all_cores(program, 100)
    assert threads == [8, 100, 2]


def test_ranks_meet_in_pytorch_2_6_whose_usual_store_takes_no_bound_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rendezvous.STORE, "127.0.0.1:29500")
    monkeypatch.setenv(rendezvous.STORE_SOCKET, "7")
    calls: list[dict[str, Any]] = []

    def store(*given: Any, **named: Any) -> str:
        calls.append(named)
        if named.get("use_libuv", True):
            raise NotImplementedError("The libuv TCPStore backend does not support initialization with an listen fd.")
        return f"store at {given[0]}:{given[1]}"

    team: Any = SimpleNamespace(distributed=SimpleNamespace(TCPStore=store), leads=True, size=2)
    assert TorchTeam._store(team) == "store at 127.0.0.1:29500"
    assert [call["master_listen_fd"] for call in calls] == [7, 7]


def test_a_pytorch_that_can_not_shard_on_the_cpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = plugins.framework("torch")
    framework.start()
    build = plugins.workload("bert-tiny").build["torch"]
    case = Case("bert-tiny", mode="train", ranks=2, parallel="fsdp")
    framework.check(case, build, None)
    monkeypatch.delattr(torch.cpu.Stream, "record_event")
    with pytest.raises(Unsupported, match=r"torch \S+ can't shard a model on the CPU; update it"):
        framework.check(case, build, None)


class Stopped(Exception):
    """Ends the making of a program where a test has seen enough."""


@pytest.mark.parametrize(("device", "local_rank", "expected"), [
    ("cuda:0", 1, ["device 1", "group nccl"]), ("cuda:2", 1, ["device 3", "group nccl"]),
    ("xpu", 0, ["device 0", "group xccl"]), ("cpu", 1, ["group gloo"]),
])  # fmt: skip
def test_each_rank_has_its_own_device_before_a_group_is_made(device: str, local_rank: int, expected: list[str]) -> None:
    calls: list[str] = []

    def new_group(backend: str, timeout: Any) -> None:
        calls.append(f"group {backend}")
        raise Stopped

    accelerator = SimpleNamespace(set_device_index=lambda index: calls.append(f"device {index}"))
    framework = SimpleNamespace(torch=SimpleNamespace(accelerator=accelerator))
    team: Any = SimpleNamespace(rank=local_rank, size=2, distributed=SimpleNamespace(new_group=new_group))
    case = own_share(Case("bert-tiny", device=device, ranks=2, parallel="fsdp"), local_rank)
    with pytest.raises(Stopped):
        RankProgram(framework, case, lambda torch, case: None, None, team)  # type: ignore[arg-type,return-value]
    assert calls == expected


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"mode": "infer"}, "ranks train together"),
        ({"nodes": 2}, "need an address to meet at"),
        ({"batch": 3, "scaling": "strong"}, "can't be shared by 2 ranks"),
        ({"framework": "jax"}, "jax can't train in ranks here"),
    ],
)
def test_what_ranks_can_not_do_is_refused_with_a_reason(axes: dict[str, Any], reason: str, store: Store) -> None:
    given: dict[str, Any] = {"mode": "train", "batch": 4, **axes}
    (record,) = api.run("mlp", ranks=2, repeats=1, budget=1.0, store=store, **given).records
    assert record.status == "unsupported"
    assert reason in record.reason
