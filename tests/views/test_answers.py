"""Answers in words: each with its interval and how it was found, or with what is not known and what would help."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from tests.analysis.made import met, outcome

from mldyno.analysis.answers import Answers, answers
from mldyno.analysis.outcomes import Outcome
from mldyno.records import seal
from mldyno.views.answers import answer_lines, crossover_table
from mldyno.views.as_json import answers_json


def swept(cpu: list[float], mps: list[float], first: int = 1, noise: float = 0.004) -> list[Outcome]:
    """Two devices at sizes that double; a time of 0 stands for memory that ran out."""
    found = []
    for place, times in enumerate(zip(cpu, mps, strict=True)):
        size = first * 2**place
        sides = [
            outcome(time, batch=size, device=device)
            if time
            else outcome(1.0, status="oom", reason="no room", batch=size, device=device)
            for device, time in zip(("cpu", "mps"), times, strict=True)
        ]
        found += met(*sides, noise=noise, group=place) if all(times) else sides
    return found


def told(outcomes: list[Outcome]) -> str:
    (line,) = answer_lines(answers(outcomes))
    return line


def test_a_crossing_is_told_with_its_interval_and_what_is_clear_around_it() -> None:
    line = told(swept([1.0, 2.0, 4.0, 8.0, 16.0], [5.0] * 5))
    assert line.startswith("MLP, training: mps beats cpu from batch 5.0")
    assert ") on: cpu is faster from 1 to 4, mps is faster from 8 to 16 [" in line
    assert line.endswith("[paired at 5 sizes; interpolated between them]")


def test_the_one_that_wins_only_below_is_told_the_other_way_round() -> None:
    line = told(swept([5.0] * 4, [1.0, 2.0, 4.0, 8.0]))
    assert "cpu beats mps from batch 5.0" in line
    assert "mps is faster from 1 to 4, cpu is faster at 8" in line


def test_two_crossings_are_counted() -> None:
    line = told(swept([1.0, 2.0, 4.0, 8.0], [2.0, 1.0, 2.0, 16.0]))
    assert "it crosses 2 times: mps beats cpu from batch 1.4" in line
    assert ", and cpu beats mps from batch 5.66 (" in line


def test_always_never_and_equivalent_say_from_where_to_where() -> None:
    times = [1.0, 2.0, 4.0]
    assert "mps beats cpu at every batch from 1 to 4: 2.00x (" in told(swept(times, [0.5, 1.0, 2.0]))
    line = told(swept(times, [2.0, 4.0, 8.0]))
    assert "mps beats cpu at no batch from 1 to 4: it is slower, 2.00x (" in line
    assert line.endswith("nothing larger was measured]")
    assert "nothing smaller was measured" in told(swept(times, [0.5, 1.0, 2.0], first=8))
    assert "mps and cpu are equivalent (within 2.0 %) at every batch from 1 to 4" in told(swept(times, times))


def test_what_can_not_be_told_comes_with_what_would_help() -> None:
    line = told(swept([1.0, 2.0, 4.0], [1.5, 3.0, 4.01], noise=0.1))
    assert "no crossing at any batch from 1 to 4: cpu is faster from 1 to 2, can't tell at 4" in line
    assert "x the --budget would settle it]" in line


def test_sizes_that_do_not_fit_are_said() -> None:
    line = told(swept([1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 3.0, 3.0, 0.0, 0.0]))
    assert "mps beats cpu from batch 3.0" in line
    assert "; mps ran out of memory from batch 8 on [" in line
    only = told(swept([1.0, 2.0], [3.0, 0.0]))
    assert "mps is 3.00x (" in only
    assert (
        "slower than cpu at batch 1, the only one that both were measured at; mps ran out of memory at batch 2" in only
    )
    nothing = told(swept([1.0, 2.0], [0.0, 0.0]))
    assert nothing == (
        "MLP, training: mps and cpu can't be compared at any batch; mps ran out of memory from batch 1 on"
    )


def test_two_sizes_say_that_a_bend_would_not_be_seen() -> None:
    assert told(swept([1.0, 2.0], [1.5, 1.5])).endswith("which are only two: a bend would not be seen]")


def test_a_failure_is_told_with_its_reason() -> None:
    lost = [outcome(1.0, status="failed", reason="a bug", batch=size, device="mps") for size in (8, 16)]
    whole = swept([1.0, 2.0, 4.0], [3.0] * 3)
    line = told([*whole, outcome(8.0, batch=8), outcome(16.0, batch=16), *lost])
    assert "; mps failed at batch 8 and 1 larger one (a bug) [" in line


def test_the_table_of_a_sweep_has_both_times_and_the_verdict_of_each_size() -> None:
    (found,) = answers(swept([1.0, 2.0, 4.0], [2.0, 2.0, 0.0])).crossovers
    lines = crossover_table(found).splitlines()
    assert lines[0] == "mlp/train/torch/fp32/device: time of one step"
    assert lines[2].split() == ["batch", "cpu", "mps", "mps", "is"]
    assert "slower" in lines[4]
    assert lines[5].endswith("equivalent")
    assert lines[6].split() == ["4", "4.00", "s", "±0.50", "%", "oom"]


def test_a_precision_is_worth_it_or_not_and_how_far_its_results_are_off() -> None:
    sides = met(
        outcome(1.42e-3, mode="infer", precision="fp32"),
        outcome(1e-3, mode="infer", precision="bf16", error=0.008),
        outcome(1.42e-3, mode="infer", precision="amp-bf16", error=0.0),
        outcome(2.84e-3, mode="infer", precision="fp64", error=1e-9),
        outcome(2e-3, mode="infer", precision="fp16"),
    )
    lost = outcome(1.0, status="unsupported", reason="this device has no TF32", mode="infer", precision="tf32")
    bf16, amp, fp16, fp64, tf32 = answer_lines(answers([*sides, lost]))
    assert bf16.startswith("MLP, inference, batch 8 on cpu: bf16 is worth it: 1.42x (1.4")
    assert ") faster than fp32; its results are 0.80 % off [paired, 48 rounds in one process]" in bf16
    assert "amp-bf16 is not worth it: as fast as fp32 (within 2.0 %); its results are the same" in amp
    assert "fp64 is not worth it: 2.00x" in fp64
    assert "; its results are under 0.1 % off" in fp64
    assert "its results were not checked" in fp16
    assert tf32 == "MLP, inference, batch 8 on cpu: tf32 is unsupported: this device has no TF32"


def test_convolutions_that_ran_in_a_layout_that_half_precision_does_not_like_are_named() -> None:
    def convolutions(**axes: Any) -> Outcome:
        plain = outcome(1e-3, error=0.001, device="cuda:0", **axes)
        return Outcome(tuple(seal(replace(record, facts={"convolutions": True})) for record in plain.records))

    said = "its convolutions ran contiguous, --layout channels-last may be faster]"
    assert told(met(convolutions(precision="fp32"), convolutions(precision="amp-fp16"))).endswith(said)
    laid_out = [convolutions(precision=one, layout="channels-last") for one in ("fp32", "amp-fp16")]
    assert said not in told(met(*laid_out))
    plain = [outcome(1e-3, error=0.001, device="cuda:0", precision=one) for one in ("fp32", "amp-fp16")]
    assert said not in told(met(*plain))


def test_of_training_the_loss_is_what_is_off_and_no_verdict_is_no_advice() -> None:
    plain, half = outcome(1.42e-3, precision="fp32"), outcome(1e-3, precision="bf16", error=0.002)
    assert "; its loss is 0.20 % off [" in told(met(plain, half))
    noisy = told(met(plain, outcome(1.41e-3, precision="bf16", error=0.002), noise=0.1))
    assert re.search(
        r"can't tell if bf16 is worth it: no clear difference \(\S+ % slower to \S+ % faster\); "
        r"its loss is 0\.20 % off \[",
        noisy,
    )


def test_two_precisions_over_sizes_are_one_sentence_with_the_range_of_their_errors() -> None:
    known = []
    for group, (size, error) in enumerate(((8, 0.002), (16, 0.004), (32, None))):
        sides = [outcome(time * size, batch=size, mode="infer", precision=name, error=off)
                 for name, time, off in (("fp32", 1e-3, None), ("bf16", 5e-4, error))]  # fmt: skip
        known += met(*sides, group=group)
    line = told(known)
    assert line.startswith("MLP, inference on cpu: bf16 beats fp32 at every batch from 8 to 32: 2.00x (")
    assert "; bf16's results are 0.20 % to 0.40 % off [paired at 3 sizes" in line
    assert len(answers_json(answers(known))["precisions"]) == 3


def test_a_copy_is_told_in_time_and_as_a_share_of_the_step() -> None:
    sides = [outcome(step, placement=name) for name, step in (("device", 0.76e-3), ("host", 1e-3))]
    line = told(met(*sides, noise=0.05))
    assert line.startswith("MLP, training, batch 8 on cpu: copying in costs 2")
    assert " µs a step, 24 % (2" in line
    assert ") of it [paired, 48 rounds in one process]" in line


def test_a_copy_that_costs_nothing_or_can_not_be_told_says_so() -> None:
    def pair(step: float, noise: float) -> str:
        return told(met(outcome(1e-3, placement="device"), outcome(step, placement="roundtrip"), noise=noise))

    assert "copying in and back costs next to nothing: roundtrip and device are equivalent" in pair(1e-3, 0.004)
    assert "copying in and back costs nothing: roundtrip is 1.25x" in pair(0.8e-3, 0.004)
    open_one = pair(1.01e-3, 0.05)
    assert "copying in and back may cost nothing: " in open_one
    assert " of a step [" in open_one
    assert "would settle it" in open_one


def test_growth_with_the_length_is_told_as_an_exponent() -> None:
    plain = told([outcome(1e-6 * length, seq=length) for length in (64, 128, 256)])
    assert plain.startswith("MLP, training, batch 8 on cpu: the time of a step grows with seq to the power of 1.00 (")
    assert " from 64 to 256, fitted over 3 lengths; between the two longest 1.00 (" in plain
    assert plain.endswith(" from 128 to 256 [separate runs]")
    bent = told([outcome(1e-6 * (length + length**2 / 200), seq=length) for length in (32, 64, 512, 1024)])
    assert "; but it bends: 1.19 (" in bent
    assert " from 512 to 1,024 [separate runs]" in bent
    vague = told([outcome(1e-6 * length, seq=length, apart=0.1) for length in (64, 128, 256)])
    assert vague.endswith("--by seq would pair the lengths]")
    single = told([outcome(1e-6 * length, processes=1, seq=length) for length in (64, 128)])
    assert "fitted" not in single
    short = [outcome(1e-6 * length, processes=1, blocks=1, seq=length) for length in (64, 128, 256)]
    assert told(short).endswith("too few samples for an interval: a larger --budget, or more --repeats]")


def test_answers_are_data_too() -> None:
    crossing = answers_json(answers(swept([1.0, 2.0, 4.0, 0.0], [1.5, 1.5, 1.5, 1.5])))["crossovers"][0]
    assert (crossing["verdict"], crossing["base"], crossing["other"]) == ("crosses", "cpu", "mps")
    assert crossing["crossings"][0]["faster_above"] == "mps"
    assert [one["batch"] for one in crossing["comparisons"]] == [1, 2, 4]
    assert crossing["missing"] == [
        {"case": "mlp/train/torch/cpu/fp32/b8/device", "batch": 8, "status": "oom", "reason": "no room"}
    ]
    known = [
        *met(outcome(1e-3, placement="device"), outcome(2e-3, placement="host")),
        outcome(1e-3, placement="device", precision="bf16", error=0.01),
        *(outcome(1e-6 * length, seq=length) for length in (64, 128)),
    ]
    found = answers_json(answers(known))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["copies"][0]["way"] == "in"
    assert found["precisions"][0]["error"] == 0.01
    assert found["scalings"][0]["fit"]["to"] == 128
    assert answers_json(Answers()) == {"crossovers": [], "precisions": [], "copies": [], "scalings": [], "loaders": []}
