"""A check-up as a user reads it: 80 columns, findings last, nothing that is not known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mldyno.doctor.report import WIDTH, as_json, report, short
from mldyno.doctor.symptoms import Checkup, Facts, Gpu, Installed, Noise, SensorState, Setting, StoreState, Trial, Tried
from mldyno.hardware import linux
from mldyno.records import Device, Machine
from mldyno.units import Interval

LONG = (
    "NotImplementedError: The operator 'aten::linalg_qr.out' is not currently implemented for the MPS device. "
    "If you want this op to be considered for addition please comment on an issue."
)
T4 = Device(
    "cuda:0", "torch", "NVIDIA T4", 15 << 30, {"driver": "550.54.14", "power_limit": 70.0, "multiprocessors": 40}
)
TRIED = (
    *(Tried("torch", "cuda:0", f"feature-{n}", "works", "", 0.0, 1e-3) for n in range(14)),
    Tried("torch", "cuda:0", "qr", "unsupported", LONG),
    Tried("torch", "cuda:0", "svd", "fallback", "aten::linalg_svd", 1e-6, 1e-3),
    Tried("torch", "cuda:0", "fp16", "wrong", "", 0.5, 1e-2),
    Tried("torch", "cuda:0", "solve", "crashed", "the worker was ended by SIGABRT"),
)
WHOLE = Checkup(
    Machine("AMD EPYC, 8 cores, 31 GB", cpu="AMD EPYC"),
    Facts("Linux", "6.8.0", "x86_64", container="docker", virtualised=True, gpus=(Gpu("nvidia", "NVIDIA T4"),),
          nodes=("nvidia0",), driver="550.54.14", driver_cuda="12.4", packages={"torch": "2.13.0", "jax": "0.6.0"},
          env={"OMP_NUM_THREADS": "8"}, cores=8, quota=4.0, load=3.2, memory=31 << 30, available=2 << 30,
          memory_waits=0.07, swap_used=5 << 30, power="battery", battery=0.41, low_power=True, governor="powersave",
          scaling="acpi-cpufreq", throttles=2.0),
    (Installed("torch", "", {"torch": "2.13.0+cu126", "cuda": "12.6"}, 8, (Device("cpu", "torch", "CPU"), T4),
               {"cuda": "12.6", "mps": False, "reason": ""}),),
    TRIED,
    2.4,
    Trial("torch", "mlp", 8, 0.0031, (Setting("OMP_WAIT_POLICY=PASSIVE", 0.0014, Interval(2.2, 1.9, 2.6)),
                                      Setting("OMP_NUM_THREADS=2", 0.003, Interval(1.03, 0.95, 1.1), "--threads 2"))),
    Trial("torch", "bert-tiny", 8, 0.07,
          (Setting("MALLOC_MMAP_MAX_=0", 0.06, Interval(1.2, 1.1, 1.3), "--allocator steady"),)),
    Noise(60.0, "very noisy", 0.21, 0.12, 0.5, 0.15, 0.02, 0.004, 0.19),
    (SensorState("powercap", "package-0", "package", "counter", "cpu", 1e-3, 4.21, 17.3),
     SensorState("powercap", "psys", "system", reason="only root may read it", cure=linux.RAPL_CURE,
                price=linux.RAPL_PRICE)),
    StoreState("records.sqlite", "store records.sqlite: file is not a database"),
)  # fmt: skip


def test_every_line_fits_into_80_columns() -> None:
    text = report(WHOLE)
    assert max(len(line) for line in text.splitlines()) <= WIDTH == 80
    assert len(text.splitlines()) < 115


def test_facts_come_first_and_findings_last_each_with_its_code_and_cure() -> None:
    text = report(WHOLE)
    lines = text.splitlines()
    assert lines[0] == "AMD EPYC, 8 cores, 31 GB"
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles[1:-1] == ["machine", "frameworks", "torch on cuda:0", "threads", "allocators", "noise", "energy"]
    assert titles[-1].endswith(" findings")
    told = as_json(WHOLE)["findings"]
    assert titles[-1] == f"{len(told)} findings"
    for one in told:
        assert f"[{one['code']}]" in text
    assert text.count("     Cure: ") == len(told)


def test_what_works_is_one_row_and_what_does_not_says_why_in_a_sentence() -> None:
    text = report(WHOLE)
    assert "works" in text
    assert "not supported    qr: NotImplementedError: The operator" in text
    assert "please comment" not in text
    assert "wrong numbers    fp16: off by 0.5, 0.01 allowed" in text
    assert "left to the CPU  svd: aten::linalg_svd" in text
    assert "crashed          solve: the worker was ended by SIGABRT" in text


def test_what_a_device_tells_of_itself_is_shown_with_its_unit() -> None:
    assert "NVIDIA T4, 15.0 GiB, driver 550.54.14, at most 70.0 W, 40 multiprocessors" in " ".join(
        report(WHOLE).split()
    )


def test_noise_and_threads_are_told_in_words_with_figures() -> None:
    text = " ".join(report(WHOLE).split())
    assert "very noisy for 60.0 s one core did the same work: it varied by 21 %" in text
    assert "smallest detectable difference: 0.40 % interleaved, 19 % between separate runs" in text
    assert "OMP_WAIT_POLICY=PASSIVE 2.2x (1.9-2.6) as fast: clearly faster, the one to set" in text
    assert "--threads 2 1.03x (0.95-1.10) as fast: not clear" in text
    assert "--allocator steady 1.20x (1.10-1.30) as fast: clearly faster" in text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(1.06, 3.0, "clearly faster"), (0.5, 0.9, "clearly slower"), (0.97, 1.03, "about the same"),
     (0.2, 90.0, "not clear"), (1.0, 1.06, "not clear")],
)  # fmt: skip
def test_a_setting_of_threads_is_judged_by_its_interval(low: float, high: float, words: str) -> None:
    tried = Trial(
        "torch", "mlp", 2, 0.002, (Setting("OMP_NUM_THREADS=1", 0.001, Interval((low * high) ** 0.5, low, high)),)
    )
    assert f"as fast: {words}" in report(replace(WHOLE, threads=tried))


def test_what_is_not_known_is_not_told() -> None:
    text = report(Checkup())
    assert "None" not in text
    assert text.endswith("no findings")


def test_a_framework_that_does_not_start_says_why() -> None:
    broken = replace(WHOLE, frameworks=(Installed("torch", error="OSError: libcudart.so.12"),), tried=())
    assert "torch  OSError: libcudart.so.12" in report(broken)


def test_the_document_has_all_of_it_and_is_json() -> None:
    content = json.loads(json.dumps(as_json(WHOLE), allow_nan=False))
    assert {"facts", "devices", "features", "findings", "noise", "threads", "frameworks", "machine", "store"} <= set(
        content
    )
    assert content["facts"]["free_cores"] == 2.4
    assert content["features"][0] == {"framework": "torch", "device": "cuda:0", "feature": "feature-0",
                                      "outcome": "works", "reason": "", "error": 0.0, "tolerance": 1e-3}  # fmt: skip
    assert set(content["findings"][0]) == {"code", "message", "cure"}
    assert content["threads"]["settings"][1] == {
        "name": "OMP_NUM_THREADS=2", "step": 0.003, "option": "--threads 2", "ratio": 1.03, "low": 0.95, "high": 1.1
    }  # fmt: skip
    assert as_json(Checkup())["noise"] is None


def test_a_reason_is_cut_to_its_first_sentence() -> None:
    assert short(LONG).endswith("for the MPS device")
    assert short("x" * 500) == "x" * 199 + "…"


def test_sensors_that_are_closed_are_named_with_their_cure_and_its_price() -> None:
    text = " ".join(report(WHOLE).split())
    assert "package-0 powercap: package, counter, updated every 1.00 ms, 4.21 W at rest, 17.3 W at work" in text
    assert "energy could be measured by psys (system), but only root may read it" in text
    assert "70-rapl.rules" in text
    assert "CVE-2020-8694" in text


def test_a_machine_without_sensors_says_unknown_in_one_line() -> None:
    text = report(replace(WHOLE, sensors=()))
    (line,) = [line for line in text.splitlines() if "nothing is estimated" in line]
    assert "unknown" in line
