"""Which files execute code in each of six flows: what a newcomer opens to follow them. Into bench/FLOWS.md.

A file counts when a function of it runs outside of imports, in the command itself or in a process that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mldyno

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(mldyno.__file__).resolve().parent
PAGE = ROOT / "bench" / "FLOWS.md"
TRACE_FILE, TRACED_PACKAGE = "MLDYNO_TRACE_FILE", "MLDYNO_TRACED_PACKAGE"

TRACER = f'''
import os, sys, threading

PACKAGE = os.environ["{TRACED_PACKAGE}"] + os.sep
OUT = os.open(os.environ["{TRACE_FILE}"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
FUNCTION = 0x1  # CO_OPTIMIZED: bodies of functions have it, those of classes and modules have not
known = set()


def imports(frame):
    """Return whether a module of the package is being imported."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(PACKAGE):
            if frame.f_globals.get("__name__") != "__main__":
                return True
        frame = frame.f_back
    return False


def note(frame, event, argument):
    if event != "call":
        return
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE):
        return
    module = code.co_name == "<module>"
    line = ("module " if module else "function ") + code.co_filename[len(PACKAGE):] + "\\n"
    if line in known or not (module or code.co_flags & FUNCTION and not imports(frame.f_back)):
        return
    known.add(line)
    os.write(OUT, f"{{os.getpid()}} {{line}}".encode())


threading.setprofile(note)
sys.setprofile(note)
'''

MODEL = """
import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    return model, torch.randn(32, 64), torch.randint(8, (32,)), nn.functional.cross_entropy
"""
LOOP = """
import mldyno, torch

loader = [torch.randn(8, 16) for _ in range(300)]
layer = torch.nn.Linear(16, 16)
for batch in mldyno.track(loader, name="loop"):
    layer(batch).sum().backward()
"""


@dataclass(frozen=True)
class Flow:
    """One thing that a user does, and the most files that following it may take."""

    title: str
    words: tuple[str, ...]
    most_files: int
    most_modules: int | None = None
    """Of ours that the first process may import."""
    prepared: tuple[tuple[str, ...], ...] = ()
    """Commands that come first and are not traced."""


DYNO = (sys.executable, "-m", "mldyno")
SHORT = ("--budget", "1s", "--repeats", "1")
FLOWS = (
    Flow("run mlp --precision fp32,bf16", (*DYNO, "run", "mlp", "--precision", "fp32,bf16", *SHORT), 25),
    Flow("quick", (*DYNO, "quick", "--budget", "1s", "--limit", "15s"), 30),
    Flow(
        "run my_model.py --against HEAD", (*DYNO, "run", "my_model.py", "--against", "HEAD", "--budget", "2s"), 30,
        prepared=(
            ("git", "init", "-q"), ("git", "add", "my_model.py"),
            ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "A model"),
            ("sed", "-i", "s/64, 8/64, 9/", "my_model.py"),
        ),
    ),
    Flow("run mnist-mlp --ranks 1,2", (*DYNO, "run", "mnist-mlp", "--ranks", "1,2", *SHORT), 30),
    Flow(
        "table bert-base", (*DYNO, "table", "bert-base"), 12, 60,
        prepared=((*DYNO, "run", "bert-base", "--framework", "fake", *SHORT),),
    ),
    Flow("track(loader)", (sys.executable, "loop.py"), 12, 40),
)  # fmt: skip


@dataclass(frozen=True)
class Followed:
    """The files that a flow executed, and how many of our modules its first process imported."""

    files: Sequence[str]
    modules: int


def follow(flow: Flow) -> Followed:
    """Run a flow in an empty folder with an empty store."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tracer").mkdir()
        (folder / "tracer" / "sitecustomize.py").write_text(TRACER)
        (folder / "my_model.py").write_text(MODEL)
        (folder / "loop.py").write_text(LOOP)
        plain = {**os.environ, "MLDYNO_STORE": str(folder / "store.sqlite")}
        for words in flow.prepared:
            _run(words, folder, plain)
        trace = folder / "trace"
        process = _run(flow.words, folder, {
            **plain, TRACE_FILE: str(trace), TRACED_PACKAGE: str(PACKAGE), "PYTHONPATH": str(folder / "tracer"),
        })  # fmt: skip
        lines = [line.split(" ", 2) for line in trace.read_text().splitlines()]
        files = sorted({file for _, kind, file in lines if kind == "function"})
        modules = {file for pid, kind, file in lines if kind == "module" and int(pid) == process}
        return Followed(files, len(modules))


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Run a command that must succeed; return the number of its process."""
    process = subprocess.Popen(
        words, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = process.communicate()
    if process.returncode not in (0, 3):  # 3: a case that did not settle is followed all the same
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{output}")
    return process.pid


def main() -> int:
    """Follow the flows; the exit code is 1 where one takes more files or modules than it may."""
    rows, lists, exceeded = [], [], False
    for flow in FLOWS:
        followed = follow(flow)
        exceeded |= len(followed.files) > flow.most_files
        exceeded |= flow.most_modules is not None and followed.modules > flow.most_modules
        rows.append(
            f"| `{flow.title}` | {len(followed.files)} | {flow.most_files} | {followed.modules} | "
            f"{flow.most_modules or ''} |"
        )
        lists.append(f"## `{flow.title}`\n\n" + "\n".join(f"- `{file}`" for file in followed.files))
        print(rows[-1], flush=True)
    sources = list(PACKAGE.rglob("*.py"))
    size = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources)
    head = (
        f"# Files to follow a run\n\n`make flows` wrote this page. `src` has {size:,} lines in {len(sources)} files.\n"
    )
    table = "| flow | files | at most | modules imported | at most |\n|---|---:|---:|---:|---:|\n" + "\n".join(rows)
    PAGE.write_text("\n\n".join([f"{head}\n{__doc__}".strip(), table, *lists]) + "\n", encoding="utf-8")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
