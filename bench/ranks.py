"""Figures 14 to 16: ranks over a bare script for torchrun, what they bring here, what they wait for over a cable."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.networks import two_nodes
from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.analysis.breakdown import split
from mldyno.frameworks.torch.ranks import environment
from mldyno.records import Case, Record
from mldyno.stats.intervals import half_width, mean, median
from mldyno.store import Query, Store
from mldyno.units import Interval

LEAST, MOST = 0.98, 1.02
CASES = (Case("mnist-mlp", batch=64, ranks=2), Case("resnet18-cifar", batch=16, ranks=2))
PAIRS, BUDGET_S = 8, 6.0
SCALED: dict[str, dict[str, Any]] = {"mnist-mlp": {}, "mnist-linear": {}, "resnet18-cifar": {"batch": 16}}
RANKS = (1, 2, 4)
SCRIPT = Path(__file__).resolve().parent / "bare_ranks.py"


def measure_loops(work: Work) -> Chapter:
    """A step of two ranks as mldyno reports it, over that of a script as PyTorch's tutorial has it."""
    chapter = Chapter("14. A step of two ranks, over a bare torchrun script's")
    chapter.notes.append(
        "2 ranks with a thread each, gloo, the CPU. `mldyno run --ranks 2` and a script of the same model, each started"
        f" {PAIRS} times in turns, in random order; {BUDGET_S:.0f} s each. The value is the mean log-ratio of the"
        " pairs, with its 95 % interval over them."
    )
    for case in CASES[: 1 if work.quick else None]:
        logs = [_pair(case, work, number) for number in range(2 if work.quick else PAIRS)]
        ratio, width = math.exp(mean(logs)), half_width(logs)
        say(f"  {case.workload}: {ratio:.4f} ± {width:.4f}")
        name, how = f"`{case.workload}` training, 2 ranks", f"batch {case.batch} a rank; {len(logs)} pairs of jobs"
        chapter.figures.append(Figure(name, ratio, "", MOST, how, LEAST, width * ratio))
    return chapter


def _pair(case: Case, work: Work, number: int) -> float:
    sides = [lambda: _ours(case, work, number), lambda: _bare(case, work)]
    order = [0, 1]
    random.Random(number).shuffle(order)
    times = {place: sides[place]() for place in order}
    return math.log(times[0] / times[1])


def _ours(case: Case, work: Work, number: int) -> float:
    store = Store(work.folder / f"ranks-{case.workload}-{number}.sqlite")
    results = api.run(case.workload, mode="train", placement="device", ranks=2, batch=case.batch, threads=1, repeats=1,
                      budget=1.0 if work.quick else BUDGET_S, store=store)  # fmt: skip
    (record,) = results.records
    if record.status != "ok":
        raise RuntimeError(record.reason)
    values = sorted(record.values("step_time"))
    return values[len(values) // 2]


def _bare(case: Case, work: Work) -> float:
    content = {name: value for name, value in asdict(case).items() if name in ("workload", "batch")}
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
                "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]  # fmt: skip
    command = [sys.executable, *torchrun, str(SCRIPT), json.dumps(content), "1" if work.quick else str(BUDGET_S)]
    settings = environment(Case("", ranks=2, threads=1), 2)
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure_scaling(work: Work) -> Chapter:
    """What 2 and 4 ranks bring on this machine."""
    chapter = Chapter("15. What ranks bring on this machine")
    chapter.notes.append(
        "`mldyno run WORKLOAD --mode train --ranks 1,2,4`: items a second over those of one process with the threads of"
        " a rank, from rounds of one job, with half of its 95 % interval. There is no target: this machine has 2 cores."
    )
    store = Store(work.folder / "scaling.sqlite")
    for workload, sizes in list(SCALED.items())[: 1 if work.quick else None]:
        for ranks in RANKS[1:2] if work.quick else RANKS[1:]:
            outcome = api.run(workload, mode="train", placement="device", ranks=ranks, store=store, repeats=1,
                              budget=2.0 if work.quick else 20.0, **sizes).outcomes[0]  # fmt: skip
            parts = split(outcome)
            if parts is None or parts.over_same_threads is None:
                chapter.notes.append(f"`{workload}`, {ranks} ranks: {outcome.status}: {outcome.reason}.")
                continue
            over_all = parts.over_all_cores
            waiting = f"{100 * parts.waiting.value:.0f} % of a step waits for gradients"
            cores = "" if over_all is None else f"; {over_all.value:.2f} of one process with all cores"
            name = f"`{workload}`, {ranks} ranks"
            chapter.figures.append(_figure(name, parts.over_same_threads, f"{waiting}{cores}"))
    return chapter


def _figure(name: str, factor: Interval, how: str) -> Figure:
    width = None if factor.low is None or factor.high is None else (factor.high - factor.low) / 2
    say(f"  {name}: {factor.value:.3f}")
    return Figure(name, factor.value, "×", None, how, None, width)


# -- between two nodes --------------------------------------------------------------------------------

RATES = (1e9, 5e8, 2e8)  # bit/s
OVER_CABLE = Case("resnet18-cifar", batch=2, ranks=2, nodes=2)
PORT = 29421
LONGEST_S = 600.0


def measure_bandwidth(work: Work) -> Chapter:
    """What a step waits for gradients, over what a cable of a known rate must take for them."""
    chapter = Chapter("16. Waiting for gradients between two nodes, over what their bytes must take")
    chapter.notes.append(
        f"`mldyno run {OVER_CABLE.workload} --ranks 2 --nodes 2` and `mldyno join`, in two network namespaces on this"
        " machine, through a cable that `tc` (tbf) holds to a rate. Two ranks send all gradients once each way. The"
        " value is the median time that a step takes longer than one without an exchange, over bits of gradients by"
        " rate."
        " What computing hides of the exchange makes it smaller, what TCP and gloo add makes it larger."
    )
    for rate in RATES[:1] if work.quick else RATES:
        record = _between_nodes(rate, work)
        if record.status != "ok":
            chapter.notes.append(f"{rate / 1e9:g} Gbit/s: {record.status}: {record.reason}.")
            continue
        bits = 32 * int(record.fact("params"))
        step, compute, exchange = (median(record.values(f"{name}_time", "beside"))
                                   for name in ("step", "compute", "exchange"))  # fmt: skip
        waited, computed, by_itself = (round(1e3 * each) for each in (step - compute, bits / rate, exchange))
        how = f"{waited} ms, computed {computed} ms; the exchange by itself {by_itself} ms"
        chapter.figures.append(Figure(f"{rate / 1e9:g} Gbit/s", (step - compute) / (bits / rate), "", None, how))
        say(f"  {rate / 1e9:g} Gbit/s: {how}")
    return chapter


def _between_nodes(rate: float, work: Work) -> Record:
    path = work.folder / f"nodes-{rate:.0f}.sqlite"
    with two_nodes(rate) as (one, other):
        process = one.start(
            "run", OVER_CABLE.workload, "--mode", "train", "--placement", "device", "--ranks", "2", "--nodes", "2",
            "--batch", str(OVER_CABLE.batch), "--threads", "1", "--repeats", "1", "--budget",
            "2s" if work.quick else "30s", "--store", str(path), "--rendezvous", f"{one.address}:{PORT}",
        )  # fmt: skip
        assert process.stderr is not None
        words = process.stderr.readline().partition("mldyno ")[2].split()
        joined = other.start(*words, "--wait", "5s")
        process.communicate(timeout=LONGEST_S)
        joined.communicate(timeout=LONGEST_S)
    (record,) = Store(path).stream(Query(heads=False))
    return record
