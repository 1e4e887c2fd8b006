"""The speed-up of settings of the environment: the same training step with each, in live processes that take turns.

OpenMP's threads spin while they wait. On few or busy cores, spinning threads keep others from working, and threads
that move between cores start with cold caches. An allocator that returns memory makes each step touch its pages again.
Each setting runs in its own process; the processes take turns of a fraction of a second. This is repeated with sets of
fresh processes, since speed varies between processes.
"""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import get_args

from mldyno.axes import Allocator
from mldyno.doctor.symptoms import Setting, Trial
from mldyno.frameworks import Unsupported
from mldyno.records import Case, Run
from mldyno.runner.pairing import live_processes
from mldyno.runner.remote_case import RemoteCase
from mldyno.stats.intervals import half_width, mean, median
from mldyno.timing import clock
from mldyno.timing.stopping import Stopping
from mldyno.units import Interval
from mldyno.worker.client import Ended, WorkerProcess, settings_for

BATCH = 64  # of the step with which settings of threads are compared
SETS, FEW_SETS = 4, 2  # of fresh processes: for an interval, and for a quick look
TURNS = 4  # of each process
TURN_S, WARM_UP_S = 0.3, 0.5
TIMEOUT_S = 180.0  # of a process, to open the step and take all its turns
TAKEN_CORES = 0.5  # with more of them taken, spinning threads get in each other's way
LEAST_QUICK_GAIN = 1.1  # speed-up from which on `quick` changes a setting
Check = Callable[[], None]
Env = Mapping[str, str]


def of_threads(threads: int | None, free: float | None, env: Env) -> dict[str, Env]:
    """Return settings of threads that could help, mildest first; none for one thread."""
    if not threads or threads < 2:
        return {}
    settings: dict[str, Env] = {}
    if env.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        settings["sleeping"] = {"OMP_WAIT_POLICY": "PASSIVE"}
    if sys.platform.startswith("linux") and not env.get("OMP_PROC_BIND"):
        settings["bound"] = {"OMP_PROC_BIND": "true"}
    if free is not None and (cores := max(1, round(free))) < threads:
        settings[f"--threads {cores}"] = {"OMP_NUM_THREADS": str(cores)}
    return settings


def of_allocators() -> dict[str, Env]:
    """Return the settings for each allocator that is available here, by its option."""
    available: dict[str, Env] = {}
    for name in get_args(Allocator):
        with suppress(Unsupported):
            available[f"--allocator {name}"] = settings_for(name)
    return {option: settings for option, settings in available.items() if settings}


def passive_wait_helps(framework: str, threads: int | None, cores: int | None) -> Setting | None:
    """Return the setting that lets waiting threads sleep, if cores are taken and a step is clearly faster with it."""
    tried = {word: each for word, each in of_threads(threads, None, os.environ).items() if word == "sleeping"}
    if not tried or not cores or (threads or 0) - clock.free_cores(cores) < TAKEN_CORES:
        return None
    trial = measure(lambda: None, Case("mlp", framework=framework, batch=BATCH), threads, tried, sets=FEW_SETS)
    return next((each for each in trial.settings if each.gain.value >= LEAST_QUICK_GAIN), None) if trial else None


def measure(
    check: Check, case: Case, threads: int | None, settings: Mapping[str, Env],
    begin: Callable[[int], None] = lambda number: None, sets: int = SETS,
) -> Trial | None:  # fmt: skip
    """Time the step without and with each setting, by its word; return None if it can't run.

    `threads` is the framework's number of threads, for the report; `begin` gets the number of each set of processes.
    """
    envs: list[Env] = [{}, *settings.values()]
    times: list[list[float]] = [[] for _ in envs]
    chance = random.Random(len(envs))
    try:
        for number in range(sets):
            begin(number)
            for steps, step in zip(times, _set_of_processes(check, case, envs, chance), strict=True):
                steps.append(step)
    except Ended:
        return None
    tried = []
    for (word, env), steps in zip(settings.items(), times[1:], strict=True):
        logs = [math.log(slow / fast) for fast, slow in zip(steps, times[0], strict=True)]
        gain = Interval.of_logs(mean(logs), half_width(logs))  # over the sets
        name = " ".join(f"{variable}={value}" for variable, value in env.items())
        tried.append(Setting(name, median(steps), gain, word if word.startswith("--") else ""))
    return Trial(case.framework, case.workload, threads, median(times[0]), tuple(tried))


def _set_of_processes(check: Check, case: Case, envs: Sequence[Env], chance: random.Random) -> list[float]:
    """Return the median time of a step in s with each setting, from live processes that take turns."""
    run, stopping = Run("", pairing="live-processes"), Stopping(budget=math.inf, warm_up=WARM_UP_S)
    cases = [
        RemoteCase(
            case, run, stopping, worker=WorkerProcess(check, env), timeout=TIMEOUT_S, on_progress=lambda *progress: None
        )
        for env in envs
    ]
    try:
        live_processes(cases, chance, rounds=TURNS, turn_s=TURN_S)
    finally:
        for remote in cases:
            remote.worker.kill()
    return [median(remote.values) for remote in cases]
