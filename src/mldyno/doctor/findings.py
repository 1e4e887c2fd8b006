"""The closed list of findings of a check-up, each with its cause and its cure.

Each is one entry of RULES: a code, and a pure function that looks at the check-up and gives message and cure for each
case of it. What a measurement suffers from too is judged by `conditions`, as its warnings are. A finding is something
that a user can mend or must know; what is merely so stands among the facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mldyno.analysis import grouped
from mldyno.analysis.conditions import CONDITIONS, State
from mldyno.doctor.noise import causes
from mldyno.doctor.symptoms import Checkup, Facts, Gpu, Installed, Setting, Trial, Tried
from mldyno.units import digits, show_bytes, show_interval, show_percent

FREE_SHARE = 0.75  # of the cores, that must be free
CLEAR_SPEEDUP = 1.05  # a setting must be at least so many times as fast, at the low end of its interval
MEMORY_SHARE, MEMORY_BYTES = 0.1, 1 << 30  # with less available than either, memory is short
MEMORY_WAITS = 0.05  # share of the last minute that some process may wait for memory
STEERED_CLOCKS = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp", "amd_pstate", "amd_pstate_epp")
GIVES_NUMBERS = ("works", "wrong", "fallback")
REFERENCE_BLAS = "the reference BLAS"  # as frameworks name it in their versions


Causes = Iterator[tuple[str, str]]
Rule = Callable[[Checkup], Causes]


@dataclass(frozen=True)
class Finding:
    """A code of the closed list, what is the matter, and what to do."""

    code: str
    message: str
    cure: str


# -- why a GPU is not used --------------------------------------------------------------------------

NEEDED = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "apple": "mps"}  # what a build must have for whose GPU
CALLED = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "mps": "MPS"}
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}  # NVIDIA's driver that a major version of CUDA needs, on Linux
OLDEST_MACOS = (((2, 8), (14, 0)), ((2, 5), (13, 0)), ((0, 0), (12, 3)))  # from this torch on, MPS needs this macOS
WAYS = {"nvidia": r"nvidia\d|dxg", "amd": r"kfd|dxg", "intel": r"dri/|dxg"}  # files under /dev that lead to a GPU
CHOOSE = "choose one at https://pytorch.org/get-started/locally"


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 13, 0) of 2.13.0+cpu."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def unused(checkup: Checkup, vendor: str | None = None) -> Iterator[tuple[Installed, Gpu]]:
    """Each framework that runs and has no accelerator, with a GPU (of a vendor) that it leaves alone."""
    gpu = next((card for card in checkup.facts.gpus if vendor in (None, card.vendor)), None)
    if gpu is not None:
        yield from ((each, gpu) for each in checkup.frameworks if not each.error and not each.accelerators)


def _other_builds(checkup: Checkup) -> Iterator[tuple[str, Gpu, list[str]]]:
    """Each framework that is built for none of the GPUs here: its name and version, a GPU, what it is built for."""
    facts = checkup.facts
    for framework, gpu in unused(checkup):
        built_for = [name for name in CALLED if framework.support.get(name)]
        served = any(NEEDED[card.vendor] in built_for for card in facts.gpus)
        if framework.support and not served and not facts.translated:
            yield f"{framework.name} {framework.versions.get(framework.name, '')}", gpu, built_for


def _for(gpu: Gpu) -> str:
    return CALLED[NEEDED[gpu.vendor]]


def cpu_only_build(checkup: Checkup) -> Causes:
    """Built for no GPU at all."""
    for name, gpu, built_for in _other_builds(checkup):
        if not built_for:
            message = f"{name} is built for the CPU only; the GPU ({gpu.name}) is left alone"
            yield message, f"install a build for {_for(gpu)}: {CHOOSE}"


def other_build(checkup: Checkup) -> Causes:
    """Built for another vendor's GPU."""
    for name, gpu, built_for in _other_builds(checkup):
        if built_for:
            message = f"{name} is built for {CALLED[built_for[0]]}; the GPU ({gpu.name}) needs {_for(gpu)}"
            yield message, f"install a build for {_for(gpu)}: {CHOOSE}"


def _reachable(facts: Facts, vendor: str) -> bool:
    """Whether a program can reach a vendor's GPU through a file of the system, as far as that can be told."""
    return facts.system != "Linux" or any(re.match(WAYS[vendor], node) for node in facts.nodes)


