"""A fake framework: nothing is computed, time is simulated, and every fault can be requested.

It makes end-to-end tests exact and instant, and shows a whole run without a framework.
The environment variable MLDYNO_FAKE holds a JSON list of rules. The first rule whose `match` fits the case's id
applies; the id of a feature that `mldyno doctor` tries is FEATURE/fake/DEVICE.

    [{"match": "mlp/train/*", "step": 0.002, "noise": 0.01},
     {"match": "*/b64/*", "fail": "oom", "after": 100}]

Keys of a rule (times in simulated s):
  step    time of a step on the device      times   step times to cycle through instead
  noise   relative spread of step times     slow    [n, f]: the first n steps take f times as long
  drift   relative change of the step time over a million steps
  compile step at which a graph is recompiled, or device memory grows
  issue   host time to issue a step; if it is not 0, the device is asynchronous
  kernels number of kernels that share the step's times; the host waits while 1,024 are in flight
  commit  number of kernels that are queued before the device starts; a wait starts the rest
  heat    [s, f]: after s seconds of work on the device, steps take f times as long
  tail    time of a last kernel after each step, for which the host does not wait
  waits   true: each step waits for the device, as .item() does
  error   relative difference from fp32 in other precisions
  effective  the precision that took effect instead
  flaw    why the precision did not take effect
  phases  times of phases by name, such as {"prefill": 0.02, "decode": 0.05}
  memory  estimated memory of the case in B
  fail    exception, oom, unsupported, kill, segv, hang, garbage, half, hog, wrong, stuck, unsettled,
          fallback (a feature that works only with FAKE_ENABLE_FALLBACK=1)
  after   number of steps before the failure; default 0: the first step fails
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Framework, Program, Trial, Unsupported, matmul_precision
from mldyno.records import Case, Device

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.frameworks.program import Repeated

ITEM_S = {"cpu": 1e-5, "gpu": 1e-6}  # simulated time per item
ISSUE_S = {"cpu": 0.0, "gpu": 5e-5}  # to issue a step
TRAIN_FACTOR = 3.0  # times the time of inference
MATMUL_S = 2e-5  # of a matmul of any size
FALLBACK = {"FAKE_ENABLE_FALLBACK": "1"}
DEVICE_MEMORY_B = 8 << 30
SHORTEST_FAKE_S, LONGEST_FAKE_S = 1e-9, 1e9  # steps without any time would be measured for ever
MOST_KERNELS_IN_FLIGHT = 1024  # as on CUDA
CLOCK_READ_NS = 40  # as of a real clock


class FakeClock:
    """A clock in ns that moves only when work is done."""

    def __init__(self) -> None:
        self.now = 0
        self.busy_until = 0  # the end of all kernels that were started
        self._queued: list[int] = []  # times of kernels that were not started
        self._ends: deque[int] = deque()  # of kernels in flight

    def __call__(self) -> int:
        """Read the clock, which takes time itself."""
        self.now += CLOCK_READ_NS
        return self.now

    def work(self, cost: float, issue: float, commit: int = 1) -> None:
        """Issue a kernel that takes `cost` s; if `issue` is 0, the host waits for it."""
        self.now += round(issue * 1e9)
        self._queued.append(round(cost * 1e9))
        if len(self._queued) >= commit:
            self._start()
        if not issue:
            self.wait()

    def _start(self) -> None:
        """Start the queued kernels; the host waits while too many are in flight."""
        for cost in self._queued:
            self.busy_until = max(self.now, self.busy_until) + cost
            self._ends.append(self.busy_until)
        self._queued.clear()
        while len(self._ends) > MOST_KERNELS_IN_FLIGHT:
            self.now = max(self.now, self._ends.popleft())

    def wait(self) -> None:
        self._start()
        self._ends.clear()
        self.now = max(self.now, self.busy_until)


CLOCK = FakeClock()


def _rule_for(identity: str) -> dict[str, Any]:
    import json

    rules = json.loads(os.environ.get("MLDYNO_FAKE", "[]"))
    rule: dict[str, Any] = next((rule for rule in rules if fnmatchcase(identity, rule.get("match", "*"))), {})
    for time_s in (rule.get("step", SHORTEST_FAKE_S), *rule.get("times", ())):
        if not SHORTEST_FAKE_S <= time_s <= LONGEST_FAKE_S:
            raise ValueError(f"MLDYNO_FAKE: a step takes {SHORTEST_FAKE_S:g} to {LONGEST_FAKE_S:g} s, not {time_s:g}")
    return rule


ERRORS: dict[str, tuple[type[Exception], str]] = {
    "exception": (RuntimeError, "fake failure"),
    "oom": (MemoryError, "fake: out of memory, tried to allocate 64 GiB"),
    "unsupported": (Unsupported, "fake: this device can't do that"),
}


def _fail(kind: str) -> None:
    """Fail for real, in one of the ways that the parent must survive."""
    if kind in ERRORS:
        error, message = ERRORS[kind]
        raise error(message)
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
        for descriptor in range(3, 32):  # like a library that writes into any open pipe
            with suppress(OSError):
                os.write(descriptor, b'{"is": "blo')
        os._exit(0)
    if kind == "hog":
        hoarded = []
        while True:
            hoarded.append(b"\1" * (16 << 20))
            time.sleep(0.01)


class FakeProgram(Program):
    """Steps that only advance the simulated clock."""

    returns = False

    def __init__(self, case: Case, rule: dict[str, Any]) -> None:
        import random

        self.case, self.rule, batch = case, rule, case.batch or 1
        kind = "cpu" if case.device == "cpu" else "gpu"
        factor = TRAIN_FACTOR if case.mode == "train" else 1.0
        self.times = rule.get("times") or [rule.get("step", ITEM_S[kind] * batch * factor)]
        self.issue = rule.get("issue", ISSUE_S[kind])
        self.noise, self.drift = rule.get("noise", 0.0), rule.get("drift", 0.0)
        self.slow_steps, self.slow_factor = rule.get("slow", (1, 10.0))
        self.kernels, self.commit = rule.get("kernels", 1), rule.get("commit", 1)
        self.heat_after, self.heat_factor = rule.get("heat", (float("inf"), 1.0))
        self.tail, self.waits = rule.get("tail", 0.0), rule.get("waits", False)
        self.compiles_at = rule.get("compile", -1)
        self.fail = self.failure = rule.get("fail", "")
        self.after = rule.get("after", 0)
        self.random = random.Random(case.id + str(rule.get("seed", "")))
        self.worked, self.done, self.check_steps = 0.0, 0, 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.failure and self.done >= self.after:
                failure, self.failure = self.failure, ""
                _fail(failure)
            cost = self.times[self.done % len(self.times)]
            if self.noise:
                cost *= max(0.1, self.random.gauss(1.0, self.noise))
            if self.done < self.slow_steps:
                cost *= self.slow_factor
            if self.fail == "unsettled":
                cost *= 1 + 0.002 * self.done
            cost *= 1 + self.drift * self.done / 1e6
            self.worked += cost
            if self.worked > self.heat_after:
                cost *= self.heat_factor
            for _ in range(self.kernels):
                CLOCK.work(cost / self.kernels, self.issue / self.kernels, self.commit)
            if self.tail:
                CLOCK.work(self.tail, 1e-9, self.commit)
            if self.waits or self.returns:
                CLOCK.wait()
            self.done += 1

    def synchronize(self) -> None:
        CLOCK.wait()

    def device_time(self, steps: int) -> float | None:
        """Return the time in s that the device was busy; None if it is not asynchronous."""
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
        """Return a loss that falls with every step, unless the rule makes it wrong or constant."""
        if self.case.mode != "train":
            return None
        falling = 1.0 / (1 + self.done + self.check_steps)
        return {"loss": {"wrong": -1.0, "stuck": 1.0}.get(self.fail, falling)}

    def check_step(self) -> None:
        self.check_steps += 1

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Return a large error if the rule makes results wrong."""
        if self.fail == "wrong":
            return 0.5, 1e-3
        if self.case.precision != "fp32":
            return float(self.rule.get("error", 1e-4)), 1e-2
        return None if self.case.device == "cpu" else (0.0, 1e-3)

    def precision_flaw(self) -> str:
        return str(self.rule.get("flaw", ""))

    def effective_precision(self) -> str:
        return str(self.rule.get("effective", matmul_precision(self.case)))

    def device_peak(self) -> int | None:
        return None if self.case.device == "cpu" else 1000 * (self.case.batch or 1)

    def actual_device(self) -> str:
        return self.case.device


