"""A submission that was altered is refused: each alteration by its owner, who can sign whatever he likes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import submitted
from tests.submitted import HERE, MLP, THEIR_SECRET, THIRD_SECRET, good, key_of, written
from tests.views.report import made_records

from mldyno import api
from mldyno.records import Case, Checks, Device, Record, Run, Series, Software, seal
from mldyno.store import Query, Store

TRAIN, HALF = replace(MLP, mode="train"), replace(MLP, precision="bf16")
CUDA = replace(MLP, device="cuda:0")
GPT2 = Case("gpt2", mode="infer", batch=1, seq=512)
THEIRS = replace(HERE, name="their bench", key=key_of(THEIR_SECRET))
THIRD = replace(HERE, name="third bench", key=key_of(THIRD_SECRET))
Alter = Callable[[Record], Record]


def faults(*paths: str) -> list[str]:
    return api.check_submissions(paths)[1]


def fact(name: str, value: Any) -> Alter:
    return lambda record: replace(record, facts={**record.facts, name: value})


def times(factor: float, *stages: str) -> Alter:
    def alter(record: Record) -> Record:
        return replace(record, series=tuple(
            replace(part, values=tuple(float(f"{factor * value:.6g}") for value in part.values))
            if part.metric == "step_time" and (not stages or part.stage in stages) else part
            for part in record.series))  # fmt: skip

    return alter


def scaled(factor: float) -> Alter:
    """All times, and the facts that go with them."""

    def alter(record: Record) -> Record:
        record = times(factor)(record)
        return fact("first_step", record.values("step_time", "first")[0])(record)

    return alter


def both(*alterations: Alter) -> Alter:
    def alter(record: Record) -> Record:
        for each in alterations:
            record = each(record)
        return record

    return alter


def case(**axes: Any) -> Alter:
    return lambda record: replace(record, case=replace(record.case, **axes))


def machine(**parts: Any) -> Alter:
    return lambda record: replace(record, machine=replace(record.machine, **parts))


def checks(**parts: Any) -> Alter:
    return lambda record: replace(record, checks=replace(record.checks, **parts))


def series(*parts: Series) -> Alter:
    return lambda record: replace(record, series=parts)


def with_energy(energy: float, power: float | None) -> Alter:
    """The energy of a step in J, and the power in W."""

    def alter(record: Record) -> Record:
        parts = [Series("energy", "J", (energy,) * 5)] + ([Series("power", "W", (power,) * 5)] if power else [])
        return replace(record, series=(*record.series, *parts), facts={**record.facts, "energy_scope": "machine"})

    return alter


def with_phases(**phases: tuple[float, int]) -> Alter:
    """The time of each phase in s, and its items."""

    def alter(record: Record) -> Record:
        parts = tuple(Series(f"{name}_time", "s", (time,) * 5) for name, (time, _) in phases.items())
        facts = {f"{name}_items": items for name, (_, items) in phases.items()}
        record = replace(record, series=(*record.series, *parts), facts={**record.facts, **facts})
        return fact("phases", ", ".join(phases))(record)

    return alter


def test_a_good_submission_has_no_fault(tmp_path: Path) -> None:
    assert faults(written(tmp_path / "good.jsonl", submitted.several())) == []


ALTERED: dict[str, tuple[Case, Alter, str]] = {
    # 190 ns a step: whatever is left out or invented beside it
    "too fast": (MLP, scaled(1.9e-5), "that its device reaches in matmuls"),
    "too fast, no peak": (MLP, both(scaled(1.9e-5), fact("peak_flops", None)), "that any such device reaches"),
    "too fast, no operations": (MLP, both(scaled(1.9e-5), fact("flops_per_step", None)), "in matmuls"),
    "too fast, one operation": (MLP, both(scaled(1.9e-5), fact("flops_per_step", 1.0)), "in matmuls"),
    "too fast, any peak": (MLP, both(scaled(1.9e-5), fact("peak_flops", 1e30)), "is more than any such device reaches"),
    "too fast, in half precision alone": (HALF, scaled(1.9e-5), "that any such device reaches"),
    "too fast, in training": (TRAIN, both(scaled(1e-5), fact("peak_flops", None)), "that any such device reaches"),
    "too fast on a GPU": (CUDA, both(scaled(1e-5), fact("peak_flops", None)), "that any such device reaches"),
    "a GPU's peak": (CUDA, fact("peak_flops", 1e18), "is more than any such device reaches"),
    "a copy": (Case("copy", mode="infer", batch=64), scaled(1e-6), "that any such device copies"),
    "a process": (
        Case("mnist-cnn-process", framework="command", mode="train", batch=64, placement="loader"),
        scaled(1e-5), "that any such device reaches",
    ),
    "a million cores": (MLP, both(scaled(1e-4), machine(cores=1_000_000), fact("peak_flops", None)), "no machine has"),
    # what the catalogue knows
    "no peak": (MLP, fact("peak_flops", None), "its peak in matmuls is missing"),
    "no operations": (MLP, fact("flops_per_step", None), "its flops per step is nothing"),
    "one operation": (MLP, fact("flops_per_step", 1.0), "its flops per step is 1"),
    "more operations": (MLP, fact("flops_per_step", 1e30), "its flops per step is 1e+30"),
    "no parameters": (MLP, fact("params", None), "its params is nothing"),
    "other parameters": (MLP, fact("params", 7), "its params is 7"),
    "more items": (MLP, fact("items_per_step", 128_000), "its items per step is"),
    "no items": (MLP, fact("items_per_step", None), "its items per step is nothing"),
    "a smaller batch": (MLP, case(batch=1024), "its items per step is"),
    "no batch": (MLP, case(batch=None), "has a batch and no sequence"),
    "a sequence": (MLP, case(seq=8), "has a batch and no sequence"),
    "another mode": (MLP, case(mode="train"), "its flops per step is"),
    "a mode that it has not": (Case("copy", mode="infer", batch=64), case(mode="train"), "has no mode train"),
    "another workload": (MLP, case(workload="mnist-mlp"), "its params is"),
    "a version to come": (MLP, case(version=9), "is not known here"),
    "a framework that no one has": (
        MLP, both(case(framework="fastest"), machine(devices=(Device("cpu", "fastest"),)), fact("peak_flops", None),
                  lambda record: replace(record, software=Software(framework="fastest"))),
        "framework fastest is not known here"),
    "no steps at all": (
        MLP, both(fact("steps", 0), lambda record: replace(
            record, series=tuple(replace(part, turn=None) for part in record.series))),
        "it says 0 steps, and its samples are of 0"),
    "a process of its own": (
        MLP, both(case(framework="command"), lambda record: replace(record, software=Software(framework="command"))),
        "mlp is not run as a whole process"),
    "no precision": (MLP, case(precision=None), "a case of mlp has a precision"),
    "items of another kind": (MLP, fact("item", "token"), "its items are called token, and in the catalogue sample"),
    # checks
    "disagrees": (HALF, checks(agrees=False), "its check 'agrees' failed"),
    "disagrees, on the CPU": (MLP, checks(agrees=False), "its check 'agrees' failed"),
    "did not learn": (TRAIN, checks(learned=False), "its check 'learned' failed"),
    "not checked to learn": (TRAIN, lambda record: replace(record, checks=Checks()), "nothing shows that it learned"),
    "not checked to agree": (HALF, lambda record: replace(record, checks=Checks()), "nothing shows that its results"),
    "a loss that rose": (TRAIN, fact("loss_last", 0.8), "nothing shows that it learned"),
    "no loss": (TRAIN, both(fact("loss_last", None), fact("loss_first", None)), "nothing shows that it learned"),
    "far off": (HALF, checks(error=0.5), "at most 0.1 is allowed"),
    "no error": (HALF, checks(error=None), "its results differ by nothing"),
    "no difference": (HALF, checks(error=0.0), "bf16 did not take effect"),
    # facts and samples
    "more steps": (MLP, fact("steps", 10_000), "it says 10000 steps, and its samples are of 240"),
    "no steps": (MLP, fact("steps", None), "it says None steps"),
    "no time in all": (MLP, fact("wall_time", None), "it says that it took nothing s"),
    "less time in all": (MLP, fact("wall_time", 0.5), "it says that it took 0.5 s"),
    "a first step": (MLP, fact("first_step", 1e-6), "it says that its first step took 1e-06 s"),
    "no first step": (MLP, fact("first_step", None), "it says that its first step took nothing"),
    "other blocks": (MLP, fact("block_steps", 400), "it says blocks of 400 steps"),
    "steady steps alone": (MLP, times(0.1, "steady"), "times as fast as in the warm-up"),
    "steps in reference kernels": (MLP, times(0.3, "steady", "warmup"), "reference kernels"),
    "no steps in reference kernels": (MLP, fact("step_per_reference", None), "it does not say a step in reference"),
    "a first step that is told by its sample": (
        MLP, both(times(1e-6, "first"), fact("first_step", 1e-8)), "times as fast as any after it"),
    "the energy of no machine": (MLP, with_energy(1e-9, 1e-7), "W, which no machine takes"),
    "the energy of a power station": (MLP, with_energy(1e6, 1e8), "W, which no machine takes"),
    "less energy than its power": (MLP, with_energy(0.01, 100.0), "and it says 100 W"),
    "energy without power": (MLP, with_energy(0.5, None), "and no power"),
    "too fast in the rounds of a comparison": (
        MLP, lambda record: replace(
            record, run=replace(record.run, pairing="interleaved", group=1), facts={},
            series=(Series("step_time", "s", tuple(1e-7 * (1 + n / 100) for n in range(60)), stage="paired"),)),
        "that any such device reaches"),
    "the energy of no machine in a comparison": (
        MLP, lambda record: replace(
            record, run=replace(record.run, pairing="interleaved", group=1), facts={},
            series=(Series("step_time", "s", tuple(0.01 * (1 + n / 100) for n in range(9)), stage="paired"),
                    Series("energy", "J", (1e-9,) * 9, stage="paired"))),
        "W, which no machine takes"),
    "a phase of no time": (GPT2, with_phases(prefill=(1e-15, 512), decode=(10.0, 32)), "its phase prefill takes 1e-15"),
    "phases of a faster step": (GPT2, with_phases(prefill=(0.5, 512), decode=(0.5, 32)), "its phases take 1 s"),
    "phases of more items": (GPT2, with_phases(prefill=(5.0, 10**9), decode=(5.0, 32)), "and its step 544"),
    "phases of no items": (
        GPT2, both(with_phases(prefill=(10.0, 1)), fact("prefill_items", None), fact("items_per_step", None)),
        "its phases have 0 items"),
    "a phase that the work has not": (MLP, with_phases(prefill=(0.005, 512)), "its phases have 512 items"),
    "the time of all steps": (
        MLP, lambda record: replace(record, series=(*record.series, Series("loop_time", "s", (1e-9,)))),
        "it has a loop_time, which only figures have",
    ),
    "all the same": (
        MLP, lambda record: replace(record, series=tuple(
            replace(part, values=(0.01,) * len(part.values)) if part.stage == "steady" else part
            for part in record.series if part.metric != "reference_time")), "samples are all the same",
    ),
    "no samples": (MLP, series(Series("peak_memory", "B", (3e8,), stage="process")), "no time of a step"),
    "the time of a loop": (
        MLP, both(series(Series("loop_time", "s", (1e-6,))), fact("steps", 10**9)), "no time of a step",
    ),
    "what is usual": (
        MLP, both(fact("process_spread", 0.01), fact("process_freedom", 5.0), fact("reference_slope", 3.0),
                  fact("reference_slope_error", 0.01), fact("reference_usual", 0.7e-4), fact("reference_error", 0.01),
                  fact("reference_freedom", 5.0), fact("reference_size", 256)), "what it says is usual",
    ),
    "no room": (MLP, machine(memory=1 << 20), "its machine has"),
    "a process without parameters": (
        MLP, lambda record: replace(record, series=tuple(
            replace(part, values=(10.0,)) if part.metric == "peak_memory" else part for part in record.series)),
        "do not hold 1,051,138 parameters",
    ),
    # device and machine
    "another device": (MLP, case(device="mps"), "its machine has no device mps"),
    "the second GPU": (CUDA, case(device="cuda:1"), "its machine has no device cuda:1"),
    "ran elsewhere": (CUDA, fact("device_seen", "cpu"), "it ran on cpu, and says cuda:0"),
    "another framework": (MLP, case(framework="jax"), "its machine has no device cpu in jax"),
    "ranks of a framework that is not known": (
        MLP, case(framework="theirs", ranks=2), "its machine has no device cpu in theirs"),
    "more cores than its name, with more spaces": (
        MLP, machine(name="Example CPU, 64 cores, 32  GB"), "and has 8 cores"),
    "fewer threads": (
        MLP, both(case(threads=1), lambda record: replace(record, software=replace(record.software, threads=8))),
        "it ran with 8 threads, and says 1"),
    "too fast for one thread": (MLP, both(case(threads=1), fact("peak_flops", 2e12)), "than any such device reaches"),
    "another interpreter": (
        MLP, both(case(python="3.14.0+torch2.13.0"),
                  lambda record: replace(record, software=replace(record.software, python="3.11.7"))),
        "it ran in Python 3.11.7, and says 3.14.0"),
    "computed elsewhere": (
        MLP, lambda record: replace(record, software=Software(framework="numpy")), "numpy computed it",
    ),
    "more ranks than devices": (CUDA, case(ranks=8, parallel="ddp"), "fewer than 8 devices"),
    "M1 Max": (MLP, machine(name="M1 Max"), "none of its parts is M1 Max"),
    "M1 Max 10-core CPU 32-core GPU 32GB": (
        MLP, machine(name="m1 max 10-core CPU 32-core GPU 32GB"), "none of its parts is m1 max"),
    "RTX 4090": (MLP, machine(name="my RTX 4090 Ti"), "none of its parts is RTX 4090 Ti"),
    "M1Max": (MLP, machine(name="M1Max"), "none of its parts is M1Max"),
    "M1_Max": (MLP, machine(name="M1_Max"), "none of its parts is M1 Max"),
    "M1 Max in wide letters": (MLP, machine(name="\uff2d\uff11 Max"), "none of its parts is M1 Max"),
    "RTX-4090": (MLP, machine(name="my RTX-4090"), "none of its parts is RTX 4090"),
    "8xH100": (MLP, machine(name="8xH100"), "none of its parts is H100"),
    "A100_80GB": (MLP, machine(name="A100_80GB"), "none of its parts is A100"),
    "M 1 Max": (MLP, machine(name="M 1 Max"), "none of its parts is M 1 Max"),
    "M 1 M a x": (MLP, machine(name="M 1 M a x"), "none of its parts is M1Max"),
    "R T X 4 0 9 0": (MLP, machine(name="R T X 4 0 9 0"), "none of its parts is RTX4090"),
    "RT X 40 90": (MLP, machine(name="my RT X 40 90"), "none of its parts is RT X 40 90"),
    "8 x H 1 0 0": (MLP, machine(name="8 x H 1 0 0"), "none of its parts is H100"),
    "M1 Max in Cyrillic letters": (MLP, machine(name="\u041c1 M\u0430x"), "none of its parts is M1 Max"),
    "M1 Max in small capitals": (MLP, machine(name="\u1d0d1 Max"), "none of its parts is M1 Max"),
    "H100 in other digits": (MLP, machine(name="H\u0661\u0660\u0660"), "none of its parts is H100"),
    "GH200": (MLP, machine(name="GH200"), "none of its parts is GH200"),
    "more cores than its name, without spaces": (MLP, machine(name="Example CPU,64 cores,32 GB"), "and has 8 cores"),
    "M10": (MLP, machine(name="M10 Ultra"), "none of its parts is M10 Ultra"),
    "H100x8": (MLP, machine(name="H100x8"), "none of its parts is H100"),
    "GeForce 4090": (MLP, machine(name="GeForce 4090"), "none of its parts is GeForce 4090"),
    "RX 7900 XTX": (MLP, machine(name="RX 7900 XTX"), "none of its parts is RX 7900 XTX"),
    "TPU v4": (MLP, machine(name="TPU v4"), "none of its parts is TPU v4"),
    "Core Ultra": (MLP, machine(name="Core Ultra 9"), "none of its parts is Core Ultra"),
    "a published name, with more spaces": (MLP, machine(name="unstated   CPU"), "as a published one"),
    "a published name": (MLP, machine(name="Unstated CPU"), "as a published one"),
    "more cores than its name": (MLP, machine(name="Example CPU, 64 cores, 32 GB"), "and has 8 cores"),
    "nothing of its machine": (MLP, machine(cpu="unknown", devices=()), "it says nothing of its machine"),
    # what it is
    "figures": (MLP, lambda record: replace(record, provenance="imported"), "it is imported, not measured"),
    "fake": (MLP, fact("fake_time", True), "its times are fake"),
    "wrong, then ok": (
        TRAIN, both(checks(learned=None), fact("loss_first", None), fact("loss_last", None), fact("peak_flops", None)),
        "nothing shows that it learned",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_record_is_a_fault_though_its_owner_signs_it(name: str, tmp_path: Path) -> None:
    case_, alter, words = ALTERED[name]
    record = good(case_, 10.0 if case_.framework == "command" or case_ == GPT2 else 0.01, THEIRS)
    if case_.framework == "command":
        record = replace(record, software=Software(framework="command"), checks=Checks())
    original = written(tmp_path / "good.jsonl", [seal(record)], THEIR_SECRET)
    assert faults(original) == []
    lines = faults(written(tmp_path / "altered.jsonl", [seal(alter(record))], THEIR_SECRET))
    assert any(words in line for line in lines), lines
    assert all(line.startswith(str(tmp_path / "altered.jsonl")) for line in lines)


# -- whose it is -----------------------------------------------------------------------------------


def test_phases_that_make_up_the_step_and_those_of_a_loader_are_no_faults(tmp_path: Path) -> None:
    record = with_phases(prefill=(4.0, 512), decode=(6.0, 32))(good(GPT2, 10.0, THEIRS))
    loader = with_phases(data=(1e-7, 2560), epoch=(1.0, 70_000))(good(TRAIN, machine=THEIRS, peak_flops=1e12))
    assert faults(written(tmp_path / "good.jsonl", map(seal, (record, loader)), THEIR_SECRET)) == []


def test_energy_that_fits_time_and_power_and_the_trade_marks_of_a_part_are_no_faults(tmp_path: Path) -> None:
    record = with_energy(0.5, 50.0)(
        good(machine=replace(THEIRS, cpu="Intel(R) Core(TM) Ultra 7 155H", name="Core Ultra"))
    )
    assert faults(written(tmp_path / "good.jsonl", [seal(record)], THEIR_SECRET)) == []


@pytest.mark.parametrize("name", ["rack 1 2 3", "Lab A 10", "RX 580 8 GB", "box 5 8 0"])
def test_a_name_of_other_words_and_numbers_is_no_fault(name: str, tmp_path: Path) -> None:
    card = Device("cuda:1", "torch", "AMD Radeon RX 580")
    record = good(machine=replace(THEIRS, name=name, devices=(*THEIRS.devices, card)))
    assert faults(written(tmp_path / "good.jsonl", [seal(record)], THEIR_SECRET)) == []


def test_a_record_under_anothers_key_is_a_fault_whatever_its_date(tmp_path: Path) -> None:
    """The victim's key stands in every file; its secret does not."""
    victim = written(tmp_path / "victim.jsonl", [good(machine=THEIRS)], THEIR_SECRET)
    forged = seal(replace(good(step=0.005, machine=THEIRS, round_=1), created="2026-06-01T00:00:00Z"))
    signed_by_another = written(tmp_path / "forged.jsonl", [forged], THIRD_SECRET)
    (line,) = faults(victim, signed_by_another)
    assert line.startswith(signed_by_another)
    assert "nothing proves that it is of the machine whose key it bears" in line
    unsigned = tmp_path / "unsigned.jsonl"
    unsigned.write_text(forged.text + "\n")
    (line,) = faults(victim, str(unsigned))
    assert "nothing proves" in line
    borrowed = tmp_path / "borrowed.jsonl"
    borrowed.write_text(Path(victim).read_text().splitlines()[0] + f"\n{forged.text}\n")
    (line,) = faults(str(borrowed))
    assert "nothing proves" in line


