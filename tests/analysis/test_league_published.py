"""This machine beside published ones: the work that both have, and what to do where they share none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mldyno.analysis.league import nothing_shared, place
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.analysis.rerun import command_for
from mldyno.records import Case
from mldyno.results import Results
from mldyno.store.figures import newest

FakeRun = Callable[..., Results]


def of_machine(name: str) -> list[Outcome]:
    return outcomes([record for record in newest() if record.machine.name == name])


PUBLISHED = outcomes(newest())


def test_few_cases_make_columns_and_machines_are_the_rows(fake_run: FakeRun) -> None:
    ours = fake_run(mode=["train", "infer"], placement=["device", "roundtrip"]).outcomes
    table = place(ours, PUBLISHED)
    assert table is not None
    assert table.rows[:2] == ("machine", "device")
    assert table.cols == ("workload", "mode", "placement")
    assert table.col_keys == [("mlp", "infer", "device"), ("mlp", "infer", "roundtrip")]
    assert {row[0] for row in table.row_keys} == {
        "test bench", "M1 Mac mini", "M1 Ultra Mac Studio", "NVIDIA RTX 3090", "Intel Xeon Gold 5218R 20 threads",
    }  # fmt: skip
    suspect = table.cells[("Intel Xeon Gold 5218R 20 threads", "cpu", "torch"), ("mlp", "infer", "device")]
    assert suspect.notes == ("suspect: about 10 GFLOP/s, an OpenMP spin-wait or oversubscription fault",)


def test_many_cases_make_rows_and_machines_are_the_columns() -> None:
    mine = [seen_here(one) for one in of_machine("NVIDIA V100 SXM2 16GB")]
    table = place(mine, PUBLISHED)
    assert table is not None
    assert table.rows == ("workload", "mode", "batch", "seq")
    assert table.cols == ("machine", "device")
    assert len(table.row_keys) == 12
    assert ("here", "cuda:0") in table.col_keys


def seen_here(outcome: Outcome) -> Outcome:
    """The same outcome, as if of this machine."""
    return Outcome(tuple(replace(r, machine=replace(r.machine, name="here")) for r in outcome.records))


def test_what_this_run_did_not_have_is_left_out_and_so_is_what_nobody_published(fake_run: FakeRun) -> None:
    table = place(fake_run("mlp", "bert-tiny", mode="infer", placement="device").outcomes, PUBLISHED)
    assert table is not None
    assert table.col_keys == [("mlp", "infer")]
    assert place(fake_run(mode="train").outcomes, PUBLISHED) is None


def test_published_figures_that_are_no_times_of_steps_are_no_place(fake_run: FakeRun) -> None:
    whole = of_machine("MacBook Pro 2023 M2 Max")
    assert place([seen_here(one) for one in whole], whole) is None


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ("NVIDIA RTX 3090", "'this-machine' has no case that NVIDIA RTX 3090 has: "
         "mlp/infer/torch/cuda:0/fp32/b128/device, mlp/infer/torch/cuda:0/fp32/b128/roundtrip, "
         "resnet50/infer/torch/cuda:0/fp32/b32/device, "
         "resnet50/infer/torch/cuda:0/fp32/b32/roundtrip; measure one here with: "
         "mldyno run mlp --device all --mode infer --batch 128"),
        ("Intel Xeon Gold 5218R 20 threads", "'this-machine' has no case that Intel Xeon Gold 5218R 20 threads has: "
         "mlp/infer/torch/cpu/fp32/b128/device, resnet50/infer/torch/cpu/fp32/b32/device; measure one here with: "
         "mldyno run mlp --mode infer --batch 128"),
        ("unstated CPU", "no published figure of unstated CPU is the time of a step; see what there is with: "
         "mldyno table 'unstated CPU' --value loop_time"),
    ],
)  # fmt: skip
def test_what_a_published_machine_has_is_told_with_the_next_step(machine: str, told: str) -> None:
    assert nothing_shared("this-machine", of_machine(machine), ["mlp", "resnet50"]) == told


def test_a_long_list_of_cases_is_cut_and_what_can_not_be_run_is_said() -> None:
    told = nothing_shared("mlp", of_machine("M1 Max 10-core CPU 32-core GPU 32GB"), ["mlp"])
    assert told.count("bert-base/") == 5
    assert told.endswith(" and 18 more; none of these can be run yet.")


def test_a_command_names_all_that_is_not_usual() -> None:
    case = Case("bert-base", device="mps", mode="train", precision="fp16", batch=16, seq=128, placement="host", ranks=2)
    command = "mldyno run bert-base --device {} --mode train --precision fp16 --batch 16 --seq 128 --placement host"
    assert command_for([case], elsewhere=True) == f"{command.format('all')} --ranks 2"
    assert command_for([case]) == f"{command.format('mps')} --ranks 2"
