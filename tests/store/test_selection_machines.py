"""A machine is found by part of its name, by words in any order, with small typos; never by another number."""

from __future__ import annotations

import pytest

from mldyno.store.figures import machines
from mldyno.store.query import Identity, distinct_names
from mldyno.store.selection import meant, nearest

NAMES = list(machines())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("M1 Max", "M1 Max 10-core CPU 32-core GPU 32GB"),
        ("m1 MAX", "M1 Max 10-core CPU 32-core GPU 32GB"),
        ("max m1", "M1 Max 10-core CPU 32-core GPU 32GB"),
        ("m1", "M1"),
        ("V100 16GB", "NVIDIA V100 SXM2 16GB"),
        ("rtx3090", None),
        ("3090", "NVIDIA RTX 3090"),
        ("3080", None),
        ("RTX 3080", None),
        ("nvdia 3090", "NVIDIA RTX 3090"),
        ("stduio", "M1 Ultra Mac Studio"),
        ("xeno gold", "Intel Xeon Gold 5218R 20 threads"),
        ("  M2   Ultra ", "M2 Ultra 60-core GPU"),
        ("toaster", None),
        (" ", None),
    ],
)
def test_a_few_words_mean_one_machine_or_none(text: str, name: str | None) -> None:
    assert meant(text, NAMES) == ([name] if name else [])


def test_several_that_fit_are_all_given() -> None:
    assert meant("ultra", NAMES) == ["M1 Ultra 48-core GPU", "M2 Ultra 60-core GPU", "M1 Ultra Mac Studio"]


def test_a_closer_fit_leaves_looser_ones_out() -> None:
    assert meant("the box", ["The Box", "the box in the cellar"]) == ["The Box"]
    assert meant("box the", ["the box", "boxing thermostat"]) == ["the box", "boxing thermostat"]


def test_the_nearest_name_is_the_one_with_most_words_of_it() -> None:
    assert nearest("M4 Max", NAMES) == "M3 Max 40-core GPU"
    assert nearest("Nvidia RTX 5090", NAMES) in ("NVIDIA RTX 3090", "NVIDIA RTX 4080")
    assert nearest("toaster", NAMES) is None
    assert nearest("M4 Max", []) is None


A, B, LIKE_A = "aaaa" + "1" * 28, "b" * 32, "aaaa" + "2" * 28


@pytest.mark.parametrize(
    ("machines", "names"),
    [
        ([("X", A, False)], ["X"]),
        ([("X", A, False), ("X", B, True)], ["X", "X"]),  # one of them is marked as imported
        ([("X", A, True), ("X", B, True)], ["X [aaaa]", "X [bbbb]"]),
        ([("X", A, True), ("Y", B, True)], ["X", "Y"]),
        ([("X", A, True), ("X", LIKE_A, True)], ["X [aaaa1]", "X [aaaa2]"]),
        ([("X", "", False), ("X", A, False)], ["X", "X"]),  # before and after machines had keys
        ([("X", "", False), ("X", A, False), ("X", B, False)], ["X", "X [aaaa]", "X [bbbb]"]),
        ([("X", "", True), ("X", A, True)], ["X", "X [aaaa]"]),
    ],
)
def test_machines_of_one_name_are_told_apart_by_their_keys(
    machines: list[tuple[str, str, bool]], names: list[str]
) -> None:
    assert list(distinct_names([Identity(*machine) for machine in machines]).values()) == names