def test_a_signature_that_was_changed_or_cut_is_a_fault(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "a.jsonl", [good(machine=THEIRS)], THEIR_SECRET))
    proof, text = path.read_text().splitlines()
    for spoilt in (
        proof.replace('"signature":"', '"signature":"00'),
        proof.replace('"proves":[', '"proves":["' + "0" * 32 + '",'),
    ):
        path.write_text(f"{spoilt}\n{text}\n")
        assert any("its signature is not valid" in line for line in faults(str(path)))
    for nonsense in (
        '{"proves":1}',
        '{"proves":["x"],"rescued":""}',
        '{"proves":[],"by":"me"}',
        '{"proves":[],"rescued":[]}',
    ):
        path.write_text(f"{nonsense}\n{text}\n")
        assert any("line 1: a proof" in line for line in faults(str(path))), nonsense


def test_a_record_without_a_key_is_a_fault(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [good(machine=replace(HERE, key=None))])
    assert any("nothing proves" in line for line in faults(path))


# -- across records and files ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"cpu": "Example Xeon"}, "cpu Example Xeon, and Example CPU in another record"),
        ({"cores": 64}, "cores 64, and 8 in another record"),
        ({"memory": 256 << 30}, "memory of"),
        ({"arch": "arm64"}, "arch arm64"),
        ({"system": "Darwin"}, "system Darwin"),
        ({"devices": (made_records.DEVICES[0], Device("cuda:0", "torch", "Another GPU"))}, "and Example GPU"),
    ],
    ids=["processor", "cores", "memory", "architecture", "system", "GPU"],
)  # fmt: skip
def test_a_key_that_comes_with_other_hardware_is_a_fault_in_one_file_and_across(
    other: dict[str, Any], words: str, tmp_path: Path
) -> None:
    one, two = good(machine=THEIRS), good(TRAIN, machine=replace(THEIRS, **other))
    two = seal(replace(two, run=replace(two.run, id="r2")))
    (line,) = faults(written(tmp_path / "both.jsonl", [one, two], THEIR_SECRET))
    assert words in line
    assert "its key comes with other hardware" in line
    files = [written(tmp_path / f"{n}.jsonl", [each], THEIR_SECRET) for n, each in enumerate((one, two))]
    assert [faults(file) for file in files] == [[], []]
    (line,) = faults(*files)
    assert line.startswith(files[1])
    assert words in line


