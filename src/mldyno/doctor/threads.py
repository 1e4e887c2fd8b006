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
from dataclasses import asdict

from mldyno.analysis.symptoms import Setting, Threads
from mldyno.records import Case
from mldyno.runner.worker_process import Ended, WorkerProcess
from mldyno.stats.intervals import half_width, mean, median

SETS = 4  # of fresh processes
TURNS = 4  # of each process
TURN, WARM_UP = 0.3, 0.5  # s
PATIENCE = 60.0  # s for one process in all
BATCH = 64
Check = Callable[[], None]
Env = Mapping[str, str]


def worth_trying(threads: int | None, free: float | None, env: Env) -> list[Env]:
    """Settings of the environment that could be better than what is; none where there is one thread."""
    if not threads or threads < 2:
        return []
    found: list[Env] = []
    if env.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        found.append({"OMP_WAIT_POLICY": "PASSIVE"})
    if free is not None and max(1, round(free)) < threads:
        found.append({"OMP_NUM_THREADS": str(max(1, round(free)))})
    return found


def measure(
    python: str,
    check: Check,
    framework: str,
    threads: int | None,
    settings: Sequence[Env],
    begin: Callable[[int], None] = lambda number: None,
) -> Threads | None:
    """The step as it is and under each setting, and how many times as fast that is; None where it can't be run.

    `begin` hears the number of each set of processes, from 0 on.
    """
    several: list[Env] = [{}, *settings]
    times: list[list[float]] = [[] for _ in several]
    chance = random.Random(len(several))
    try:
        for number in range(SETS):
            begin(number)
            for seen, step in zip(times, _one_set(python, check, framework, several, chance), strict=True):
                seen.append(step)
    except Ended:
        return None
    tried = [_compared(env, seen, times[0]) for env, seen in zip(several[1:], times[1:], strict=True)]
    return Threads(framework, threads, median(times[0]), tuple(tried))


def _one_set(python: str, check: Check, framework: str, several: Sequence[Env], chance: random.Random) -> list[float]:
    """The median time of a step in s under each setting, from processes that live at the same time and take turns."""
    seen: list[list[float]] = [[] for _ in several]
    with ExitStack() as living:
        workers = [living.enter_context(_opened(python, check, framework, env)) for env in several]
        order = list(range(len(several)))
        for _ in range(TURNS):
            chance.shuffle(order)
            for place in order:
                command = {"do": "turn", "key": 1, "seconds": TURN, "steps": None}
                series = workers[place].ask(command, PATIENCE, _unheard)["series"]
                seen[place] += [value for one in series if one["metric"] == "step_time" for value in one["values"]]
    return [median(values) for values in seen]


@contextmanager
def _opened(python: str, check: Check, framework: str, env: Env) -> Iterator[WorkerProcess]:
    """A worker with the step built and warm."""
    worker = WorkerProcess(python, check, env)
    case = asdict(Case("mlp", framework=framework, batch=BATCH))
    try:
        worker.start()
        worker.ask({"do": "open", "key": 1, "case": case, "warmup": WARM_UP}, PATIENCE, _unheard)
        yield worker
    finally:
        worker.kill()


def _unheard(step: float) -> None:
    """Nobody needs to know how long a step takes meanwhile."""


def _compared(env: Env, times: Sequence[float], base: Sequence[float]) -> Setting:
    """How many times as fast as the base, with its interval over the sets."""
    name = " ".join(f"{one}={value}" for one, value in env.items())
    logs = [math.log(slow / fast) for fast, slow in zip(times, base, strict=True)]
    centre, width = mean(logs), half_width(logs)
    return Setting(name, median(times), math.exp(centre), math.exp(centre - width), math.exp(centre + width))
