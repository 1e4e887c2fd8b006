"""What a framework says of itself in a separate process, asked once in a whole run of the tests.

Several frameworks in one process fight for threads, and some crash. What one process of the tests has asked for, the
others read from a file.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mldyno.records import Case
from mldyno.worker.client import settings_of

# JAX's compiler finds the same numbers in a third of the time.
FLAGS = ("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false",
         "--xla_cpu_parallel_codegen_split_count=1")  # fmt: skip
FASTER = {"jax": {"XLA_FLAGS": " ".join(FLAGS)}}
shared: list[Path] = []  # the folder of this run, which all processes of the tests see


@functools.cache
def facts_of(script: Path, framework: str) -> dict[str, Any]:
    """Run a script with the words FRAMEWORK FOLDER; return the JSON in its last line."""
    kept = shared[0] / f"{script.stem}-{framework}.json"
    with open(kept.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(_run(script, framework))
    facts: dict[str, Any] = json.loads(kept.read_text())
    return facts


def _run(script: Path, framework: str) -> str:
    imports = {"PYTHONPATH": str(Path(__file__).parents[1])}
    environment = os.environ | imports | FASTER.get(framework, {}) | settings_of(Case("mlp", framework=framework))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(script), framework, folder]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout.splitlines()[-1]