def test_a_kernel_may_take_a_little_memory_for_itself(tmp_path: Path) -> None:
    other = replace(THEIRS, memory=int(0.98 * (THEIRS.memory or 0)), release="6.2", power="battery")
    assert faults(written(tmp_path / "a.jsonl", [good(machine=THEIRS), good(TRAIN, machine=other)], THEIR_SECRET)) == []


def reordered(record: Record) -> Record:
    return replace(record, series=tuple(replace(part, values=part.values[::-1]) for part in record.series))


def shortened(record: Record) -> Record:
    parts = tuple(replace(part, values=part.values[:-20]) if part.stage == "steady" else part for part in record.series)
    return fact("steps", 160)(replace(record, series=parts))


@pytest.mark.parametrize(
    "alter",
    [times(1.0), scaled(0.5), scaled(0.97), scaled(1.3333), reordered, both(scaled(0.5), shortened)],
    ids=["as they are", "x0.5", "x0.97", "x1.3333", "the other way round", "x0.5, without the last"],
)
def test_the_same_samples_under_another_name_and_key_are_a_fault(alter: Alter, tmp_path: Path) -> None:
    victim = written(tmp_path / "victim.jsonl", [good(machine=THEIRS)], THEIR_SECRET)
    copied = alter(replace(good(machine=THIRD), created="2025-12-01T00:00:00Z"))
    parts = tuple(part for part in copied.series if part.metric != "reference_time")
    facts = {**copied.facts, "step_per_reference": None, "wall_time": 100.0, "peak_flops": 1e12}
    copied = replace(copied, series=parts, facts=facts)
    copy = written(tmp_path / "copy.jsonl", [seal(copied)], THIRD_SECRET)
    assert faults(victim) == faults(copy) == []
    (line,) = faults(victim, copy)
    assert line.startswith(copy)
    assert "its samples are those of record" in line
    assert "of their bench" in line