def container_without_gpu(checkup: Checkup) -> Causes:
    """The machine has a GPU, the container has no way to it."""
    facts = checkup.facts
    started = {
        "nvidia": "start it with --gpus all (NVIDIA Container Toolkit)",
        "amd": "start it with --device /dev/kfd --device /dev/dri",
        "intel": "start it with --device /dev/dri",
    }
    for vendor, cure in started.items():
        gpu = next((card for card in facts.gpus if card.vendor == vendor), None)
        if gpu is not None and facts.container and not _reachable(facts, vendor):
            yield (
                f"the machine has a GPU ({gpu.name}), but it was not given to this container ({facts.container})",
                cure,
            )


def no_driver(checkup: Checkup) -> Causes:
    """A card without a driver."""
    facts = checkup.facts
    silent = not facts.driver and not facts.driver_error and not facts.container
    gpu = next((card for card in facts.gpus if card.vendor == "nvidia"), None)
    if gpu is not None and silent:
        yield f"the machine has a GPU ({gpu.name}), but no NVIDIA driver", "install NVIDIA's driver, and restart"


def driver_fails(checkup: Checkup) -> Causes:
    """A driver whose own tool fails."""
    if checkup.facts.driver_error:
        yield (
            f"NVIDIA's driver does not answer: {checkup.facts.driver_error}",
            "restart the machine: after an update the old driver is still loaded; else install the driver again",
        )


def driver_too_old(checkup: Checkup) -> Causes:
    """CUDA of the build against that of the driver: within one major version, any minor one will do."""
    facts = checkup.facts
    for framework in checkup.frameworks:
        wanted, takes = numbers(str(framework.support.get("cuda") or "")), numbers(facts.driver_cuda)
        least = OLDEST_DRIVER.get(wanted[0]) if wanted else None
        too_old = takes < wanted[:1] if takes else bool(least and () < numbers(facts.driver) < (least,))
        if wanted and too_old:
            limit = f" (it takes CUDA {facts.driver_cuda} at most)" if takes else ""
            older = f"CUDA {takes[0]}" if takes else "an older CUDA"
            newer = f"driver {least} or newer" if least else "a newer driver"
            yield (
                f"{framework.name} is built for CUDA {framework.support['cuda']}; driver {facts.driver or 'of NVIDIA'} "
                f"is too old for that{limit}",
                f"install {newer}, or {framework.name} built for {older}: {CHOOSE}",
            )


def no_permission(checkup: Checkup) -> Causes:
    """The file that leads to the GPU is there, but not for this user."""
    for framework, gpu in unused(checkup):
        barred = [node for node in checkup.facts.barred if re.match(WAYS.get(gpu.vendor, "$"), node)]
        if barred and framework.support.get(NEEDED[gpu.vendor]):
            nodes = ", ".join(f"/dev/{node}" for node in barred)
            yield (
                f"{framework.name} can't reach the GPU ({gpu.name}): this user may not open {nodes}",
                "join the groups that may (sudo usermod -aG render,video $USER), and log in anew",
            )


def visible_devices(checkup: Checkup) -> Causes:
    """CUDA_VISIBLE_DEVICES that hides GPUs: from the first entry that names none, nothing is seen any more."""
    facts = checkup.facts
    value = facts.env.get("CUDA_VISIBLE_DEVICES")
    cards = [gpu for gpu in facts.gpus if gpu.vendor == "nvidia"]
    if value is None or not cards:
        return
    cure = "unset CUDA_VISIBLE_DEVICES, or name GPUs that `nvidia-smi -L` lists"
    if not value.strip():
        yield "CUDA_VISIBLE_DEVICES is set to nothing, which hides every GPU", cure
        return
    for place, word in enumerate(entry.strip() for entry in value.split(",")):
        if not _names_a_card(word, cards):
            hidden = "no GPU is visible" if place == 0 else "those from there on are hidden"
            yield f"CUDA_VISIBLE_DEVICES={value}: '{word}' is no GPU of the {len(cards)} here, so {hidden}", cure
            return


def _names_a_card(word: str, cards: list[Gpu]) -> bool:
    if word.startswith("GPU-"):  # the first digits will do
        known = [gpu.uuid for gpu in cards if gpu.uuid]
        return not known or any(uuid.startswith(word) for uuid in known)
    return word.startswith("MIG-") or (word.isdecimal() and int(word) < len(cards))


def _oldest_macos(framework: Installed) -> tuple[int, ...]:
    version = numbers(framework.versions.get("torch", ""))
    return next(oldest for since, oldest in OLDEST_MACOS if version >= since)


