"""The virtual environments of the peers: one each, under `.peers`, made once and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.tools import ROOT, say

PLACE = ROOT / ".peers"
TORCH = "torch==2.13.0"
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "torch": (TORCH,),
    "pyperf": (TORCH, "pyperf==2.9.0"),
    "optimum": (
        TORCH, "optimum-benchmark==0.6.0", "transformers==4.57.6", "huggingface-hub<1", "datasets>=4,<4.5",
        "accelerate<1.13",
    ),
}  # fmt: skip
SHOWN = ("torch", "pyperf", "optimum-benchmark", "transformers", "accelerate", "datasets", "numpy")


def commands(name: str) -> list[list[str]]:
    """What makes an environment, as anybody could type it."""
    folder = f".peers/{name}"
    return [["python", "-m", "venv", folder], [f"{folder}/bin/pip", "install", *REQUIREMENTS[name]]]


def binaries(name: str) -> Path:
    """The folder of an environment's programs; `mldyno` is the one that runs this bench."""
    return Path(sys.executable).parent if name == "mldyno" else PLACE / name / "bin"


def ready(names: Sequence[str]) -> None:
    """Make what is missing, or was made from other requirements; pip's own settings apply."""
    for name in names:
        if name in REQUIREMENTS:
            _ready(name)
    if "optimum" in names and not (PLACE / "models" / "bert-tiny" / "config.json").exists():
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        save = [str(binaries("optimum") / "python"), "-m", "bench.peers.optimum", "save"]
        subprocess.run(save, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths})


def _ready(name: str) -> None:
    stamp = PLACE / name / "requirements.json"
    wanted = json.dumps(REQUIREMENTS[name])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    say(f"making the environment {name}: {', '.join(REQUIREMENTS[name])}")
    PLACE.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE / name)], check=True)
    pip = [str(binaries(name) / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", *REQUIREMENTS[name]], check=True)
    stamp.write_text(wanted, encoding="utf-8")


def versions(name: str) -> dict[str, str]:
    """The versions in an environment of what matters."""
    list_all = [str(binaries(name) / "python"), "-m", "pip", "--disable-pip-version-check", "list", "--format=json"]
    done = subprocess.run(list_all, capture_output=True, text=True, check=True)
    found = {one["name"].lower(): one["version"] for one in json.loads(done.stdout)}
    return {package: found[package] for package in SHOWN if package in found}
