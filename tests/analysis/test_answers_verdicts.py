"""What outcomes say of a machine as a whole, and what is said where they do not tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from tests.analysis.made import met, outcome

from mldyno.analysis.answers import Verdicts, verdicts
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.store.figures import newest
from mldyno.views.answers import verdict_lines


def lines(*found: Outcome) -> Sequence[str]:
    return verdict_lines(verdicts(found))


def test_close_devices_are_as_fast_and_noisy_ones_can_not_be_told() -> None:
    alike = met(outcome(0.002, device="cpu"), outcome(0.002, device="mps"))
    assert lines(*alike)[0].startswith("Your GPU trains as fast as your CPU (within 2.0 %) [MLP, paired")
    noisy = met(outcome(0.002, device="cpu"), outcome(0.00195, device="mps"), noise=0.5)
    assert lines(*noisy)[0].startswith("Can't tell if your GPU trains faster than your CPU: no clear difference (")


def test_a_precision_that_is_slower_is_not_worth_it() -> None:
    found = met(outcome(0.002), outcome(0.02, precision="bf16"))
    said = lines(*found)
    assert said[0] == "No GPU found; run `mldyno doctor` to see why"
    assert said[1].startswith("bf16 is not worth it in training on your CPU: 10.00x (9.9")


def test_what_was_seen_with_one_model_of_the_users_is_not_said_of_the_machine() -> None:
    own: dict[str, Any] = {"workload": "vae.py@422cac5a"}
    slower = met(outcome(0.002, **own), outcome(0.02, precision="bf16", **own))
    assert lines(*slower)[1].startswith("bf16 is not worth it in training of vae.py@422cac5a on your CPU: 10.00x (9.9")
    faster = met(outcome(0.02, **own), outcome(0.002, device="mps", **own))
    assert lines(*faster)[0].startswith("Your GPU trains vae.py@422cac5a 10.0x (")
    faster = met(outcome(0.02, mode="infer", **own), outcome(0.002, mode="infer", device="mps", **own))
    assert lines(*faster)[0].startswith("Your GPU runs vae.py@422cac5a 10.0x (")
    both = [*slower, *met(outcome(0.002), outcome(0.02, precision="bf16"), group=2)]
    assert lines(*both)[1].startswith("bf16 is not worth it in training on your CPU: 10.00x (9.9")


def test_two_accelerators_are_called_by_their_names() -> None:
    found = met(outcome(0.004), outcome(0.002, device="cuda:0"), outcome(0.001, device="cuda:1"))
    assert [line.split(" trains")[0] for line in lines(*found)] == ["Your cuda:0", "Your cuda:1"]


def test_the_mean_is_over_typical_cases_and_small_batches_are_told_apart() -> None:
    large = met(outcome(0.004, batch=64), outcome(0.001, batch=64, device="mps"))
    small = met(outcome(0.0001, batch=1), outcome(0.0004, batch=1, device="mps"), group=2)
    found = verdicts([*large, *small])
    (mean,) = found.devices
    assert [one.other.case.batch for one in mean.comparisons] == [64]
    (crossover,) = found.batches
    assert crossover.verdict == "crosses"


def test_nothing_measured_says_nothing() -> None:
    assert verdict_lines(verdicts([])) == []
    assert verdict_lines(Verdicts()) == []
    assert lines(outcome(0.1, status="oom", reason="no room")) == []


def published() -> list[Outcome]:
    return outcomes(newest())


def test_only_the_same_work_stands_beside_published_machines() -> None:
    same = outcome(0.00252, mode="infer", batch=128)
    other = outcome(0.00252, mode="infer", batch=64)
    trained = outcome(0.00252, mode="train", batch=128)
    (found,) = verdicts([same], published()).references
    assert all((one.base.case.batch, one.base.case.mode) == (128, "infer") for one in found)
    said = verdict_lines(verdicts([same], published()))[-1]
    assert said.startswith("In MLP inference (batch 128), your CPU has ")
    assert "0.500x (0.498-0.502) the speed of M1 Mac mini (cpu)" in said
    assert said.endswith(" [published figures of the same work; own interval only]")
    assert "Xeon" not in said  # suspect, and there are others
    assert verdicts([other, trained], published()).references == ()


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.33, "0.330x ("),
        (0.5, "0.500x ("),
        (0.02, "0.0200x ("),
        (1.03, "1.03x ("),
        (1.4, "1.40x ("),
        (12.0, "12.0x ("),
    ],
)
def test_the_speed_beside_a_published_machine_is_a_factor_with_its_interval(ratio: float, words: str) -> None:
    here = outcome(0.00126 / ratio, mode="infer", batch=128)
    said = verdict_lines(verdicts([here], [each for each in published() if each.machine == "M1 Mac mini"]))[-1]
    place = said.index(" the speed of M1 Mac mini (cpu)")
    assert re.split(", | has ", said[:place])[-1].startswith(words)