class Fake(Framework):
    """A framework on a simulated clock."""

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
        """Accept any number: nothing is computed."""

    def devices(self) -> list[Device]:
        """Return a slow processor, and a fast, asynchronous accelerator."""
        return [Device("cpu", "fake", "fake CPU"), Device("gpu", "fake", "fake accelerator", DEVICE_MEMORY_B)]

    def open(self, case: Case, build: Callable[..., Any] | None, data: Opened | None = None) -> FakeProgram:
        """Accept any case on a device that exists: no workload is built."""
        if case.device not in ("cpu", "gpu"):
            raise Unsupported(f"no device '{case.device}' here; fake sees cpu, gpu")
        return self.build_program(case, build, data)

    def build_program(self, case: Case, build: Callable[..., Any] | None, data: Opened | None) -> FakeProgram:
        return FakeProgram(case, _rule_for(case.id))

    def forecast_memory(self, case: Case, build: Callable[..., Any] | None) -> int | None:
        return int(_rule_for(case.id).get("memory", 1000 * (case.batch or 1)))

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Repeated:
        from mldyno.frameworks.program import Repeated

        issue = ISSUE_S["cpu" if case.device == "cpu" else "gpu"]
        return Repeated(lambda: CLOCK.work(MATMUL_S, issue), CLOCK.wait, 2.0 * size**3)

    def allocate(self, case: Case, size: int) -> object:
        """Allocate nothing, and refuse more than the device's memory."""
        if size > DEVICE_MEMORY_B:
            raise MemoryError(f"fake: out of memory, tried to allocate {size} B")
        return object()

    def try_feature(self, feature: str, device: str) -> Trial:
        """Return an exact result, unless the rule asks for a fault."""
        failure = _rule_for(f"{feature}/fake/{device}").get("fail", "")
        if failure == "fallback":
            if not all(os.environ.get(name) == value for name, value in FALLBACK.items()):
                raise Unsupported("fake: not implemented here; FAKE_ENABLE_FALLBACK=1 lets the CPU do it")
            return Trial(0.0, 1e-3, "fake::operator")
        _fail(failure)
        return Trial(0.5 if failure == "wrong" else 0.0, 1e-3)


FRAMEWORK = Fake()
