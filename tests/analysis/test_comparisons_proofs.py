"""Frameworks are compared only where it is proven that they do the same work."""

from __future__ import annotations

from typing import Any

import pytest
from tests.analysis.test_comparisons import a_record

from mldyno.analysis.comparisons import compare, disagreement, not_comparable, why_not_comparable
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Case


def outcome(framework: str, proof: str | None, **axes: Any) -> Outcome:
    facts = {} if proof is None else {"proof": proof}
    return Outcome((a_record(1.0, 1, case=Case("mlp", batch=8, framework=framework, **axes), facts=facts),), ())


def test_two_that_give_the_same_numbers_are_compared() -> None:
    base, other = outcome("torch", "0.5 -2.0 1.0"), outcome("jax", "0.5001 -2.0 1.0")
    error, tolerance = disagreement(base, other) or (0.0, 0.0)
    assert error == pytest.approx(0.00005)
    assert tolerance == 1e-3
    assert why_not_comparable(base, other) == ""
    assert compare(base, other) is not None


def test_two_that_differ_are_not_compared_and_it_is_said_by_how_much() -> None:
    base, other = outcome("torch", "0.5 -2.0 1.0"), outcome("jax", "0.5 -2.0 1.1")
    assert compare(base, other) is None
    assert not_comparable([(base, other), (base, other)]) == [
        "torch and jax do not compute the same in mlp: they differ by 0.05, 0.001 is allowed"
    ]
    half = outcome("jax", "0.5 -2.0 1.1", precision="bf16")
    assert why_not_comparable(base, half) == "", "a precision has its own tolerance"


@pytest.mark.parametrize("proof", [None, "", "word", "0.5 -2.0"])
def test_without_a_proof_it_is_said_how_to_get_one(proof: str | None) -> None:
    base, other = outcome("torch", "0.5 -2.0 1.0"), outcome("jax", proof)
    assert compare(base, other) is None
    assert why_not_comparable(base, other).endswith("measure both in one run: mldyno run mlp --framework torch,jax")


def test_within_a_framework_and_with_rehearsals_nothing_need_be_proven() -> None:
    assert why_not_comparable(outcome("torch", None), outcome("torch", None, device="mps")) == ""
    assert why_not_comparable(outcome("fake", None), outcome("torch", None)) == ""