def test_the_same_samples_under_two_names_of_one_key_or_for_two_cases_are_a_fault(tmp_path: Path) -> None:
    mine = good(machine=THEIRS)
    renamed = seal(replace(mine, machine=replace(THEIRS, name="faster bench")))
    assert "its samples are those of" in faults(written(tmp_path / "a.jsonl", [mine, renamed], THEIR_SECRET))[0]
    twice = seal(replace(good(TRAIN, machine=THEIRS, peak_flops=1e12), series=mine.series))
    lines = faults(written(tmp_path / "b.jsonl", [mine, twice], THEIR_SECRET))
    assert any("its samples are those of" in line for line in lines)


def test_one_measurement_may_be_submitted_twice(tmp_path: Path) -> None:
    one = good(machine=THEIRS)
    private = seal(replace(one, facts={**one.facts, "private": True}))
    files = [written(tmp_path / f"{n}.jsonl", [each], THEIR_SECRET) for n, each in enumerate((one, one, private))]
    assert faults(*files) == []
    assert faults(files[0], files[0]) == []


def test_hundreds_of_submissions_are_not_taken_for_copies_of_each_other(tmp_path: Path) -> None:
    records = [
        good(each, 0.01, replace(HERE, name=f"bench {number}"), number)
        for number in range(300)
        for each in (MLP, TRAIN)
    ]
    assert faults(written(tmp_path / "a.jsonl", records)) == []


