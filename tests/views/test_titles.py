"""Cases as people call them."""

from __future__ import annotations

import pytest

from mldyno import plugins
from mldyno.records import Case
from mldyno.views.titles import case_title, work_title, workload_title


@pytest.mark.parametrize(
    ("case", "title"),
    [
        (Case("bert-base", mode="infer", batch=16, seq=128), "BERT-base, inference, batch 16, 128 tokens"),
        (Case("bert-base", mode="infer", batch=16, seq=128, placement="host", precision="bf16"),
         "BERT-base, inference, batch 16, 128 tokens, bf16, copied in"),
        (Case("mlp", batch=2048, threads=1, compile=True), "MLP, training, batch 2,048, compiled, 1 CPU thread"),
        (Case("python train.py", framework="command", mode=None), "python train.py"),
    ],
)  # fmt: skip
def test_a_title_has_the_work_its_size_and_what_is_unusual(case: Case, title: str) -> None:
    assert case_title(case) == title


def test_the_work_alone_is_its_name_and_mode() -> None:
    assert work_title(Case("resnet50", batch=32, precision="bf16")) == "ResNet-50, training"


@pytest.mark.parametrize("name", plugins.names("workloads"))
def test_every_workload_has_a_title_of_its_own(name: str) -> None:
    assert 2 < len(workload_title(name)) <= 30
    assert [other for other in plugins.names("workloads") if workload_title(other) == workload_title(name)] == [name]
