"""A PyTorch program beyond the plain step: phases, batches from disk, counted kernels, foreseen memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frameworks.in_own_process import Few

from mldyno import datasets, plugins
from mldyno.frameworks import Unsupported
from mldyno.frameworks.torch.operations import count_operations
from mldyno.messages import DataSource, TrainEndToEnd
from mldyno.records import Case
from mldyno.worker.session import open_case
from mldyno.workloads import Phase, Recipe

CPU = torch.device("cpu")


DATA: Any = datasets.Opened("few", "synthetic", Few(130), Few(40), (0.1,), (0.3,))  # type: ignore[arg-type]


def program(case: Case, build: Any = None, data: Any = None) -> Any:
    framework = plugins.framework("torch")
    framework.start()
    return framework.open(case, build or plugins.workload(case.workload).build["torch"], data)


def test_batches_from_disk_are_decoded_normalised_and_shuffled() -> None:
    opened = program(Case("mnist-cnn", mode="train", batch=16, placement="loader"), data=DATA)
    inputs, labels = opened.fixed
    assert inputs.shape == (16, 1, 28, 28)
    assert labels.tolist() == [index % 10 for index in range(16)]
    assert inputs[3].flatten().tolist() == pytest.approx([(75 / 255 - 0.1) / 0.3] * 784)
    first, second = next(opened.batches)[1].tolist(), next(opened.batches)[1].tolist()
    assert first != [index % 10 for index in range(16)]
    assert first != second


def test_an_epoch_takes_every_item_once_and_ends_with_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = program(Case("mnist-cnn", mode="train", batch=16, placement="loader"), data=DATA)
    sizes: list[int] = []
    train = opened.backend.train

    def noted_train(inputs: Any, targets: Any, update: bool) -> Any:
        sizes.append(len(inputs))
        return train(inputs, targets, update)

    monkeypatch.setattr(opened.backend, "train", noted_train)
    assert opened.phases == {"data": 20 * 16, "epoch": 170}
    opened.prepare_phases()
    assert sizes == []
    opened.run_phase("epoch")
    assert sizes == [16] * 8 + [2]
    assert 0 <= opened.facts["accuracy"] <= 1
    assert opened.network.training


def test_inference_reads_the_held_out_items() -> None:
    opened = program(Case("mnist-cnn", mode="infer", batch=16, placement="loader"), data=DATA)
    assert opened.phases["epoch"] == 40
    shapes = []

    def forward(inputs: Any) -> Any:
        shapes.append(tuple(inputs.shape))
        return inputs

    opened.backend.apply = forward
    opened.run(5)  # more batches than there are: it begins anew
    assert shapes == [(16, 1, 28, 28)] * 5


def test_a_batch_larger_than_the_data_set_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="few has 130 items"):
        program(Case("mnist-cnn", mode="train", batch=131, placement="loader"), data=DATA)


def in_two_phases(module: Any, case: Case) -> Recipe:
    """A model whose step doubles, then adds one."""
    return Recipe(
        network=torch.nn.Linear(2, 2),
        draw=lambda: (torch.rand(case.batch or 1, 2), torch.rand(case.batch or 1, 2)),
        loss=torch.nn.functional.mse_loss,
        optimiser=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        phases={
            "double": Phase(lambda network, inputs, before: 2 * inputs, 3),
            "add": Phase(lambda network, inputs, before: before + 1, 4),
        },
    )


@pytest.mark.parametrize("placement", ["device", "roundtrip"])
def test_a_step_in_phases_hands_on_what_each_gave(placement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = program(Case("mlp", mode="infer", batch=1, placement=placement), in_two_phases)
    assert opened.phases == {"double": 3, "add": 4}
    for name in opened.phases:
        opened.run_phase(name)
    assert torch.equal(opened.carry, 2 * opened.fixed[0] + 1)
    assert opened.backend.output_device == CPU
    run_phase, carried = opened.backend.run_phase, []

    def noted_phase(*given: Any) -> Any:
        carried.append(run_phase(*given))
        return carried[-1]

    monkeypatch.setattr(opened.backend, "run_phase", noted_phase)
    opened.run(2)
    assert [each.shape for each in carried] == [(1, 2)] * 4
    assert all(torch.equal(carried[place + 1], carried[place] + 1) for place in (0, 2))


def test_forward_and_backward_alone_change_no_weight_but_a_check_step_does() -> None:
    opened = program(Case("attention", mode="train", batch=2, seq=8))
    before = [parameter.clone() for parameter in opened.network.parameters()]
    opened.run(2)
    assert all(torch.equal(a, b) for a, b in zip(before, opened.network.parameters(), strict=True))
    opened.check_step()
    assert not all(torch.equal(a, b) for a, b in zip(before, opened.network.parameters(), strict=True))


def test_kernels_and_device_to_host_syncs_are_counted() -> None:
    x = torch.rand(4, 4)

    def work() -> None:
        y = (x @ x).t().relu()  # two kernels; the view is none
        float(y.sum())  # a third, and a read

    counts = count_operations(torch, CPU, work)
    assert (counts["kernels_per_step"], counts["host_syncs_per_step"]) == (3, 1)


def test_what_an_optimiser_reads_of_its_own_counters_is_no_device_to_host_sync() -> None:
    opened = program(Case("bert-tiny", mode="train", batch=2, seq=8))
    counts = opened.counts()
    assert counts["host_syncs_per_step"] == 0
    assert counts["kernels_per_step"] > 100


def test_kernels_of_a_step_do_not_count_how_its_batch_was_made() -> None:
    plain = program(Case("mnist-cnn", mode="infer", batch=16)).counts()
    assert program(Case("mnist-cnn", mode="infer", batch=16, placement="loader"), data=DATA).counts() == plain


@pytest.mark.parametrize(("mode", "expected"), [("infer", 4.0 + 4 * 16 + 2 * 8), ("train", 3 * 4.0 + 4 * 16)])
def test_memory_is_forecast_without_taking_it(mode: Any, expected: float) -> None:
    """Weights of 4 MiB, four batches of 16 MiB; training holds gradients and momentum besides, and activations."""
    framework = plugins.framework("torch")
    framework.start()
    case = Case("mlp", mode=mode, batch=4096)
    forecast = (framework.forecast_memory(case, plugins.workload("mlp").build["torch"]) or 0) / 2**20
    assert expected <= forecast <= expected + 5 * 8  # activations of 8 MiB a layer


def test_an_end_to_end_run_learns_from_its_data_set_and_fetches_it_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    from mldyno.worker import listen

    def prepare(name: str, source: str, folder: str, progress: Any) -> None:
        made.append(folder)

    monkeypatch.setattr(listen, "prepare", prepare)
    monkeypatch.setattr("mldyno.worker.session.open_set", lambda **data: DATA)
    case = Case("mnist-cnn", mode="train", batch=10, placement="loader")
    wish = TrainEndToEnd(case, 2, DataSource("few", "synthetic", str(tmp_path)))
    assert listen.train(wish) == 0
    assert made == [str(tmp_path)]


def test_a_record_says_which_data_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.worker.session.open_set", lambda **data: DATA)
    case = Case("mnist-cnn", mode="train", batch=10, placement="loader")
    assert open_case(case, DataSource("few", "synthetic", "")).facts["data"] == "synthetic"


def test_where_pytorch_counts_no_peak_of_a_device_the_drivers_count_is_taken_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = program(Case("mlp", mode="infer", batch=2))
    assert opened.device_peak() is None
    opened.device = torch.device("mps")
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 32 << 20)
    assert opened.device_peak() == 32 << 20
    assert opened.facts["device_peak_by"] == "driver"
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda device: 5)
    assert opened.device_peak() == 5
    assert opened.facts["device_peak_by"] == "allocator"


def test_a_loss_that_one_update_lowers_a_million_times_may_differ_by_rounding_of_the_first_one() -> None:
    goal = 1.003  # which bf16 rounds to 1

    def build(module: Any, case: Case) -> Recipe:
        network = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(network.weight, 3.0)
        return Recipe(
            network=network,
            draw=lambda: (torch.ones(2, 1), torch.ones(2, 1)),
            loss=lambda output, _: (output.float() - goal).square().mean(),
            optimiser=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        )

    opened = program(Case("mlp", mode="train", batch=2, precision="bf16"), build)
    error, tolerance = opened.error_vs_reference()
    assert 0 < error < tolerance
    losses = opened.compute(opened.case).numbers[0]
    assert losses[0] > 1e5 * losses[-1] > 0, "relative to its last loss, bf16 would be off by far more than 10 %"


def test_an_update_that_is_not_made_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = program(Case("mnist-mlp", mode="train", batch=8, precision="fp64"))
    make = opened.make_backend

    def made(case: Case, *given: Any, **options: Any) -> Any:
        backend = make(case, *given, **options)
        if case.precision == "fp64":
            monkeypatch.setattr(backend.optimiser, "step", lambda: None)
        return backend

    monkeypatch.setattr(opened, "make_backend", made)
    error, tolerance = opened.error_vs_reference()
    assert error > tolerance