def old_macos(checkup: Checkup) -> Causes:
    """A macOS that is older than the framework's MPS needs."""
    facts = checkup.facts
    for framework, _ in unused(checkup, "apple"):
        here, oldest = numbers(facts.version), _oldest_macos(framework)
        if framework.support.get("mps") and here and here < oldest:
            least = ".".join(map(str, oldest))
            yield (
                f"macOS {facts.version} is too old: MPS of torch {framework.versions.get('torch', '')} needs {least}",
                f"update macOS to {least} or newer",
            )


def mps_unavailable(checkup: Checkup) -> Causes:
    """Built for MPS, on a macOS that is new enough, and yet without it."""
    facts = checkup.facts
    for framework, _ in unused(checkup, "apple"):
        recent = numbers(facts.version) >= _oldest_macos(framework)
        if framework.support.get("mps") and recent and not facts.translated:
            yield (
                f"{framework.name} is built for MPS, but the system gives it no Metal device",
                "run it outside of a virtual machine or sandbox, in a session that is logged in; else install it anew",
            )


def tensorflow_metal(checkup: Checkup) -> Causes:
    """TensorFlow on a Mac sees the GPU only through a plug-in."""
    packages = checkup.facts.packages
    if checkup.facts.system == "Darwin" and {"tensorflow", "tensorflow-macos"} & set(packages):
        if "tensorflow-metal" not in packages:
            yield "TensorFlow is installed without tensorflow-metal: it sees no GPU", "pip install tensorflow-metal"


def unexplained(checkup: Checkup) -> Causes:
    """A GPU that is there and not used, for none of the reasons above."""
    known = any(list(rule(checkup)) for code, rule in WHY_UNUSED.items() if code != "no-tensorflow-metal")
    if known or checkup.facts.translated:
        return
    for framework, gpu in unused(checkup):
        reason = framework.support.get("reason")
        yield (
            f"{framework.name} does not find the GPU ({gpu.name}){f': {reason}' if reason else ''}",
            "see if the vendor's own tool finds it (nvidia-smi, rocminfo, xpu-smi); then install the framework anew",
        )


# -- frameworks and devices ------------------------------------------------------------------------


def _no_framework(checkup: Checkup) -> Causes:
    for framework in checkup.frameworks:
        if framework.error and framework.name not in checkup.facts.packages:
            yield f"{framework.name} is not installed for this Python", f"pip install 'mldyno[{framework.name}]'"


def _framework_fails(checkup: Checkup) -> Causes:
    for framework in checkup.frameworks:
        name = framework.name
        if framework.error and name in checkup.facts.packages:
            yield (
                f"{name} {checkup.facts.packages[name]} is installed, but does not start: {framework.error}",
                f"install {name} anew, in its newest version: pip install -U {name}",
            )


def by_device(tried: Iterable[Tried]) -> dict[tuple[str, str], list[Tried]]:
    """What was tried, for each framework and device, in order."""
    return grouped(tried, lambda feature: (feature.framework, feature.device))


def _device_broken(checkup: Checkup) -> Causes:
    for (framework, device), features in by_device(checkup.tried).items():
        plainest = features[0]
        if plainest.outcome not in GIVES_NUMBERS:
            yield (
                f"{framework} on {device} can't do a matmul ({plainest.outcome}): {plainest.reason}",
                "the device may be too old for this build, or taken by another program: try an older build of "
                "the framework, or restart the machine",
            )


def _with_outcome(checkup: Checkup, *outcomes: str) -> Iterable[tuple[str, str, list[Tried]]]:
    """For each device the features with such an outcome; one that is broken altogether has a finding already."""
    for (framework, device), features in by_device(checkup.tried).items():
        matches = [feature for feature in features if feature.outcome in outcomes]
        if matches and features[0].outcome in GIVES_NUMBERS:
            yield framework, device, matches


def _wrong_numbers(checkup: Checkup) -> Causes:
    for framework, device, features in _with_outcome(checkup, "wrong"):
        names = ", ".join(f"{tried.feature} ({error_text(tried)})" for tried in features)
        yield (
            f"{framework} on {device} computes wrong numbers: {names}",
            "do not trust results that use it; try another version of the framework or driver, and report it there",
        )


def error_text(tried: Tried) -> str:
    """How far off a feature was."""
    return tried.reason or f"off by {tried.error or 0.0:.2g}, {tried.tolerance or 0.0:.2g} allowed"


def _crashes(checkup: Checkup) -> Causes:
    ends = {"timeout": "no end", "crashed": "crashed"}
    for framework, device, features in _with_outcome(checkup, *ends):
        names = ", ".join(f"{tried.feature} ({ends[tried.outcome]})" for tried in features)
        yield (
            f"{framework} on {device} crashes or hangs in: {names}",
            "omit these, or try another version of the framework or driver",
        )


