"""Submissions that are made, not measured, and that a collection takes: what each check is held against."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OWN_KEY
from tests.views.report import made_records

from mldyno import keys, plugins
from mldyno.records import Case, Checks, Machine, Record, Series, seal
from mldyno.runner.recording import over_reference_kernel
from mldyno.stats.intervals import median
from mldyno.store import transfer

MLP = Case("mlp", mode="infer", batch=128)
HERE = replace(made_records.BENCH, name="test bench", key=OWN_KEY)
THEIR_SECRET, THIRD_SECRET = "a1" * 16, "b2" * 16


def key_of(seed: str) -> str:
    return keys.fingerprint(keys.of_seed(seed).public)


@contextmanager
def machine_of(seed: str) -> Iterator[None]:
    """Within this, the secret is another machine's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLDYNO_MACHINE_KEY", seed)
        yield


def good(case: Case = MLP, step: float = 0.01, machine: Machine = HERE, round_: int = 0, **facts: Any) -> Record:
    """A record of a step time in s that nothing speaks against, with these facts beside the usual ones."""
    record = made_records.record(case, step, machine, round_)
    usual: dict[str, Any] = {"wall_time": 2000 * step, "block_steps": 4, "device_seen": case.device}
    checks = Checks()
    if case.workload in plugins.built_in("workloads"):
        workload = plugins.workload(case.workload)
        usual |= {"params": workload.params, "items_per_step": workload.items(case), "item": workload.item}
        usual |= {"flops_per_step": workload.flops(case), "peak_flops": 2 * workload.flops(case) / step or None}
        if case.mode == "train":
            checks, usual = Checks(learned=True), usual | {"loss_first": 0.7, "loss_last": 0.6}
        if case.device != "cpu" or case.precision != "fp32" or case.compile:
            checks = replace(checks, agrees=True, error=1e-5)
    series = record.series
    if case.device == "cpu":
        kernel = Series("reference_time", "s", tuple(1e-4 * (1 + n / 1000) for n in range(60)), turn=0)
        series = (*series, kernel)
        usual |= {"step_per_reference": median(over_reference_kernel(series))}
    return seal(replace(record, series=series, facts={**record.facts, **usual, **facts}, checks=checks))


def several(machine: Machine = HERE) -> list[Record]:
    """A submission of several devices, modes and precisions."""
    cuda = replace(MLP, device="cuda:0")
    return [
        good(MLP, 0.01, machine),
        good(replace(MLP, mode="train"), 0.03, machine),
        good(replace(MLP, precision="bf16"), 0.008, machine),
        good(cuda, 0.001, machine),
        good(Case("resnet18", mode="train", batch=32, device="cuda:0"), 0.05, machine),
        good(Case("copy", mode="infer", batch=64), 0.02, machine),
        made_records.met(MLP, 0.01, 1, machine),
    ]


def lines_of(records: Iterable[Record], *more: str) -> str:
    """The text of a file that this machine's key signs, with more lines behind."""
    texts = [record.text for record in records]
    ids = [json.loads(text)["id"] for text in (*texts, *more) if '"id":' in text]
    return "".join(f"{line}\n" for line in (transfer.signature(ids), *texts, *more))


def written(path: Path, records: Iterable[Record], seed: str = "") -> str:
    """The path of a file of records, signed by this machine's key or that of a seed."""
    records = list(records)
    if seed:
        with machine_of(seed):
            path.write_text(lines_of(records))
    else:
        path.write_text(lines_of(records))
    return str(path)
