"""Whether the threads of a framework hold each other up: the same training step under several settings, in turns.

OpenMP's threads spin while they wait. Where cores are few or busy, those that spin keep the others
from working. Each setting gets a process of its own, the processes take turns of a fraction of a
second, and this is done with several sets of fresh processes: every process has a speed of its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from mldyno.analysis.symptoms import Setting, Threads
from mldyno.client.worker_process import Ended, WorkerProcess
from mldyno.messages import MeasureTurn, OpenCase
from mldyno.records import Case
from mldyno.stats.intervals import half_width, mean, median

SETS = 4  # of fresh processes
TURNS = 4  # of each process
TURN_S, WARM_UP_S = 0.3, 0.5
ANSWER_TIMEOUT_S = 60.0  # for opening the step, or a turn of it
BATCH = 64
KEY = 1  # of the case in its worker
Check = Callable[[], None]
Env = Mapping[str, str]


def worth_trying(threads: int | None, free: float | None, env: Env) -> list[Env]:
    """Settings of the environment that could be better than what is; none where there is one thread."""
    if not threads or threads < 2:
        return []
    settings: list[Env] = []
    if env.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        settings.append({"OMP_WAIT_POLICY": "PASSIVE"})
    if free is not None and max(1, round(free)) < threads:
        settings.append({"OMP_NUM_THREADS": str(max(1, round(free)))})
    return settings


def measure(
    check: Check,
    framework: str,
    threads: int | None,
    settings: Sequence[Env],
    begin: Callable[[int], None] = lambda number: None,
) -> Threads | None:
    """The step as it is and under each setting, and how many times as fast that is; None where it can't be run.

    `begin` hears the number of each set of processes, from 0 on.
    """
    envs: list[Env] = [{}, *settings]
    times: list[list[float]] = [[] for _ in envs]
    chance = random.Random(len(envs))
    try:
        for number in range(SETS):
            begin(number)
            for steps, step in zip(times, _set_of_processes(check, framework, envs, chance), strict=True):
                steps.append(step)
    except Ended:
        return None
    tried = [_compared(env, steps, times[0]) for env, steps in zip(envs[1:], times[1:], strict=True)]
    return Threads(framework, threads, median(times[0]), tuple(tried))


def _set_of_processes(check: Check, framework: str, envs: Sequence[Env], chance: random.Random) -> list[float]:
    """The median time of a step in s under each setting, from processes that live at the same time and take turns."""
    times: list[list[float]] = [[] for _ in envs]
    with ExitStack() as living:
        workers = [living.enter_context(_opened(check, framework, env)) for env in envs]
        order = list(range(len(envs)))
        for _ in range(TURNS):
            chance.shuffle(order)
            for place in order:
                turn = workers[place].ask(MeasureTurn(KEY, TURN_S), ANSWER_TIMEOUT_S)
                times[place] += [
                    value for series in turn.series if series.metric == "step_time" for value in series.values
                ]
    if not all(times):
        raise Ended("failed", "a turn without a step")
    return [median(values) for values in times]


@contextmanager
def _opened(check: Check, framework: str, env: Env) -> Iterator[WorkerProcess]:
    """A worker with the step built and warm."""
    with WorkerProcess(check, env) as worker:
        worker.ask(OpenCase(KEY, Case("mlp", framework=framework, batch=BATCH), WARM_UP_S), ANSWER_TIMEOUT_S)
        yield worker


def _compared(env: Env, times: Sequence[float], base: Sequence[float]) -> Setting:
    """How many times as fast as the base, with its interval over the sets."""
    name = " ".join(f"{variable}={value}" for variable, value in env.items())
    logs = [math.log(slow / fast) for fast, slow in zip(times, base, strict=True)]
    centre, width = mean(logs), half_width(logs)
    return Setting(name, median(times), math.exp(centre), math.exp(centre - width), math.exp(centre + width))
