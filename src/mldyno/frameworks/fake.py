"""A fake framework: nothing is computed, time is fake, and every fault can be ordered.

It makes end-to-end tests exact and instant, and lets a user see a whole run without a framework.
MLDYNO_FAKE, a variable of the environment, holds JSON: a list of rules, of which the first whose
`match` fits the case's id applies; for a feature that `mldyno doctor` tries it is FEATURE/fake/DEVICE.

    [{"match": "mlp/train/*", "step": 0.002, "noise": 0.01},
     {"match": "*/b64/*", "fail": "oom", "after": 100}]

Keys of a rule (times in s of fake time):
  step    time of a step on the device      times   step times to cycle through instead
  noise   relative spread of step times     slow    [n, f]: the first n steps take f times as long
  drift   relative change of the step time over a million steps
  compile step at which a graph is compiled once more; memory that grows counts the same
  issue   host's time to issue a step; with it the device works asynchronously
  kernels of a step, which share its times; the host waits while 1,024 of them are in flight
  commit  kernels that are gathered before the device starts with them; what is left, at the wait
  heat    [s, f]: after s seconds of work on the device, steps take f times as long
  tail    time of a last kernel of each step, after the step's own time; the host does not wait for it
  waits   true: a step waits for the device within itself, as .item() does
  error   relative difference from fp32, in other precisions
  flaw    why the precision did not take effect
  phases  times of phases of a step by name, such as {"prefill": 0.02, "decode": 0.05}
  memory  memory in B that the case is estimated to need
  fail    exception, oom, unsupported, kill, segv, hang, garbage, half, hog, wrong, stuck, unsettled,
          fallback (a feature that works only with FAKE_ENABLE_FALLBACK=1)
  after   how many steps succeed before it fails; 0, the default, fails in the very first
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Framework, Program, Trial, Unsupported
from mldyno.records import Case, Device

if TYPE_CHECKING:
    from mldyno.datasets import Opened

# Fake seconds per item and to issue a step, on the two devices of the fake framework.
ITEM_COST = {"cpu": 1e-5, "gpu": 1e-6}
ISSUE_COST = {"cpu": 0.0, "gpu": 5e-5}
TRAIN_FACTOR = 3.0
MATMUL_COST = 2e-5  # fake seconds of a matmul, whatever its size
FALLBACK = {"FAKE_ENABLE_FALLBACK": "1"}
DEVICE_MEMORY = 8 << 30  # B of the accelerator
SHORTEST_S, LONGEST_S = 1e-9, 1e9  # of a step: what takes no time is never measured to its end
QUEUE = 1024  # kernels in flight at most, as on CUDA


class FakeClock:
    """Time in ns that passes only where work is done."""

    def __init__(self) -> None:
        self.now = 0
        self.busy_until = 0  # when the device will have done what was started
        self._gathered: list[int] = []
        self._ends: deque[int] = deque()  # of the kernels in flight

    def __call__(self) -> int:
        """Return the time now; reading it takes 40 ns, as with a real clock."""
        self.now += 40
        return self.now

    def work(self, cost: float, issue: float, commit: int = 1) -> None:
        """Give the device a kernel of that many s; without a time to issue it the host waits for it."""
        self.now += round(issue * 1e9)
        self._gathered.append(round(cost * 1e9))
        if len(self._gathered) >= commit:
            self._start()
        if not issue:
            self.wait()

    def _start(self) -> None:
        """Start what was gathered; the host waits while too much is in flight."""
        for cost in self._gathered:
            self.busy_until = max(self.now, self.busy_until) + cost
            self._ends.append(self.busy_until)
        self._gathered.clear()
        if len(self._ends) > QUEUE:
            while len(self._ends) > QUEUE:
                earliest = self._ends.popleft()
            self.now = max(self.now, earliest)

    def wait(self) -> None:
        """Let time pass until the device is done."""
        self._start()
        self._ends.clear()
        self.now = max(self.now, self.busy_until)


CLOCK = FakeClock()


def _rule_for(identity: str) -> dict[str, Any]:
    import json

    rules = json.loads(os.environ.get("MLDYNO_FAKE", "[]"))
    rule: dict[str, Any] = next((rule for rule in rules if fnmatchcase(identity, rule.get("match", "*"))), {})
    for time_s in (rule.get("step", SHORTEST_S), *rule.get("times", ())):
        if not SHORTEST_S <= time_s <= LONGEST_S:
            raise ValueError(f"MLDYNO_FAKE: a step takes {SHORTEST_S:g} to {LONGEST_S:g} s, not {time_s:g}")
    return rule


def _fail(kind: str) -> None:  # noqa: PLR0912
    """Do the damage of that kind, for real: the parent must survive it."""
    if kind == "exception":
        raise RuntimeError("fake failure")
    if kind == "oom":
        raise MemoryError("fake: out of memory, tried to allocate 64 GiB")
    if kind == "unsupported":
        raise Unsupported("fake: this device can't do that")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "segv":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(3600)
    if kind == "garbage":
        os.write(1, b"\xff\xfe{not an answer}\n")
        for _ in range(64):
            print("x" * 65_535)  # noqa: T201
    if kind == "half":
        for descriptor in range(3, 32):  # an unruly library: it writes into every pipe it finds
            try:
                os.write(descriptor, b'{"is": "blo')
            except OSError:
                continue
        os._exit(0)
    if kind == "hog":
        held = []
        while True:
            held.append(b"\1" * (16 << 20))
            time.sleep(0.01)


class FakeMatmul:
    """A matmul that only lets fake time pass."""

    def __init__(self, case: Case, size: int) -> None:
        self.work, self.cost = 2.0 * size**3, MATMUL_COST
        self.issue = ISSUE_COST["cpu" if case.device == "cpu" else "gpu"]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            CLOCK.work(self.cost, self.issue)

    def synchronize(self) -> None:
        CLOCK.wait()


class FakeProgram(Program):
    """Steps that only let fake time pass."""

    def __init__(self, case: Case, rule: dict[str, Any]) -> None:
        import random

        batch = case.batch or 1
        kind = "cpu" if case.device == "cpu" else "gpu"
        factor = TRAIN_FACTOR if case.mode == "train" else 1.0
        default = ITEM_COST[kind] * batch * factor
        self.case, self.rule = case, rule
        self.times = rule.get("times") or [rule.get("step", default)]
        self.noise = rule.get("noise", 0.0)
        self.slow_steps, self.slow_factor = rule.get("slow", (1, 10.0))
        self.issue = rule.get("issue", ISSUE_COST[kind])
        self.drift = rule.get("drift", 0.0)
        self.kernels, self.commit = rule.get("kernels", 1), rule.get("commit", 1)
        self.heat_after, self.heat_factor = rule.get("heat", (float("inf"), 1.0))
        self.worked = 0.0
        self.tail, self.waits = rule.get("tail", 0.0), rule.get("waits", False)
        self.compiles_at = rule.get("compile", -1)
        self.random = random.Random(case.id + str(rule.get("seed", "")))
        self.failure, self.after = rule.get("fail", ""), rule.get("after", 0)
        self.done = 0
        self.check_steps = 0

    def run(self, steps: int) -> None:
        """Issue steps: the device's time line moves on; without an issue cost the host waits for it."""
        for _ in range(steps):
            if self.failure and self.done >= self.after:
                failure, self.failure = self.failure, ""
                _fail(failure)
            cost = self.times[self.done % len(self.times)]
            if self.noise:
                cost *= max(0.1, self.random.gauss(1.0, self.noise))
            if self.done < self.slow_steps:
                cost *= self.slow_factor
            if self.rule.get("fail") == "unsettled":
                cost *= 1 + 0.002 * self.done
            cost *= 1 + self.drift * self.done / 1e6
            self.worked += cost
            if self.worked > self.heat_after:
                cost *= self.heat_factor
            for _ in range(self.kernels):
                CLOCK.work(cost / self.kernels, self.issue / self.kernels, self.commit)
            if self.tail:
                CLOCK.work(self.tail, 1e-9, self.commit)
            if self.waits:
                CLOCK.wait()
            self.done += 1

    def synchronize(self) -> None:
        CLOCK.wait()

    def device_time(self, steps: int) -> float | None:
        """Return the time that the device was busy; None on the CPU, which has no events."""
        if not self.issue:
            return None
        began = max(CLOCK.now, CLOCK.busy_until)
        self.run(steps)
        CLOCK.wait()
        return (CLOCK.busy_until - began) / 1e9

    def steady_counters(self) -> tuple[int, ...]:
        return (int(self.done > self.compiles_at),)

    @property
    def phases(self) -> Mapping[str, int]:
        return dict.fromkeys(self.rule.get("phases", {}), self.case.batch or 1)

    def run_phase(self, name: str) -> None:
        CLOCK.work(self.rule["phases"][name], self.issue)

    def counts(self) -> dict[str, int]:
        return {"kernels_per_step": self.kernels, "host_syncs_per_step": int(self.waits)}

    def losses(self) -> Mapping[str, float] | None:
        """Return a loss that falls with every step, unless the rule says that nothing is learned."""
        if self.case.mode != "train":
            return None
        if self.rule.get("fail") == "wrong":
            return {"loss": -1.0}
        return {"loss": 1.0 if self.rule.get("fail") == "stuck" else 1.0 / (1 + self.done + self.check_steps)}

    def check_step(self) -> None:
        self.check_steps += 1

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Be half off where the rule says wrong; exact otherwise."""
        if self.rule.get("fail") == "wrong":
            return 0.5, 1e-3
        if self.case.precision != "fp32":
            return float(self.rule.get("error", 1e-4)), 1e-2
        return None if self.case.device == "cpu" else (0.0, 1e-3)

    def precision_flaw(self) -> str:
        return str(self.rule.get("flaw", ""))

    def device_peak(self) -> int | None:
        return None if self.case.device == "cpu" else 1000 * (self.case.batch or 1)

    def actual_device(self) -> str:
        return self.case.device


class Fake(Framework):
    """The fake framework."""

    clock: Callable[[], int] | None = staticmethod(CLOCK)
    features: Mapping[str, float] = {"fp32": 30.0, "fp16": 30.0, "fp64": 30.0, "svd": 30.0, "compile": 90.0}
    fallback: Mapping[str, str] = FALLBACK

    def start(self) -> None:
        """Import nothing."""

    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def threads(self) -> int | None:
        return 1

    def limit_threads(self, threads: int) -> None:
        """Do nothing: nothing is computed, by however many threads."""

    def devices(self) -> list[Device]:
        """Return a slow processor, and a fast accelerator that must be waited for."""
        return [Device("cpu", "fake", "fake CPU"), Device("gpu", "fake", "fake accelerator", DEVICE_MEMORY)]

    def open(self, case: Case, build: Callable[..., Any] | None, data: Opened | None = None) -> FakeProgram:
        """Take any case on a device that exists: no workload has to be built."""
        if case.device not in ("cpu", "gpu"):
            raise Unsupported(f"no device '{case.device}' here; fake sees cpu, gpu")
        return self.build_program(case, build, data)

    def build_program(self, case: Case, build: Callable[..., Any] | None, data: Opened | None) -> FakeProgram:
        return FakeProgram(case, _rule_for(case.id))

    def forecast_memory(self, case: Case, build: Callable[..., Any] | None) -> int | None:
        return int(_rule_for(case.id).get("memory", 1000 * (case.batch or 1)))

    def matmul(self, case: Case, size: int, layout: str | None = None) -> FakeMatmul:
        return FakeMatmul(case, size)

    def allocate(self, case: Case, size: int) -> object:
        """Allocate nothing, and refuse more than there is."""
        if size > DEVICE_MEMORY:
            raise MemoryError(f"fake: out of memory, tried to allocate {size} B")
        return object()

    def try_feature(self, feature: str, device: str) -> Trial:
        """Be exact, unless the rule says otherwise."""
        failure = _rule_for(f"{feature}/fake/{device}").get("fail", "")
        if failure == "fallback":
            if not all(os.environ.get(name) == value for name, value in FALLBACK.items()):
                raise Unsupported("fake: not implemented here; FAKE_ENABLE_FALLBACK=1 lets the CPU do it")
            return Trial(0.0, 1e-3, "fake::operator")
        _fail(failure)
        return Trial(0.5 if failure == "wrong" else 0.0, 1e-3)


FRAMEWORK = Fake()
