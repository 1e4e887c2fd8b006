"""Keeps what this version of mldyno writes, for all later ones to read: `python tests/history/keep.py STORE FOLDER`.

Beside the files of the store go the answers that this version gives from it. `test_history.py` holds every
later version against them. Where a later one works times and intervals out in another way on purpose, as those about
the next process, just these figures of the answers are replaced.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SUITE = """# everything that a suite file can say
include = ["roof"]
repeats = 2
timeout = "5m"
budget = "3s"
target = "5%"
data = "synthetic"

[[cases]]
workload = ["mlp", "mnist-mlp"]
mode = "train"
batch = [16, 64]
precision = ["fp32", "amp-bf16"]
placement = ["device", "roundtrip"]
threads = 1
workers = 1
compile = false

[[cases]]
workload = "bert-tiny"
mode = ["train", "infer"]
seq = [32, 64]

[[exclude]]
workload = "mlp"
batch = 64
precision = "amp-bf16"
"""
TABLES = {
    "step": (),
    "throughput": ("--value", "throughput"),
    "first step": ("--value", "first_step"),
    "peak memory": ("--value", "peak_memory"),
    "a hundred steps": ("mlp", "--value", "time:100steps"),
    "phases of a step": ("gpt2", "--value", "decode_time"),
    "speed-up": ("mlp", "--by", "precision"),
    "share of the peak": ("torch", "--value", "roof"),
}
COMPARISONS = {
    "precision": ("mlp", "--by", "precision"),
    "device": ("mlp", "--by", "device"),
    "threads": ("mlp", "--by", "threads"),
    "placement": ("mlp", "--by", "placement"),
    "machine": ("mlp/infer/b16", "Some Desktop", "--anyway"),
}


def asked(store: Path, *arguments: str) -> Any:
    """What a command answers from a store, as data."""
    done = subprocess.run(
        [sys.executable, "-m", "mldyno", *arguments, "--store", str(store), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def answers(store: Path) -> dict[str, Any]:
    """The tables and comparisons that a version makes of a store."""
    return {
        "tables": {name: asked(store, "table", *words) for name, words in TABLES.items()},
        "comparisons": {name: asked(store, "compare", *words) for name, words in COMPARISONS.items()},
        "history": asked(store, "history", "--most", "1000")["records"],
    }


def keep(store: Path, folder: Path) -> None:
    """Write all kinds of files that there are, and the answers, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(store, folder / "store.sqlite")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    mldyno = [sys.executable, "-m", "mldyno"]
    at = ["--store", str(store)]
    for words in (
        ["export", str(folder / "records.jsonl"), *at],
        ["export", str(folder / "figures.csv"), "--format", "csv", *at],
        ["report", "--out", str(folder / "report.html"), *at],
    ):
        subprocess.run([*mldyno, *words], check=True, capture_output=True)
    plan = asked(store, "run", str(folder / "suite.toml"), "--dry-run")
    content = {**answers(store), "plan": [case["id"] for case in plan["cases"]]}
    (folder / "answers.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
