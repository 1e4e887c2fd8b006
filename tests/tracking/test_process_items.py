"""How many items a batch has: its first tensor, however it is packed, or what the user says."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from mldyno.tracking.process import MOST_BATCHES_COUNTED, ItemCount, items_of

T = torch.ones


@dataclass
class Packed:
    labels: list[str]
    pixels: Any


@pytest.mark.parametrize(
    ("batch", "items"),
    [
        (T(32, 3, 8, 8), 32),
        ((T(16, 4), T(16)), 16),
        ([("names", "of"), {"deep": [T(7, 2)]}], 7),
        ({"input_ids": T(8, 128), "labels": T(8)}, 8),
        (UserDict({"input_ids": T(5, 128)}), 5),
        (Packed(["a"], T(9, 1)), 9),
        ((T(()), T(3)), 3),
        ("words", None),
        (3, None),
        (None, None),
        ([], None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_first_tensor_of_a_batch_tells_its_items(batch: Any, items: int | None) -> None:
    assert items_of(batch) == items


def test_a_batch_that_holds_itself_is_no_end() -> None:
    batch: list[Any] = []
    batch.append(batch)
    assert items_of(batch) is None


def test_the_last_batch_may_be_short() -> None:
    count = ItemCount(None)
    for size in (32, 32, 32, 5):
        assert count.look_at(T(size))
    assert count.per_step == 32


def test_no_more_batches_are_looked_at_than_it_takes() -> None:
    count = ItemCount(None)
    looks = [count.look_at(T(32)) for _ in range(MOST_BATCHES_COUNTED)]
    assert looks == [True] * (MOST_BATCHES_COUNTED - 1) + [False]
    assert not ItemCount(None).look_at("no tensor")


def test_a_function_counts_every_batch_and_a_number_none() -> None:
    count = ItemCount(lambda batch: batch.numel())
    assert all(count.look_at(T(size, 2)) for size in (10, 20, 40))
    assert count.per_step == 47
    assert not ItemCount(64).look_at(T(3))
    assert ItemCount(64).per_step == 64


def test_a_function_that_fails_costs_the_rate_and_nothing_else() -> None:
    count = ItemCount(lambda batch: batch["missing"])
    assert not count.look_at(T(3))
    assert count.per_step is None