# -- the site --------------------------------------------------------------------------------------


def rows(store: Store) -> dict[str, float]:
    return {
        record.shown_machine: record.values("step_time")[0] for record in store.select(Query(provenances=("measured",)))
    }


def test_a_later_record_under_anothers_key_does_not_replace_their_row(tmp_path: Path, store: Store) -> None:
    victim = good(machine=THEIRS)
    forged = seal(replace(good(step=0.0001, machine=THEIRS, round_=1), created="2026-06-01T00:00:00Z"))
    (tmp_path / "forged.jsonl").write_text(forged.text + "\n")
    files = [written(tmp_path / "victim.jsonl", [victim], THEIR_SECRET), str(tmp_path / "forged.jsonl")]
    for order in (files, files[::-1]):
        collection = Store(tmp_path / f"{len(rows(store))}-{order[0][-12:-6]}.sqlite")
        api.import_(order, collection)
        key = THEIRS.key[:4] if THEIRS.key else ""
        shown = rows(collection)
        assert shown[f"their bench [{key}] (imported)"] == victim.values("step_time")[0]
        assert shown[f"their bench [{key}?] (imported)"] == forged.values("step_time")[0]
        pages = tmp_path / f"site-{order[0][-12:-6]}"
        api.site(str(pages), store=collection)
        assert len(list((pages / "machines").glob("their-bench-*.html"))) == 2


