"""What settings of the environment bring: the same training step with each of them, in processes that take turns.

OpenMP's threads spin while they wait. Where cores are few or busy, those that spin keep the others from working, and
threads that move between cores start cold. An allocator that gives memory back has each step touch its pages anew.
Each setting gets a process of its own, the processes take turns of a fraction of a second, and this is done with
several sets of fresh processes: every process has a speed of its own.
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
from mldyno.records import Case, Run
from mldyno.runner.pairing import live_processes
from mldyno.runner.remote_case import RemoteCase
from mldyno.stats.intervals import half_width, mean, median
from mldyno.timing import clock
from mldyno.timing.stopping import Stopping
from mldyno.worker.client import Ended, NotHere, WorkerProcess, settings_for

BATCH = 64  # of the step that settings of threads are tried on
SETS, FEW_SETS = 4, 2  # of fresh processes: for an answer with an interval, and for a quick look
TURNS = 4  # of each process
TURN_S, WARM_UP_S = 0.3, 0.5
TIMEOUT_S = 180.0  # of a process, for opening the step and all its turns
TAKEN_CORES = 0.5  # from which on threads that spin get in each other's way
CLEAR_GAIN = 1.1  # times as fast: with less, nothing is changed for a quick look
Check = Callable[[], None]
Env = Mapping[str, str]


def of_threads(threads: int | None, free: float | None, env: Env) -> dict[str, Env]:
    """Settings of threads that could be better than what is, mildest first; none where there is one thread."""
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
    """The allocators that a process can have here, beside the system's own: the settings, by the option for them."""
    found: dict[str, Env] = {}
    for name in get_args(Allocator):
        with suppress(NotHere):
            found[f"--allocator {name}"] = settings_for(name)
    return {option: settings for option, settings in found.items() if settings}


def passive_wait_helps(framework: str, threads: int | None, cores: int | None) -> Setting | None:
    """The setting with which threads that wait sleep, where cores are taken and a step is clearly faster with it."""
    tried = {word: each for word, each in of_threads(threads, None, os.environ).items() if word == "sleeping"}
    if not tried or not cores or (threads or 0) - clock.free_cores(cores) < TAKEN_CORES:
        return None
    trial = measure(lambda: None, Case("mlp", framework=framework, batch=BATCH), threads, tried, sets=FEW_SETS)
    return next((each for each in trial.settings if each.ratio >= CLEAR_GAIN), None) if trial else None


def measure(
    check: Check,
    case: Case,
    threads: int | None,
    settings: Mapping[str, Env],
    begin: Callable[[int], None] = lambda number: None,
    sets: int = SETS,
) -> Trial | None:
    """The step as it is and with each setting, by its word, and how many times as fast; None where it can't be run.

    `threads` is how many the framework has, to be said; `begin` hears the number of each set of processes, from 0 on.
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
    tried = [
        _compared(word, env, steps, times[0]) for (word, env), steps in zip(settings.items(), times[1:], strict=True)
    ]
    return Trial(case.framework, case.workload, threads, median(times[0]), tuple(tried))


def _set_of_processes(check: Check, case: Case, envs: Sequence[Env], chance: random.Random) -> list[float]:
    """Return the median time of a step in s under each setting, from live processes that take turns."""
    cases = [_remote(check, case, env) for env in envs]
    try:
        live_processes(cases, chance, rounds=TURNS, turn_s=TURN_S)
    finally:
        for remote in cases:
            remote.worker.kill()
    return [median(remote.values) for remote in cases]


def _remote(check: Check, case: Case, env: Env) -> RemoteCase:
    """Return the step for a worker with this environment; it is not started yet."""
    run, stopping = Run("", pairing="live-processes"), Stopping(budget=math.inf, warm_up=WARM_UP_S)
    worker = WorkerProcess(check, env)
    return RemoteCase(case, run, stopping, worker=worker, timeout=TIMEOUT_S, on_progress=lambda *progress: None)


def _compared(word: str, env: Env, times: Sequence[float], base: Sequence[float]) -> Setting:
    """How many times as fast as the base, with its interval over the sets."""
    name = " ".join(f"{variable}={value}" for variable, value in env.items())
    logs = [math.log(slow / fast) for fast, slow in zip(times, base, strict=True)]
    centre, width = mean(logs), half_width(logs)
    option = word if word.startswith("--") else ""
    return Setting(name, median(times), math.exp(centre), math.exp(centre - width), math.exp(centre + width), option)