def _cpu_fallback(checkup: Checkup) -> Causes:
    for framework, device, features in _with_outcome(checkup, "fallback"):
        names = ", ".join(f"{tried.feature} ({tried.reason})" for tried in features)
        yield (
            f"{framework} on {device} leaves this to the CPU: {names}",
            "keep it out of what is timed, or run that part on the CPU yourself; every use copies there and back",
        )


def _fallback_on(checkup: Checkup) -> Causes:
    value = checkup.facts.env.get("PYTORCH_ENABLE_MPS_FALLBACK", "0")
    if value not in ("", "0") and checkup.facts.system == "Darwin":
        yield (
            "PYTORCH_ENABLE_MPS_FALLBACK is set: what MPS can't do runs on the CPU without a word",
            "unset it while you measure, so that such a case fails instead of being timed",
        )


def _no_compiler(checkup: Checkup) -> Causes:
    for framework, device, features in _with_outcome(checkup, "unsupported", "failed"):
        for tried in (tried for tried in features if tried.feature == "compile"):
            tool = "Xcode's command line tools (xcode-select --install)" if checkup.facts.system == "Darwin" else "g++"
            need = f"install {tool}" if device in ("cpu", "mps") else f"install {tool}, and Triton for the device"
            yield f"{framework} can't compile models for {device}: {tried.reason}", need


# -- the machine -----------------------------------------------------------------------------------


def _cores_busy(checkup: Checkup) -> Causes:
    cores, free, quota = checkup.facts.cores, checkup.free, checkup.facts.quota
    usable = min(cores or 0, quota or cores or 0)
    if cores and free is not None and free < FREE_SHARE * usable:
        load = f"; load {digits(checkup.facts.load, most=2)}" if checkup.facts.load else ""
        yield (
            f"of {cores} cores only {digits(free, most=2)} were free{load}",
            "end other programs (top shows them), or measure with fewer --threads; in a virtual machine its host "
            "may be the busy one",
        )


def _cpu_quota(checkup: Checkup) -> Causes:
    cores, quota = checkup.facts.cores, checkup.facts.quota
    if cores and quota is not None and quota < cores:
        threads = max(1, int(quota))
        yield (
            f"{cores} cores are visible, but this container may use only {digits(quota, most=2)} of them",
            f"set OMP_NUM_THREADS={threads} (mldyno: --threads {threads}), or give the container more CPU",
        )


def best_setting(trial: Trial | None) -> Setting | None:
    """The setting that clearly helps, and most; None where none does.

    They come with the mildest first, which leaves most as it is: that one is taken where another is not clearly better.
    """
    settings = trial.settings if trial else ()
    clear = [setting for setting in settings if setting.low > CLEAR_SPEEDUP]
    best = max(clear, key=lambda setting: setting.ratio, default=None)
    return next((setting for setting in clear if best and setting.ratio >= best.low), None)


def _better_setting(trial: Trial | None) -> tuple[str, str] | None:
    """How much faster a training step is with the best setting, and how to set it."""
    best = best_setting(trial)
    if trial is None or best is None:
        return None
    shown = show_interval(best.gain, "x")
    more = f" (mldyno: {best.option})" if best.option else ""
    return f"with {best.name} a training step of {trial.workload} was {shown} as fast", f"export {best.name}{more}"


def _threads_hurt(checkup: Checkup) -> Causes:
    threads, better = checkup.threads, _better_setting(checkup.threads)
    if threads is not None and better is not None:
        which = f"{threads.threads or 'the'} threads of {threads.framework} hold each other up"
        yield f"{which}: {better[0]}", better[1]


def _slow_blas(checkup: Checkup) -> Causes:
    for framework in checkup.frameworks:
        if framework.versions.get("blas") == REFERENCE_BLAS:
            yield (
                f"{framework.name} multiplies on the CPU with {REFERENCE_BLAS}: over ten times as slow as OpenBLAS",
                "install OpenBLAS (Debian, Ubuntu: libopenblas0-pthread), and set MLDYNO_MLX_PRELOAD=libopenblas.so.0",
            )


def _allocator_slow(checkup: Checkup) -> Causes:
    better = _better_setting(checkup.allocators)
    if better is not None:
        yield f"memory is given back and touched anew in every step: {better[0]}", better[1]


def _of_state(code: str) -> Rule:
    """A condition of the machine that warnings judge in the same way."""

    def rule(checkup: Checkup) -> Causes:
        facts = checkup.facts
        state = State(
            power=facts.power, low_power=facts.low_power, translated=facts.translated, memory=facts.memory,
            slowed_down=bool(facts.throttles), speed_limit=facts.speed_limit, swap_used=facts.swap_used,
        )  # fmt: skip
        judged = CONDITIONS[code](state)
        yield from [judged] if judged else []

    return rule


