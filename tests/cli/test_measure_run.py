"""`mldyno run` says what it compared: always, and once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Mldyno = Callable[..., tuple[int, str, str]]
RUN = ("run", "mlp", "--framework", "fake", "--mode", "infer", "--repeats", "1", "-q")


@pytest.mark.parametrize("by", [(), ("--by", "device")])
def test_what_was_measured_head_to_head_is_said_with_or_without_an_axis_to_compare(
    by: tuple[str, ...], mldyno: Mldyno
) -> None:
    _, out, _ = mldyno(*RUN, "--device", "cpu,gpu", *by)
    assert out.count("gpu is 9.9") == 1


@pytest.mark.parametrize("by", [(), ("--by", "precision")])
def test_what_an_answer_says_is_not_said_again_as_a_comparison(by: tuple[str, ...], mldyno: Mldyno) -> None:
    _, out, _ = mldyno(*RUN, "--precision", "fp32,bf16", *by)
    assert out.count("than fp32") + out.count("as fast as fp32") == 1


def test_along_the_batch_items_a_second_are_compared_shown_and_the_best_is_named(mldyno: Mldyno) -> None:
    _, out, _ = mldyno(*RUN, "--device", "gpu", "--batch", "1,8,64", "--by", "batch")
    assert out.startswith("samples per second")
    assert "batch 64 is" in out
    assert "faster per item than batch 1" in out
    assert out.splitlines()[-1].startswith("best of 3: batch 64, ")


def test_along_an_axis_with_one_value_only_it_says_that_there_is_nothing_to_compare(mldyno: Mldyno) -> None:
    code, out, _ = mldyno(*RUN, "--by", "precision")
    assert code == 0
    assert out.splitlines()[-1] == (
        "nothing to compare along precision: no two cases that are ok differ only in precision; "
        "measure some with --precision A,B."
    )
