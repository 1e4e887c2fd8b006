"""Why a GPU that is there is not used: pure functions over the facts, each with its cause and its cure.

A rule gives pairs of message and cure, none where it does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mldyno.analysis.symptoms import Checkup, Facts, Gpu, Installed

Causes = Iterator[tuple[str, str]]

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


RULES: dict[str, Callable[[Checkup], Causes]] = {
    "cpu-only-build": cpu_only_build, "other-build": other_build,
    "container-without-gpu": container_without_gpu, "no-driver": no_driver, "driver-fails": driver_fails,
    "driver-too-old": driver_too_old, "no-permission": no_permission, "visible-devices": visible_devices,
    "old-macos": old_macos, "mps-unavailable": mps_unavailable, "no-tensorflow-metal": tensorflow_metal,
}  # fmt: skip


def unexplained(checkup: Checkup) -> Causes:
    """A GPU that is there and not used, for none of the reasons above."""
    known = any(list(rule(checkup)) for code, rule in RULES.items() if code != "no-tensorflow-metal")
    if known or checkup.facts.translated:
        return
    for framework, gpu in unused(checkup):
        reason = framework.support.get("reason")
        yield (
            f"{framework.name} does not find the GPU ({gpu.name}){f': {reason}' if reason else ''}",
            "see if the vendor's own tool finds it (nvidia-smi, rocminfo, xpu-smi); then install the framework anew",
        )