def _memory_short(checkup: Checkup) -> Causes:
    facts = checkup.facts
    signs = []
    if (
        facts.memory
        and facts.available is not None
        and facts.available < max(MEMORY_SHARE * facts.memory, MEMORY_BYTES)
    ):
        signs.append(f"{show_bytes(facts.available)} of {show_bytes(facts.memory)} left")
    if facts.memory_waits is not None and facts.memory_waits > MEMORY_WAITS:
        signs.append(f"processes waited for memory in {show_percent(facts.memory_waits)} of the last minute")
    if facts.memory_state in ("warning", "critical"):
        signs.append(f"macOS calls the pressure {facts.memory_state}")
    if signs:
        yield f"memory is short: {', '.join(signs)}", "end other programs, or take a smaller batch"


def _slow_governor(checkup: Checkup) -> Causes:
    facts = checkup.facts
    if facts.governor == "powersave" and facts.scaling not in STEERED_CLOCKS:
        yield (
            "the CPU's governor is powersave: it keeps the lowest clock",
            "sudo cpupower frequency-set -g performance, for as long as you measure",
        )
    elif facts.preference == "power":
        yield (
            "the CPU is told to prefer power over speed (energy_performance_preference)",
            "choose a balanced or performance profile: powerprofilesctl set performance",
        )


def _noisy(checkup: Checkup) -> Causes:
    noise = checkup.noise
    if noise is not None and noise.verdict == "very noisy":
        least = noise.detectable_separate
        separate = "" if least is None else f"; two separate runs tell {show_percent(least)} apart at best"
        yield (
            f"the machine is very noisy: {', '.join(causes(noise))}{separate}",
            "end other programs; compare cases within one run (--by, compare), with more --repeats, not across days",
        )


def _sensors_closed(checkup: Checkup) -> Causes:
    closed = grouped(
        (each for each in checkup.sensors if each.reason), lambda each: (each.reason, each.cure, each.price)
    )
    for (reason, cure, price), group in closed.items():
        names = ", ".join(f"{each.name} ({each.scope})" if each.scope else each.name for each in group)
        yield f"energy could be measured by {names}, but {reason}", f"{cure}{f'; beware: {price}' if price else ''}"


def _sensor_fails(checkup: Checkup) -> Causes:
    for sensor in checkup.sensors:
        if sensor.error:
            yield (
                f"the sensor {sensor.name} of {sensor.scope} fails: {sensor.error}",
                "nothing to do: what it sees is not told, all else is",
            )


def _store_unreadable(checkup: Checkup) -> Causes:
    if checkup.store.error:
        yield checkup.store.error, "name another file with --store, or move this one away; no record is lost by that"


WHY_UNUSED: dict[str, Rule] = {
    "cpu-only-build": cpu_only_build, "other-build": other_build,
    "container-without-gpu": container_without_gpu, "no-driver": no_driver, "driver-fails": driver_fails,
    "driver-too-old": driver_too_old, "no-permission": no_permission, "visible-devices": visible_devices,
    "old-macos": old_macos, "mps-unavailable": mps_unavailable, "no-tensorflow-metal": tensorflow_metal,
}  # fmt: skip
RULES: dict[str, Rule] = {
    "no-framework": _no_framework, "framework-fails": _framework_fails, "rosetta": _of_state("rosetta"),
    **WHY_UNUSED, "gpu-not-found": unexplained,
    "device-broken": _device_broken, "wrong-numbers": _wrong_numbers,
    "crashes": _crashes, "cpu-fallback": _cpu_fallback, "fallback-on": _fallback_on, "no-compiler": _no_compiler,
    "cores-busy": _cores_busy, "cpu-quota": _cpu_quota, "threads-hurt": _threads_hurt,
    "allocator-slow": _allocator_slow, "slow-blas": _slow_blas,
    "on-battery": _of_state("on-battery"), "low-power": _of_state("low-power"), "memory-short": _memory_short,
    "swapped": _of_state("swapped"), "throttled": _of_state("throttled"),
    "slow-governor": _slow_governor, "noisy": _noisy, "sensors-closed": _sensors_closed,
    "sensor-fails": _sensor_fails, "store-unreadable": _store_unreadable,
}  # fmt: skip
CODES = tuple(RULES)


def of(checkup: Checkup) -> list[Finding]:
    """All findings, why a GPU is not used first."""
    return [Finding(code, *texts) for code, rule in RULES.items() for texts in rule(checkup)]
