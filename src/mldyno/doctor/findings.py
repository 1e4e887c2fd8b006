"""The findings of a check-up, each with its cause and its cure: a closed list of codes.

A rule is a pure function that looks at the check-up and yields findings. What measurements suffer from, too, is judged
by `conditions`, as in their warnings. A finding is something that a user can fix or must know; all else is a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mldyno.analysis import grouped
from mldyno.doctor.noise import causes
from mldyno.doctor.symptoms import Checkup, Gpu, Installed, Setting, Trial, Tried
from mldyno.runner.warnings import State, conditions
from mldyno.units import digits, show_bytes, show_interval, show_percent

LEAST_FREE_SHARE = 0.75  # of the cores
CLEAR_SPEEDUP = 1.05  # that the low end of a setting's interval must reach
LEAST_MEMORY_SHARE, LEAST_MEMORY_B = 0.1, 1 << 30  # available; with less than either, memory is short
MOST_MEMORY_WAITS = 0.05  # share of the last minute in which some process waited for memory
STEERED_CLOCKS = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp", "amd_pstate", "amd_pstate_epp")
GIVES_NUMBERS = ("works", "wrong", "fallback")
REFERENCE_BLAS = "the reference BLAS"  # as frameworks name it in their versions
NEEDED = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "apple": "mps"}  # support that a build must have, by vendor
CALLED = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "mps": "MPS"}
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}  # of NVIDIA on Linux, for a major version of CUDA
OLDEST_MACOS = (((2, 8), (14, 0)), ((2, 5), (13, 0)), ((0, 0), (12, 3)))  # for MPS, from a version of torch on
NODES = {"nvidia": r"nvidia\d|dxg", "amd": r"kfd|dxg", "intel": r"dri/|dxg"}  # files under /dev that lead to a GPU
START_WITH_GPU = {
    "nvidia": "--gpus all (NVIDIA Container Toolkit)",
    "amd": "--device /dev/kfd --device /dev/dri",
    "intel": "--device /dev/dri",
}
CHOOSE = "choose one at https://pytorch.org/get-started/locally"
# What installs a framework for the GPUs of a vendor. A framework that is not listed for a vendor has none for it.
BUILDS = {
    "torch": {vendor: f"install a build for {CALLED[kind]}: {CHOOSE}" for vendor, kind in NEEDED.items()},
    "tensorflow": {
        "nvidia": "pip uninstall tensorflow-cpu, if that is installed; then pip install 'tensorflow[and-cuda]'",
        "amd": "install AMD's build of TensorFlow, tensorflow-rocm, from https://repo.radeon.com/rocm/manylinux",
    },
    "jax": {
        "nvidia": "pip install 'jax[cuda13]'; with a driver before 580, 'jax[cuda12]'",
        "amd": "pip install 'jax[rocm7-local]'",
        "apple": "measure with torch or mlx; or try jax-mps, a plug-in by others, of the same release as JAX",
    },
    "mlx": {
        "nvidia": "pip install 'mlx[cuda13]'; with a driver before 580, 'mlx[cuda12]'", "apple": "pip install -U mlx",
    },
    "onnxruntime": {"nvidia": "pip uninstall onnxruntime, then pip install onnxruntime-gpu"},
    "openvino": {"intel": "install Intel's OpenCL driver (Debian, Ubuntu: intel-opencl-icd)"},
}  # fmt: skip
OLDER_CUDA = {
    "torch": f", or torch built for {{older}}: {CHOOSE}",
    "jax": ", or JAX for CUDA 12: pip install 'jax[cuda12]'",
}
# Of tensorflow-metal 1.2.0, the last: releases of TensorFlow that load it, and the newest Python that has a wheel.
PLUGGABLE_TENSORFLOW, NEWEST_PYTHON_OF_METAL = ((2, 18), (2, 19)), (3, 12)

# Why a GPU is not used, whatever the framework is built for.
WHY_UNUSED = (
    "container-without-gpu", "no-driver", "driver-fails", "driver-too-old", "no-permission", "visible-devices",
    "old-macos", "mps-unavailable",
)  # fmt: skip
BY_CONDITIONS = ("", "")  # message and cure of a condition
# The codes in the order in which findings are reported, each with its message and its cure.
TEXTS = {
    "no-framework": ("{name} is not installed for this Python", "pip install 'mldyno[{name}]'"),
    "tensorflow-metal-breaks": (
        "tensorflow-metal does not fit TensorFlow {version}, which can't be imported beside it, for the CPU either",
        "pip uninstall tensorflow-metal; measure the GPU with torch or mlx, or with TensorFlow 2.19 on Python 3.12"),
    "framework-fails": ("{name} {version} is installed, but does not start: {error}",
        "reinstall {name} in its newest version: pip install -U {name}"),
    "rosetta": BY_CONDITIONS,
    "cpu-only-build": (
        "{build} is built for the CPU only; the GPU ({gpu}) is not used", "{install}"),
    "other-build": ("{build} is built for {other}; the GPU ({gpu}) needs {needed}", "{install}"),
    "container-without-gpu": ("the machine has a GPU ({gpu}), but this container ({container}) has no access to it",
        "start it with {options}"),
    "no-driver": ("the machine has a GPU ({gpu}), but no NVIDIA driver", "install NVIDIA's driver, and restart"),
    "driver-fails": ("NVIDIA's driver does not answer: {error}",
        "restart the machine: after an update the old driver is still loaded; else install the driver again"),
    "driver-too-old": ("{name} is built for CUDA {cuda}; driver {driver} is too old for that{limit}",
        "install {newer}{other}"),
    "no-permission": ("{name} can't reach the GPU ({gpu}): this user may not open {nodes}",
        "join the groups that may (sudo usermod -aG render,video $USER), and log in again"),
    "visible-devices": (
        "CUDA_VISIBLE_DEVICES{fault}", "unset CUDA_VISIBLE_DEVICES, or name GPUs that `nvidia-smi -L` lists"),
    "old-macos": ("macOS {version} is too old: MPS of torch {torch} needs {least}", "update macOS to {least} or newer"),
    "mps-unavailable": ("{name} is built for MPS, but the system gives it no Metal device",
        "run it outside of a virtual machine or sandbox, in a session that is logged in; else reinstall it"),
    "no-tensorflow-metal": (
        "TensorFlow {version} is installed without tensorflow-metal: it sees no GPU", "pip install tensorflow-metal"),
    "tensorflow-without-gpu": (
        "TensorFlow {version} has no GPU on this Mac: tensorflow-metal is for 2.18 and 2.19, on Python 3.12 at most",
        "measure the GPU with torch or mlx"),
    "gpu-not-found": ("{name} does not find the GPU ({gpu}){reason}",
        "see if the vendor's own tool finds it (nvidia-smi, rocminfo, xpu-smi); if it does: {install}"),
    "device-broken": ("{place} can't do a matmul ({outcome}): {reason}",
        "the device may be too old for this build, or taken by another program: try an older build of the framework, "
        "or restart the machine"),
    "wrong-numbers": ("{place} computes wrong numbers: {features}",
        "do not trust results that use it; try another version of the framework or driver, and report it there"),
    "crashes": ("{place} crashes or hangs in: {features}",
        "{first}omit these, or try another version of the framework or driver"),
    "cpu-fallback": ("{place} leaves this to the CPU: {features}",
        "keep it out of what is timed, or run that part on the CPU yourself; every use copies there and back"),
    "fallback-on": ("PYTORCH_ENABLE_MPS_FALLBACK is set: what MPS can't do runs on the CPU without a warning",
        "unset it while you measure, so that such a case fails instead of being timed"),
    "no-compiler": ("{framework} can't compile models for {device}: {reason}", "install {tool}{more}"),
    "cores-busy": ("of {cores} cores only {free} were free{load}",
        "end other programs (top shows them), or measure with fewer --threads; in a virtual machine its host may be "
        "the busy one"),
    "cpu-quota": ("{cores} cores are visible, but this container may use only {quota} of them",
        "set OMP_NUM_THREADS={threads} (mldyno: --threads {threads}), or give the container more CPU"),
    "threads-hurt": ("{threads} threads of {framework} hold each other up: {gain}", "export {setting}"),
    "allocator-slow": ("memory is returned and touched again in every step: {gain}", "export {setting}"),
    "slow-blas": (f"{{name}} multiplies on the CPU with {REFERENCE_BLAS}: over ten times as slow as OpenBLAS",
        "install OpenBLAS (Debian, Ubuntu: libopenblas0-pthread), and set MLDYNO_MLX_PRELOAD=libopenblas.so.0"),
    "niced": BY_CONDITIONS,
    "few-cores": BY_CONDITIONS,
    "on-battery": BY_CONDITIONS,
    "low-power": BY_CONDITIONS,
    "memory-short": ("memory is short: {signs}", "end other programs, or use a smaller batch"),
    "swapped": BY_CONDITIONS,
    "throttled": BY_CONDITIONS,
    "slow-governor": ("the CPU{fault}", "{cure}"),
    "noisy": ("the machine is very noisy: {causes}{separate}",
        "end other programs; compare cases within one run (--by, compare), with more --repeats, not across days"),
    "sensors-closed": ("energy could be measured by {names}, but {reason}", "{cure}{beware}"),
    "sensor-fails": (
        "the sensor {name} of {scope} fails: {error}", "nothing to do: only what it covers is not measured"),
    "store-unreadable": (
        "{error}", "name another file with --store, or move this one away; no record is lost by that"),
}  # fmt: skip
CODES = tuple(TEXTS)


@dataclass(frozen=True)
class Finding:
    """A code of the closed list, what is wrong, and what to do."""

    code: str
    message: str
    cure: str


Findings = Iterator[Finding]


def finding(code: str, **words: object) -> Finding:
    """Return a finding, with these words in its message and its cure."""
    message, cure = TEXTS[code]
    return Finding(code, message.format(**words), cure.format(**words))


def of(checkup: Checkup) -> list[Finding]:
    """Return all findings, why a GPU is not used first."""
    findings = [each for rule in RULES for each in rule(checkup)]
    if not any(each.code in WHY_UNUSED for each in findings):
        findings += _gpu_not_found(checkup)
    return sorted(findings, key=lambda each: CODES.index(each.code))


# -- why a GPU is not used -----------------------------------------------------------------------
def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 13, 0) for 2.13.0+cpu."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def _gpu_of(checkup: Checkup, *vendors: str) -> Gpu | None:
    return next((gpu for gpu in checkup.facts.gpus if gpu.vendor in vendors), None)


def _unused(checkup: Checkup, *vendors: str) -> Iterator[tuple[Installed, Gpu]]:
    """Yield each framework that runs and has no accelerator, with a GPU (of these vendors) that it could use."""
    for framework in checkup.frameworks:
        usable = [vendor for vendor in BUILDS.get(framework.name, ()) if not vendors or vendor in vendors]
        gpu = _gpu_of(checkup, *usable)
        if gpu is not None and not framework.error and not framework.accelerators:
            yield framework, gpu


def _fits(checkup: Checkup, framework: Installed) -> bool:
    """Return whether a framework is built for one of the GPUs here, or does not say what it is built for."""
    return not framework.support or any(framework.support.get(NEEDED[gpu.vendor]) for gpu in checkup.facts.gpus)


def _builds(checkup: Checkup) -> Findings:
    for framework, gpu in () if checkup.facts.translated else _unused(checkup):
        if not _fits(checkup, framework):
            build = f"{framework.name} {framework.versions.get(framework.name, '')}"
            others = [name for kind, name in CALLED.items() if framework.support.get(kind)]
            install = BUILDS[framework.name][gpu.vendor]
            yield finding(
                "other-build" if others else "cpu-only-build", build=build, other="".join(others[:1]), gpu=gpu.name,
                needed=CALLED[NEEDED[gpu.vendor]], install=install,
            )  # fmt: skip


def _containers(checkup: Checkup) -> Findings:
    facts = checkup.facts
    if not facts.container or facts.system != "Linux":
        return
    for vendor, options in START_WITH_GPU.items():
        gpu = _gpu_of(checkup, vendor)
        if gpu is not None and not any(re.match(NODES[vendor], node) for node in facts.nodes):
            yield finding("container-without-gpu", gpu=gpu.name, container=facts.container, options=options)


def _drivers(checkup: Checkup) -> Findings:
    facts, gpu = checkup.facts, _gpu_of(checkup, "nvidia")
    if facts.driver_error:
        yield finding("driver-fails", error=facts.driver_error)
    elif gpu is not None and not facts.driver and not facts.container:
        yield finding("no-driver", gpu=gpu.name)
    for framework in checkup.frameworks:  # within one major version of CUDA, a driver runs any minor version
        wanted, takes = _numbers(str(framework.support.get("cuda") or "")), _numbers(facts.driver_cuda)
        least = OLDEST_DRIVER.get(wanted[0]) if wanted else None
        too_old = takes < wanted[:1] if takes else bool(least and () < _numbers(facts.driver) < (least,))
        if wanted and too_old:
            yield finding(
                "driver-too-old", name=framework.name, cuda=framework.support["cuda"],
                driver=facts.driver or "of NVIDIA",
                limit=f" (it takes CUDA {facts.driver_cuda} at most)" if takes else "",
                newer=f"driver {least} or newer" if least else "a newer driver",
                other=OLDER_CUDA.get(framework.name, "").format(older=f"CUDA {takes[0]}" if takes else "an older CUDA"),
            )  # fmt: skip


def _permissions(checkup: Checkup) -> Findings:
    for framework, gpu in _unused(checkup):
        barred = [node for node in checkup.facts.barred if re.match(NODES.get(gpu.vendor, "$"), node)]
        if barred and framework.support.get(NEEDED[gpu.vendor]):
            nodes = ", ".join(f"/dev/{node}" for node in barred)
            yield finding("no-permission", name=framework.name, gpu=gpu.name, nodes=nodes)


def _visible_devices(checkup: Checkup) -> Findings:
    """Find the first entry of CUDA_VISIBLE_DEVICES that names no GPU: it hides all GPUs after it, too."""
    value = checkup.facts.env.get("CUDA_VISIBLE_DEVICES")
    cards = [gpu for gpu in checkup.facts.gpus if gpu.vendor == "nvidia"]
    if value is None or not cards:
        return
    if not value.strip():
        yield finding("visible-devices", fault=" is set to nothing, which hides every GPU")
        return
    words = [word.strip() for word in value.split(",")]
    place = next((place for place, word in enumerate(words) if not _names_a_card(word, cards)), None)
    if place is not None:
        hidden = "no GPU is visible" if place == 0 else "it and those after it are hidden"
        fault = f"={value}: '{words[place]}' is no GPU of the {len(cards)} here, so {hidden}"
        yield finding("visible-devices", fault=fault)


def _names_a_card(word: str, cards: list[Gpu]) -> bool:
    if word.startswith("GPU-"):  # the first digits suffice
        known = [gpu.uuid for gpu in cards if gpu.uuid]
        return not known or any(uuid.startswith(word) for uuid in known)
    return word.startswith("MIG-") or (word.isdecimal() and int(word) < len(cards))


def _macs(checkup: Checkup) -> Findings:
    facts = checkup.facts
    here = _numbers(facts.version)
    for framework, _ in _unused(checkup, "apple"):
        torch = framework.versions.get("torch", "")
        oldest = next((oldest for since, oldest in OLDEST_MACOS if _numbers(torch) >= since), ())
        if framework.support.get("mps") and () < here < oldest:
            yield finding("old-macos", version=facts.version, torch=torch, least=".".join(map(str, oldest)))
        elif framework.support.get("mps") and here >= oldest and not facts.translated:
            yield finding("mps-unavailable", name=framework.name)


def _tensorflow_on_macs(checkup: Checkup) -> Findings:
    """Find whether Apple's plug-in is missing, or does not fit this TensorFlow, or can't be had for it."""
    facts = checkup.facts
    version = facts.packages.get("tensorflow") or facts.packages.get("tensorflow-macos")
    if facts.system != "Darwin" or version is None:
        return
    release, python = _numbers(version)[:2], _numbers(facts.python)[:2]
    if "tensorflow-metal" in facts.packages:
        if release > PLUGGABLE_TENSORFLOW[-1]:
            yield finding("tensorflow-metal-breaks", version=version)
    elif release in PLUGGABLE_TENSORFLOW and python <= NEWEST_PYTHON_OF_METAL:
        yield finding("no-tensorflow-metal", version=version)
    else:
        yield finding("tensorflow-without-gpu", version=version)


def _gpu_not_found(checkup: Checkup) -> Findings:
    """Report each GPU that is not used for none of the reasons above."""
    for framework, gpu in () if checkup.facts.translated else _unused(checkup):
        if _fits(checkup, framework):
            reason, install = framework.support.get("reason"), BUILDS[framework.name][gpu.vendor]
            words = f": {reason}" if reason else ""
            yield finding("gpu-not-found", name=framework.name, gpu=gpu.name, reason=words, install=install)


# -- frameworks and devices ----------------------------------------------------------------------
def _frameworks(checkup: Checkup) -> Findings:
    for framework in checkup.frameworks:
        name, packages = framework.name, checkup.facts.packages
        version = next((packages[each] for each in (name, f"{name}-cpu", f"{name}-gpu") if each in packages), None)
        if framework.error:
            code = "no-framework" if version is None else "framework-fails"
            yield finding(code, name=name, version=version, error=framework.error)
        if framework.versions.get("blas") == REFERENCE_BLAS:
            yield finding("slow-blas", name=name)


def by_device(tried: Iterable[Tried]) -> dict[tuple[str, str], list[Tried]]:
    """Return what was tried, for each framework and device, in order."""
    return grouped(tried, lambda feature: (feature.framework, feature.device))


def error_text(tried: Tried) -> str:
    """Return how far off a feature was."""
    return tried.reason or f"off by {tried.error or 0.0:.2g}, {tried.tolerance or 0.0:.2g} allowed"


# Outcomes of features that are findings, and how a feature is named in them.
OUTCOMES = {
    "wrong-numbers": {"wrong": error_text},
    "crashes": {"timeout": lambda tried: "timed out", "crashed": lambda tried: "crashed"},
    "cpu-fallback": {"fallback": lambda tried: tried.reason},
}


def _features(checkup: Checkup) -> Findings:
    mac = checkup.facts.system == "Darwin"
    for (framework, device), features in by_device(checkup.tried).items():
        place, first = f"{framework} on {device}", features[0]
        if first.outcome not in GIVES_NUMBERS:
            yield finding("device-broken", place=place, outcome=first.outcome, reason=first.reason)
            continue
        for code, shown in OUTCOMES.items():
            names = [f"{tried.feature} ({shown[tried.outcome](tried)})" for tried in features if tried.outcome in shown]
            if names:
                late = _few_cores_free(checkup) and any(tried.outcome == "timeout" for tried in features)
                retry = "few cores were free: end other programs and look again; only then " if late else ""
                yield finding(code, place=place, features=", ".join(names), first=retry)
        for tried in features:
            if tried.feature == "compile" and tried.outcome in ("unsupported", "failed"):
                tool = "Xcode's command line tools (xcode-select --install)" if mac else "g++"
                more = "" if device in ("cpu", "mps") else ", and Triton for the device"
                yield finding(
                    "no-compiler", framework=framework, device=device, reason=tried.reason, tool=tool, more=more
                )
    if mac and checkup.facts.env.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") not in ("", "0"):
        yield finding("fallback-on")


# -- the machine ---------------------------------------------------------------------------------
def _few_cores_free(checkup: Checkup) -> bool:
    cores, free = checkup.facts.cores, checkup.free
    if not cores or free is None:
        return False
    return free < LEAST_FREE_SHARE * min(cores, checkup.facts.quota or cores)


def _cores(checkup: Checkup) -> Findings:
    facts, free = checkup.facts, checkup.free
    if not facts.cores:
        return
    if free is not None and _few_cores_free(checkup):
        load = f"; load {digits(facts.load, most=2)}" if facts.load else ""
        yield finding("cores-busy", cores=facts.cores, free=digits(free, most=2), load=load)
    if facts.quota is not None and facts.quota < facts.cores:
        threads = max(1, int(facts.quota))
        yield finding("cpu-quota", cores=facts.cores, quota=digits(facts.quota, most=2), threads=threads)


def best_setting(trial: Trial | None) -> Setting | None:
    """Return the setting that clearly helps most; None if none does.

    Settings come with the mildest first, which changes least: it is taken unless another is clearly better.
    """
    settings = trial.settings if trial else ()
    clear = [setting for setting in settings if setting.gain.low is not None and setting.gain.low > CLEAR_SPEEDUP]
    best = max(clear, key=lambda setting: setting.gain.value, default=None)
    return next((each for each in clear if best and each.gain.value >= (best.gain.low or 0.0)), None)


def _settings(checkup: Checkup) -> Findings:
    for code, trial in (("threads-hurt", checkup.threads), ("allocator-slow", checkup.allocators)):
        best = best_setting(trial)
        if trial is not None and best is not None:
            gain = f"with {best.name} a training step of {trial.workload} was {show_interval(best.gain, 'x')} as fast"
            setting = f"{best.name}{f' (mldyno: {best.option})' if best.option else ''}"
            yield finding(code, threads=trial.threads or "the", framework=trial.framework, gain=gain, setting=setting)


def _conditions(checkup: Checkup) -> Findings:
    """Report states of the machine that warnings judge, too."""
    facts = checkup.facts
    state = State(
        power=facts.power, low_power=facts.low_power, translated=facts.translated, memory=facts.memory,
        slowed_down=bool(facts.throttles), speed_limit=facts.speed_limit, swap_used=facts.swap_used,
        niceness=facts.niceness, cores_allowed=facts.cores, cores_present=facts.cores_present,
    )  # fmt: skip
    yield from (Finding(code, *judged) for code, judged in conditions(state).items())


def _memory(checkup: Checkup) -> Findings:
    facts = checkup.facts
    signs = []
    if facts.memory and facts.available is not None:
        if facts.available < max(LEAST_MEMORY_SHARE * facts.memory, LEAST_MEMORY_B):
            signs.append(f"{show_bytes(facts.available)} of {show_bytes(facts.memory)} left")
    if facts.memory_waits is not None and facts.memory_waits > MOST_MEMORY_WAITS:
        signs.append(f"processes waited for memory in {show_percent(facts.memory_waits)} of the last minute")
    if facts.memory_state in ("warning", "critical"):
        signs.append(f"macOS calls the pressure {facts.memory_state}")
    if signs:
        yield finding("memory-short", signs=", ".join(signs))


def _governor(checkup: Checkup) -> Findings:
    facts = checkup.facts
    if facts.governor == "powersave" and facts.scaling not in STEERED_CLOCKS:
        cure = "sudo cpupower frequency-set -g performance, for as long as you measure"
        yield finding("slow-governor", fault="'s governor is powersave: it keeps the lowest clock", cure=cure)
    elif facts.preference == "power":
        cure = "choose a balanced or performance profile: powerprofilesctl set performance"
        fault = " is set to prefer power over speed (energy_performance_preference)"
        yield finding("slow-governor", fault=fault, cure=cure)


def _noise(checkup: Checkup) -> Findings:
    noise = checkup.noise
    if noise is not None and noise.verdict == "very noisy":
        least = noise.detectable_separate
        separate = "" if least is None else f"; separate runs can detect {show_percent(least)} at best"
        yield finding("noisy", causes=", ".join(causes(noise)), separate=separate)


def _sensors(checkup: Checkup) -> Findings:
    closed = [sensor for sensor in checkup.sensors if sensor.reason]
    for (reason, cure, price), group in grouped(closed, lambda each: (each.reason, each.cure, each.price)).items():
        names = ", ".join(f"{each.name} ({each.scope})" if each.scope else each.name for each in group)
        beware = f"; beware: {price}" if price else ""
        yield finding("sensors-closed", names=names, reason=reason, cure=cure, beware=beware)
    for sensor in checkup.sensors:
        if sensor.error:
            yield finding("sensor-fails", name=sensor.name, scope=sensor.scope, error=sensor.error)


def _store(checkup: Checkup) -> Findings:
    if checkup.store.error:
        yield finding("store-unreadable", error=checkup.store.error)


RULES = (
    _builds, _containers, _drivers, _permissions, _visible_devices, _macs, _tensorflow_on_macs, _frameworks, _features,
    _cores, _settings, _conditions, _memory, _governor, _noise, _sensors, _store,
)  # fmt: skip
