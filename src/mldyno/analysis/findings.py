"""The closed list of findings of a check-up, each with its cause and its cure.

Each is one entry of RULES: a code, and a pure function that looks at what was seen and gives message
and cure for each case of it. A finding is something that a user can mend or must know; what is merely
so stands among the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mldyno.analysis import unused_gpu
from mldyno.analysis.symptoms import Checkup, Setting, Tried
from mldyno.analysis.unused_gpu import Told
from mldyno.units import digits, show_bytes, show_percent

BUSY = 0.75  # share of the cores that must be free
CLEAR = 1.05  # a setting must be at least so many times as fast, at the low end of its interval
LITTLE, LEAST = 0.1, 1 << 30  # of the memory, and B: with less available than either, it is short
WAITS = 0.05  # share of the last minute that some process may wait for memory
SWAPPED = 0.1  # swap in use, over the memory
STEERED = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp", "amd_pstate", "amd_pstate_epp")
GIVES_NUMBERS = ("works", "wrong", "fallback")


@dataclass(frozen=True)
class Finding:
    """One thing that was found: a code of the closed list, what is the matter, and what to do."""

    code: str
    message: str
    cure: str


# -- frameworks and devices ------------------------------------------------------------------------


def _no_framework(checkup: Checkup) -> Told:
    for one in checkup.frameworks:
        if one.error and one.name not in checkup.facts.packages:
            yield f"{one.name} is not installed for this Python", f"pip install 'mldyno[{one.name}]'"


def _framework_fails(checkup: Checkup) -> Told:
    for one in checkup.frameworks:
        if one.error and one.name in checkup.facts.packages:
            version = checkup.facts.packages[one.name]
            yield (
                f"{one.name} {version} is installed, but does not start: {one.error}",
                f"install {one.name} anew, in its newest version: pip install -U {one.name}",
            )


def by_device(tried: Iterable[Tried]) -> dict[tuple[str, str], list[Tried]]:
    """What was tried, for each framework and device, in order."""
    found: dict[tuple[str, str], list[Tried]] = {}
    for one in tried:
        found.setdefault((one.framework, one.device), []).append(one)
    return found


def _device_broken(checkup: Checkup) -> Told:
    for (framework, device), several in by_device(checkup.tried).items():
        plainest = several[0]
        if plainest.outcome not in GIVES_NUMBERS:
            yield (
                f"{framework} on {device} can't do a plain product ({plainest.outcome}): {plainest.reason}",
                "the device may be too old for this build, or taken by another program: try an older build of "
                "the framework, or restart the machine",
            )


def _several(checkup: Checkup, outcomes: tuple[str, ...]) -> Iterable[tuple[str, str, list[Tried]]]:
    """For each device the features with such an outcome; one that is broken altogether is told of already."""
    for (framework, device), several in by_device(checkup.tried).items():
        found = [one for one in several if one.outcome in outcomes]
        if found and several[0].outcome in GIVES_NUMBERS:
            yield framework, device, found


def _wrong_numbers(checkup: Checkup) -> Told:
    for framework, device, found in _several(checkup, ("wrong",)):
        told = ", ".join(f"{one.feature} ({error_words(one)})" for one in found)
        yield (
            f"{framework} on {device} computes wrong numbers: {told}",
            "do not trust results that use it; try another version of the framework or driver, and report it there",
        )


def error_words(one: Tried) -> str:
    """How far off a feature was."""
    return one.reason or f"off by {one.error or 0.0:.2g}, {one.tolerance or 0.0:.2g} allowed"


def _crashes(checkup: Checkup) -> Told:
    for framework, device, found in _several(checkup, ("crashed", "timeout")):
        told = ", ".join(f"{one.feature} ({'no end' if one.outcome == 'timeout' else 'crashed'})" for one in found)
        yield (
            f"{framework} on {device} crashes or hangs in: {told}",
            "leave these away, or try another version of the framework or driver",
        )


def _cpu_fallback(checkup: Checkup) -> Told:
    for framework, device, found in _several(checkup, ("fallback",)):
        told = ", ".join(f"{one.feature} ({one.reason})" for one in found)
        yield (
            f"{framework} on {device} leaves this to the CPU: {told}",
            "keep it out of what is timed, or run that part on the CPU yourself; every use copies there and back",
        )


def _fallback_on(checkup: Checkup) -> Told:
    value = checkup.facts.env.get("PYTORCH_ENABLE_MPS_FALLBACK", "0")
    if value not in ("", "0") and checkup.facts.system == "Darwin":
        yield (
            "PYTORCH_ENABLE_MPS_FALLBACK is set: what MPS can't do runs on the CPU without a word",
            "unset it while you measure, so that such a case fails instead of being timed",
        )


def _no_compiler(checkup: Checkup) -> Told:
    for framework, device, found in _several(checkup, ("unsupported", "failed")):
        for one in (one for one in found if one.feature == "compile"):
            tool = "Xcode's command line tools (xcode-select --install)" if checkup.facts.system == "Darwin" else "g++"
            need = f"install {tool}" if device == "cpu" else f"install {tool}, and Triton for the device"
            yield f"{framework} can't compile models for {device}: {one.reason}", need


# -- the machine -----------------------------------------------------------------------------------


def _cores_busy(checkup: Checkup) -> Told:
    cores, free, quota = checkup.facts.cores, checkup.free, checkup.facts.quota
    usable = min(cores or 0, quota or cores or 0)
    if cores and free is not None and free < BUSY * usable:
        load = f"; load {digits(checkup.facts.load, most=2)}" if checkup.facts.load else ""
        yield (
            f"of {cores} cores only {digits(free, most=2)} were free{load}",
            "end other programs (top shows them), or measure with fewer --threads; in a virtual machine its host "
            "may be the busy one",
        )


def _cpu_quota(checkup: Checkup) -> Told:
    cores, quota = checkup.facts.cores, checkup.facts.quota
    if cores and quota is not None and quota < cores:
        threads = max(1, int(quota))
        yield (
            f"{cores} cores are visible, but this container may use only {digits(quota, most=2)} of them",
            f"set OMP_NUM_THREADS={threads} (mldyno: --threads {threads}), or give the container more CPU",
        )


def best_setting(checkup: Checkup) -> Setting | None:
    """The setting of threads that clearly helps, and most; None where none does.

    They come with the mildest first, which leaves the number of threads as it is: that one is taken
    where another is not clearly better.
    """
    settings = checkup.threads.settings if checkup.threads else ()
    clear = [one for one in settings if one.low is not None and one.low > CLEAR]
    most = max(clear, key=lambda one: one.ratio or 0.0, default=None)
    return next((one for one in clear if most and (one.ratio or 0.0) >= (most.low or 0.0)), None)


def _threads_hurt(checkup: Checkup) -> Told:
    best, threads = best_setting(checkup), checkup.threads
    if best is None or threads is None or best.ratio is None or best.low is None or best.high is None:
        return
    shown = f"{digits(best.ratio, most=3)}x ({digits(best.low)}-{digits(best.high)})"
    name, _, value = best.name.partition("=")
    more = f" (mldyno: --threads {value})" if name == "OMP_NUM_THREADS" else ""
    yield (
        f"{threads.threads or 'the'} threads of {threads.framework} hold each other up: with {best.name} "
        f"a training step was {shown} as fast",
        f"export {best.name}{more}",
    )


def _on_battery(checkup: Checkup) -> Told:
    if checkup.facts.power == "battery":
        yield "it runs on battery", "plug it in: a battery's power plan is another machine"


def _low_power(checkup: Checkup) -> Told:
    if checkup.facts.low_power:
        yield "it is in low-power mode", "switch low-power mode off"


def _memory_short(checkup: Checkup) -> Told:
    facts = checkup.facts
    told = []
    if facts.memory and facts.available is not None and facts.available < max(LITTLE * facts.memory, LEAST):
        told.append(f"{show_bytes(facts.available)} of {show_bytes(facts.memory)} left")
    if facts.memory_waits is not None and facts.memory_waits > WAITS:
        told.append(f"processes waited for memory in {show_percent(facts.memory_waits)} of the last minute")
    if facts.memory_state in ("warning", "critical"):
        told.append(f"macOS calls the pressure {facts.memory_state}")
    if told:
        yield f"memory is short: {', '.join(told)}", "end other programs, or take a smaller batch"


def _swapped(checkup: Checkup) -> Told:
    used, memory = checkup.facts.swap_used, checkup.facts.memory
    if used and memory and used > SWAPPED * memory:
        yield (
            f"{show_bytes(used)} have gone from memory to the disk",
            "end other programs, and restart those that stay: what they have swapped comes back only when they need it",
        )


def _throttled(checkup: Checkup) -> Told:
    facts = checkup.facts
    share = 1.0 if facts.speed_limit is None else facts.speed_limit
    if facts.throttles or share < 1:
        limit = f" to {show_percent(share)} of its speed" if share < 1 else ""
        yield f"the CPU is slowed down for heat{limit}", "let it cool down, and give it air; then look again"


def _slow_governor(checkup: Checkup) -> Told:
    facts = checkup.facts
    if facts.governor == "powersave" and facts.scaling not in STEERED:
        yield (
            "the CPU's governor is powersave: it keeps the lowest clock",
            "sudo cpupower frequency-set -g performance, for as long as you measure",
        )
    elif facts.preference == "power":
        yield (
            "the CPU is told to prefer power over speed (energy_performance_preference)",
            "choose a balanced or performance profile: powerprofilesctl set performance",
        )


def _noisy(checkup: Checkup) -> Told:
    noise = checkup.noise
    if noise is not None and noise.verdict == "noisy":
        alone = "" if noise.told_apart is None else f"; two runs tell {show_percent(noise.told_apart)} at best"
        yield (
            f"the machine is noisy: the same work varied by {show_percent(noise.variation)}{alone}",
            "end other programs; compare cases within one run (--by, compare), with more --repeats, not across days",
        )


def _store_unreadable(checkup: Checkup) -> Told:
    if checkup.store.error:
        yield checkup.store.error, "name another file with --store, or move this one away; no record is lost by that"


Rule = Callable[[Checkup], Told]
RULES: dict[str, Rule] = {
    "no-framework": _no_framework, "framework-fails": _framework_fails, **unused_gpu.RULES,
    "gpu-not-found": unused_gpu.unexplained, "device-broken": _device_broken, "wrong-numbers": _wrong_numbers,
    "crashes": _crashes, "cpu-fallback": _cpu_fallback, "fallback-on": _fallback_on, "no-compiler": _no_compiler,
    "cores-busy": _cores_busy, "cpu-quota": _cpu_quota, "threads-hurt": _threads_hurt, "on-battery": _on_battery,
    "low-power": _low_power, "memory-short": _memory_short, "swapped": _swapped, "throttled": _throttled,
    "slow-governor": _slow_governor, "noisy": _noisy, "store-unreadable": _store_unreadable,
}  # fmt: skip
CODES = tuple(RULES)


def of(checkup: Checkup) -> list[Finding]:
    """All that was found, why a GPU is not used first."""
    return [Finding(code, *told) for code, rule in RULES.items() for told in rule(checkup)]
