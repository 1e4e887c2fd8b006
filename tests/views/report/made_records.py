"""Records that are made, not measured, so that every section of a report has something to show."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mldyno.records import SCHEMA, Case, Checks, Device, Machine, Record, Run, Series, Software, Warning_, seal

DEVICES = (
    Device("cpu", "torch", "Example CPU"),
    Device("cuda:0", "torch", "Example GPU", 8 << 30, {"driver": "1.2", "clock": 1.5e9}),
)
BENCH = Machine("bench", "Linux", "6.1", "x86_64", "Example CPU", 8, 32 << 30, DEVICES, "mains", False, False)
DRIFT = Warning_("drifting", "the step got 8.0 % slower while it was measured", "let it cool down")
MODES = Warning_("two-modes", "two speeds: 1.00 ms, and 1.40 ms in 30 % of the blocks", "look for what alternates")
NOISY = Warning_("target-not-reached", "not known to the ±2.0 % asked for", "give it more time with --budget")


def record(
    case: Case,
    step: float | None,
    machine: Machine = BENCH,
    round_: int = 0,
    samples: int = 60,
    warnings: tuple[Warning_, ...] = (),
    reason: str = "fake: out of memory",
    error: float | None = None,
    **facts: Any,
) -> Record:
    """A record of a step time in s, with noise; out of memory where there is none."""
    series: tuple[Series, ...] = ()
    if step is not None:
        dice = random.Random(f"{case.id} {round_}")
        level = step * (1 + 0.004 * round_)
        times = [float(f"{level * (1 + dice.gauss(0, 0.01)):.6g}") for _ in range(samples)]
        if DRIFT in warnings:
            times = [time * (1 + 0.08 * place / samples) for place, time in enumerate(times)]
        if MODES in warnings:
            times = [time * (1.4 if dice.random() < 0.3 else 1.0) for time in times]
        series = (
            Series("step_time", "s", (10 * step,), stage="first"),
            Series("step_time", "s", tuple(level * (1 + 2 / n) for n in range(1, 8)), stage="warmup", block=4),
            Series("step_time", "s", tuple(times), block=4, turn=0),
            Series("peak_memory", "B", (3e8,), stage="process"),
        )
        facts = {"steps": 4 * samples, "items_per_step": case.batch or 1, "first_step": 10 * step,
                 "warmup_steady": True, **facts}  # fmt: skip
    return seal(
        Record(
            SCHEMA, "", "2026-01-01T00:00:00Z", "measured",
            Run("r1", repeat=round_), case, "oom" if step is None else "ok",
            reason if step is None else "", machine, Software("0.1.0", "3.11", "torch", {"torch": "2.13"}, 8),
            series, facts, Checks(error=error), warnings,
        )
    )  # fmt: skip


def met(case: Case, step: float, group: int, machine: Machine = BENCH) -> Record:
    """The same case in a paired comparison with others of its group, 24 rounds in one process."""
    dice = random.Random(f"{case.id} met")
    times = tuple(step * (1 + dice.gauss(0, 0.004)) for _ in range(24))
    return seal(
        Record(
            SCHEMA, "", "2026-01-01T00:00:00Z", "measured",
            Run("r1", group=group, pairing="interleaved"), case, "ok", "",
            machine, series=(Series("step_time", "s", times, stage="paired"),),
        )
    )  # fmt: skip


def of_every_section(machine: Machine = BENCH) -> list[Record]:
    """Two devices, modes, batches and lengths, precisions, placements, peaks, published work, drift and two speeds."""
    return [*_bert(machine), *_mlp(machine), *_published_work(machine)]


def _bert(machine: Machine) -> Iterator[Record]:
    for mode, factor in (("train", 3.0), ("infer", 1.0)):
        for device, item, issue in (("cpu", 2e-4, 1e-5), ("cuda:0", 1e-5, 1.5e-3)):
            for batch in (1, 4, 16, 64):
                for seq in (32, 128, 512):
                    case = Case("bert-base", device=device, mode=mode, batch=batch, seq=seq)  # type: ignore[arg-type]
                    step = issue + factor * item * batch * seq * (1 + seq / 1000) / 32
                    full = device == "cuda:0" and mode == "train" and batch * seq > 64 * 128
                    noisy = (NOISY,) if batch == 4 and seq == 128 else ()
                    for round_ in range(2):
                        yield record(case, None if full else step, machine, round_, warnings=noisy)


def _mlp(machine: Machine) -> Iterator[Record]:
    group = 0
    for device, base in (("cpu", 4e-3), ("cuda:0", 4e-4)):
        for precision, gain, error in (("fp32", 1.0, None), ("bf16", 1.6, 4e-3), ("fp16", 1.5, 6e-4)):
            group += 1
            for placement, extra in (("device", 0.0), ("host", 2e-4), ("roundtrip", 3e-4)):
                case = Case("mlp", device=device, mode="infer", precision=precision, batch=128, placement=placement)  # type: ignore[arg-type]
                step = base / gain + (extra if device != "cpu" else 0.0)
                odd = {"fp16": (DRIFT,), "bf16": (MODES,)}.get(precision, ()) if placement == "device" else ()
                facts: dict[str, Any] = {
                    "flops_per_step": 4e9 * base * 50,
                    "peak_flops": 4e11,
                    "bytes_per_step": 2e7,
                    "peak_bandwidth": 2e10,
                }
                for round_ in range(3):
                    yield record(case, step, machine, round_, warnings=odd, error=error, **facts)
                yield met(case, step, group, machine)


def _published_work(machine: Machine) -> Iterator[Record]:
    for batch, step in ((16, 1.2), (32, 2.1)):
        case = Case("bert-base", mode="train", batch=batch, seq=128, placement="host")
        yield record(case, step, machine)


def hostile(text: str) -> list[Record]:
    """Those of every section, with a text in every name and message; published work keeps its name."""
    machine = replace(BENCH, name=f"bench {text}", cpu=text, power=text, system=text, devices=tuple(
        replace(device, name=f"{device.name}{text}", title=text) for device in DEVICES))  # fmt: skip
    software = Software(text, text, text, {text: text}, 8, {text: text})
    records = []
    for number, old in enumerate(of_every_section(machine)):
        published_too = old.case.placement == "host" and old.case.seq == 128
        workload = old.case.workload if published_too else f"{old.case.workload}{text}"
        warning = Warning_(f"drifting{text}", f"{text} message", f"{text} hint") if number % 2 else None
        records.append(
            seal(
                replace(
                    old,
                    case=replace(old.case, workload=workload, device=f"{old.case.device}{text}"),
                    reason=old.reason and f"{text} {old.reason}",
                    software=software,
                    warnings=(*old.warnings, *filter(None, [warning])),
                )
            )
        )
    return records


def many(count: int) -> Iterator[Record]:
    """So many records, each of a case of its own."""
    for number in range(count):
        axes: dict[str, Any] = {
            "device": ("cpu", "cuda:0")[number // 40 % 2], "mode": ("train", "infer")[number // 80 % 2],
            "precision": ("fp32", "bf16")[number // 160 % 2], "batch": 1 + number // 320,
            "seq": (None, 128)[number % 2],
        }  # fmt: skip
        case = Case(f"workload-{number % 40}", **axes)
        yield record(case, (1 + number % 97) * 1e-4, samples=20)
