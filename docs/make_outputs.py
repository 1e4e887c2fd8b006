"""Writes the outputs of the docs anew: runs every block under `<!-- run -->`, and puts what it prints into the page.

A command without an output in the page stays without. Of one whose output begins with `…`, as many of its last
lines are shown as before; an output with `…` within stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- run -->\s*```console\n)(.*?)(```)", re.DOTALL)
MARK = "\x1e"  # parts the outputs of a block's commands
WIDTH = "100"  # columns of a terminal, as in the pages


def outputs(commands: list[str]) -> list[str]:
    """What each of these commands prints, one after the other in one shell and an empty folder."""
    script = "\n".join(part for command in commands for part in (f"printf '{MARK}'", command))
    with tempfile.TemporaryDirectory() as folder:
        settings = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": WIDTH,
                    "MLDYNO_STORE": str(Path(folder, "store.sqlite"))}  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{script}"], cwd=folder, env={**os.environ, **settings}, text=True, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout.replace(folder, ".").split(MARK)[1:]


def renewed(block: str) -> str:
    """A block with its commands' outputs of now."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    commands, before = zip(*(part.split("\n", 1) for part in parts), strict=True)
    lines = []
    for command, shown, output in zip(commands, before, outputs(list(commands)), strict=True):
        old, new = shown.splitlines(), output.splitlines()
        if old[:1] == ["…"]:
            new = ["…", *new[1 - len(old) :]] if len(old) > 1 else old
        lines += [f"$ {command}", *(old if not old or "…" in old[1:] else new)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        new_text = BLOCK.sub(lambda found: f"{found[1]}{renewed(found[2])}{found[3]}", text)
        if new_text != text:
            page.write_text(new_text, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")
