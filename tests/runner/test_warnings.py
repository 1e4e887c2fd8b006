"""Every warning of the closed list: what brings it up, and that it names the next step."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from mldyno.analysis.outcomes import TARGET_NOT_REACHED
from mldyno.records import Case, Device, Machine, Series
from mldyno.runner.warnings import ENERGY_LOST, INTERRUPTED, LEFT_OUT_CODE, WARNING_CODES, Evidence, of_measurement
from mldyno.stats.intervals import median


def steps(level: Any = lambda place: 1.0) -> Series:
    """Two hundred blocks of 1 ms with a noise of 1 %, at a level that may depend on the place."""
    chance = random.Random(7)
    return Series("step_time", "s", tuple(1e-3 * level(n / 200) * (1 + chance.gauss(0, 0.01)) for n in range(200)))


def windows(**gained: float) -> list[Series]:
    """Ten windows of 20 ms in which each counter gained so much."""
    counted = {"window_time": 0.02, "cpu_time": 0.02, **gained}
    return [Series(name, "s", (value,) * 10, stage="window") for name, value in counted.items()]


def process(**values: float) -> list[Series]:
    return [Series(name, "1", (value,), stage="process") for name, value in values.items()]


QUIET = Evidence(
    Case("mlp", batch=8), [steps(), *windows(run_delay=0.0, stolen_time=0.0)],
    {"late_changes": 0, "drained_share": 1.0},
    Machine("m", cores=4, power="mains", virtualised=False), 1,
)  # fmt: skip
GPU = replace(
    QUIET,
    case=Case("mlp", batch=8, device="mps"),
    facts={"issued_share": 0.1, "drained_share": 0.2, "events_share": 1.0},
)
LATE = {"issued_share": 0.97, "drained_share": 0.97, "events_share": 1.0}
GROWING = Series("resident_memory", "B", tuple(1e9 + 2e7 * n for n in range(40)), stage="window")

CAUSES: dict[str, Evidence] = {
    "late-change": replace(QUIET, facts={"late_changes": 2}),
    "recompiled": replace(QUIET, facts={"recompiles": 2}),
    "drifting": replace(QUIET, series=[steps(lambda place: 1 + 0.1 * place)]),
    "two-modes": replace(QUIET, series=[steps(lambda place: 1.5 if int(place * 200) % 3 == 0 else 1.0)]),
    "host-bound": replace(GPU, facts=LATE),
    "step-waits": replace(GPU, facts={**LATE, "host_syncs_per_step": 1}),
    "contended": replace(QUIET, series=[steps(), *windows(run_delay=0.01)]),
    "oversubscribed": replace(QUIET, series=[steps(), *windows(run_delay=0.01)], threads=2),
    "falls-back": replace(GPU, facts={**GPU.facts, "fallbacks_per_step": 3}),
    "emulated": replace(GPU, facts={**GPU.facts, "emulated": True}),
    "burst": replace(GPU, facts={**GPU.facts, "load_time": 0.7}),
    "throttled": replace(QUIET, series=[steps(), *process(throttle_events=3.0)]),
    "power-capped": replace(GPU, series=[steps(), *windows(), *process(power_limit_time=0.15)]),
    "swapping": replace(QUIET, series=[steps(), *process(swapped_memory=float(64 << 20))]),
    "leaking": replace(QUIET, series=[steps(), GROWING]),
    "niced": replace(QUIET, facts={"niceness": 15}),
    "few-cores": replace(QUIET, facts={"cores_allowed": 1, "cores_present": 4}),
    "on-battery": replace(QUIET, machine=replace(QUIET.machine, power="battery")),
    "low-power": replace(QUIET, machine=replace(QUIET.machine, low_power=True)),
    "virtualised": replace(QUIET, machine=replace(QUIET.machine, virtualised=True)),
    "rosetta": replace(QUIET, facts={"translated": True}),
    "shared-power": replace(QUIET, facts={"energy_scope": "package", "energy_others": 0.6}),
}


def codes(evidence: Evidence) -> list[str]:
    return [warning.code for warning in of_measurement(evidence)]


def test_a_quiet_case_has_no_warning() -> None:
    assert codes(QUIET) == []
    assert codes(GPU) == []


def test_every_warning_of_the_list_is_tried_here() -> None:
    assert {*CAUSES, INTERRUPTED.code, LEFT_OUT_CODE, ENERGY_LOST, TARGET_NOT_REACHED} == set(WARNING_CODES)


@pytest.mark.parametrize("code", CAUSES)
def test_a_cause_brings_its_warning_with_a_next_step(code: str) -> None:
    found = {warning.code: warning for warning in of_measurement(CAUSES[code])}
    assert code in found
    assert set(found) <= {code, "contended"}
    assert found[code].message
    assert found[code].hint


def test_a_speed_many_times_as_slow_as_the_other_is_not_given_in_percent() -> None:
    (near,) = of_measurement(CAUSES["two-modes"])
    assert near.message == "two speeds: 34 % of the blocks took 50 % longer than the others"
    far = replace(QUIET, series=[steps(lambda place: 900.0 if int(place * 200) % 3 == 0 else 1.0)])
    (message,) = (warning.message for warning in of_measurement(far) if warning.code == "two-modes")
    assert message == "two speeds: 34 % of the blocks took 899 times as long as the others"


def test_a_drift_comes_with_its_size_and_a_jump_with_its_place() -> None:
    (gradual,) = of_measurement(CAUSES["drifting"])
    assert "rose by" in gradual.message
    assert "bit by bit" in gradual.message
    (jump,) = of_measurement(replace(QUIET, series=[steps(lambda place: 1.0 if place < 0.6 else 1.08)]))
    assert "at once" in jump.message


def test_what_got_slower_is_to_cool_down_and_what_got_faster_is_not() -> None:
    (slower,) = of_measurement(CAUSES["drifting"])
    assert "cool down" in slower.hint
    (faster,) = of_measurement(replace(QUIET, series=[steps(lambda place: 1.1 - 0.1 * place)]))
    assert "fell by" in faster.message
    assert "cool" not in faster.hint
    assert "run it again" in faster.hint


def test_a_host_that_takes_time_from_a_virtual_machine_is_named() -> None:
    (warning,) = of_measurement(replace(QUIET, series=[steps(), *windows(run_delay=0.0, stolen_time=0.02)]))
    assert "host" in warning.message


def test_one_thread_that_does_not_always_run_tells_where_nothing_is_counted() -> None:
    assert codes(replace(QUIET, series=[steps(), *windows(cpu_time=0.015)])) == ["contended"]


def test_threads_that_wait_asleep_are_not_called_oversubscribed() -> None:
    passive = replace(CAUSES["oversubscribed"], env={"OMP_WAIT_POLICY": "PASSIVE"})
    assert codes(passive) == ["contended"]


def test_more_threads_than_cores_are_oversubscribed_on_a_quiet_machine_too() -> None:
    assert codes(replace(QUIET, threads=8)) == ["oversubscribed"]


def test_events_that_disagree_with_the_host_make_a_case_host_bound() -> None:
    assert codes(replace(GPU, facts={"drained_share": 0.2, "events_share": 0.5})) == ["host-bound"]


def test_a_host_that_only_waits_for_a_full_queue_holds_nothing_up() -> None:
    assert codes(replace(GPU, facts={"issued_share": 0.1, "drained_share": 0.97, "events_share": 1.0})) == []


def test_a_wait_that_is_hidden_in_a_step_of_few_kernels_is_found() -> None:
    hidden = {"issued_share": 0.5, "drained_share": 0.97, "events_share": 1.0, "kernels_per_step": 7}
    (warning,) = of_measurement(replace(GPU, facts=hidden))
    assert (warning.code, "something in it waits" in warning.message) == ("step-waits", True)
    assert codes(replace(GPU, facts={**hidden, "kernels_per_step": 700})) == []


def test_a_device_near_its_peak_is_not_held_up_by_the_host_however_long_issuing_takes() -> None:
    step = median(GPU.values("step_time", "steady"))
    for work, peak in (("flops_per_step", "peak_flops"), ("bytes_per_step", "peak_bandwidth")):
        assert codes(replace(GPU, facts={**LATE, work: 0.4 * step * 1e12, peak: 1e12})) == []
        assert codes(replace(GPU, facts={**LATE, work: 0.2 * step * 1e12, peak: 1e12})) == ["host-bound"]


def test_a_step_that_copies_its_batch_is_said_to_wait_and_by_how_much() -> None:
    (warning,) = of_measurement(replace(GPU, facts={**LATE, "copied_per_step": 1 << 20}))
    assert warning.code == "step-waits"
    assert "it copies 1.00 MiB, so that the host can't run ahead" in warning.message


@pytest.mark.parametrize(
    ("seen", "slowed_down"),
    [
        ({"thermal_pressure": 1.0}, False), ({"thermal_pressure": 2.0}, True),
        ({"thermal_limit_time": 0.001}, False), ({"thermal_limit_time": 0.01}, True),
        ({"power_limit_time": 0.01}, False), ({"power_limit_time": 0.2}, False),
        ({"gpu_held_back": 0.05}, False), ({"gpu_held_back": 0.5}, True), ({"throttle_events": 0.0}, False),
    ],
)  # fmt: skip
def test_a_gpu_is_throttled_where_it_was_held_back_for_more_than_a_moment(
    seen: dict[str, float], slowed_down: bool
) -> None:
    found = codes(replace(GPU, series=[steps(), *windows(), *process(**seen)]))  # 0.2 s were measured
    assert ("throttled" in found) == slowed_down


def test_a_card_at_its_power_limit_is_not_hot_and_its_limit_is_named() -> None:
    card = Device("cuda:0", "torch", facts={"power_limit": 450.0})
    capped = replace(
        GPU, case=replace(GPU.case, device="cuda:0"), machine=replace(GPU.machine, devices=(card,)),
        series=[steps(), *windows(), *process(power_limit_time=0.16)],
    )  # fmt: skip
    (warning,) = of_measurement(capped)
    assert (warning.code, warning.message) == (
        "power-capped",
        "its power limit of 450 W held its clock down for 80 % of the time: normal for a card at full load",
    )  # fmt: skip
    assert codes(replace(capped, series=[steps(), *windows(), *process(power_limit_time=0.01)])) == []


def test_a_fallback_that_is_allowed_but_was_not_counted_is_said_too() -> None:
    allowed = replace(GPU, env={"PYTORCH_ENABLE_MPS_FALLBACK": "1"})
    assert codes(allowed) == ["falls-back"]
    assert codes(replace(allowed, facts={**GPU.facts, "fallbacks_per_step": 0})) == []


def test_a_device_that_worked_long_enough_is_no_burst() -> None:
    assert codes(replace(GPU, facts={**GPU.facts, "load_time": 5.2})) == []


def test_nobody_gets_in_the_way_of_virtual_time() -> None:
    crowded = CAUSES["oversubscribed"]
    assert codes(replace(crowded, facts={**crowded.facts, "fake_time": True})) == []


ALL_CORES = {"niceness": 0, "cores_allowed": 4, "cores_present": 4}


def test_a_process_with_all_that_its_machine_has_is_neither_niced_nor_short_of_cores() -> None:
    assert codes(replace(QUIET, facts=ALL_CORES)) == []
    assert codes(replace(QUIET, facts={**ALL_CORES, "niceness": -5, "cpu_quota": 4.0})) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cores_allowed": 1}, "it may use 1 of the machine's 4 cores"),
        ({"cpu_quota": 1.5}, "it may use the time of 1.5 of the machine's 4 cores"),
        ({"cores_allowed": 1, "cpu_quota": 2.0}, "it may use 1 of the machine's 4 cores"),
    ],
)
def test_few_cores_are_named_whatever_withholds_the_rest(facts: dict[str, Any], words: str) -> None:
    (warning,) = of_measurement(replace(QUIET, facts={**ALL_CORES, **facts}))
    assert (warning.code, warning.message) == ("few-cores", words)


def test_threads_that_a_schedulers_setting_withholds_are_named_and_those_that_the_user_omits_are_not() -> None:
    capped = replace(QUIET, facts=ALL_CORES, env={"OMP_NUM_THREADS": "1"})
    (warning,) = of_measurement(capped)
    assert (warning.code, warning.message) == ("few-cores", "OMP_NUM_THREADS=1 gives it 1 thread on 4 cores")
    assert codes(replace(capped, case=replace(QUIET.case, threads=1))) == []
    assert codes(replace(capped, case=replace(QUIET.case, ranks=4))) == []
    assert codes(replace(capped, facts={**ALL_CORES, "cores_allowed": 1, "cores_present": 1})) == []