def test_what_came_in_unsigned_first_is_its_owners_once_it_comes_signed(tmp_path: Path, store: Store) -> None:
    """Else a copy of the victim's record, imported before it, would keep it from being told from a forged one."""
    victim = good(machine=THEIRS)
    forged = seal(replace(good(step=0.0001, machine=THEIRS, round_=1), created="2026-06-01T00:00:00Z", run=Run("r9")))
    (tmp_path / "copied.jsonl").write_text(f"{victim.text}\n{forged.text}\n")
    signed = written(tmp_path / "victim.jsonl", [victim], THEIR_SECRET)
    for _ in range(2):
        api.import_([str(tmp_path / "copied.jsonl"), signed], store)
        shown = rows(store)
        assert len(shown) == 2
        assert shown[f"their bench [{str(THEIRS.key)[:4]}] (imported)"] == victim.values("step_time")[0]


def test_a_later_record_that_its_owner_signed_does_replace_it(tmp_path: Path, store: Store) -> None:
    later = good(step=0.005, machine=THEIRS, round_=1)
    later = seal(replace(later, created="2026-06-01T00:00:00Z", run=Run("r9")))
    for number, each in enumerate((good(machine=THEIRS), later)):
        api.import_([written(tmp_path / f"{number}.jsonl", [each], THEIR_SECRET)], store)
    assert rows(store) == {"their bench (imported)": later.values("step_time")[0]}


def test_there_are_many_alterations() -> None:
    assert len(ALTERED) > 60
