"""Writes the outputs of the docs anew: runs every block under `<!-- run -->`, and puts what it prints into the page.

With `measured`, the blocks under `<!-- measured -->` instead: they measure for real, and those of a page share a store.

A command without an output in the page stays without. Of one whose output begins with `…`, as many of its last
lines are shown as before; an output with `…` within stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = r"(<!-- {} -->\s*```console\n)(.*?)(```)"
MARK = "\x1e"  # parts the outputs of a block's commands
WIDTH = "100"  # columns of a terminal, as in the pages


def outputs(commands: list[str], place: str | None) -> list[str]:
    """What each of these commands prints, one after the other in one shell and a folder, an empty one if None."""
    script = "\n".join(part for command in commands for part in (f"printf '{MARK}'", command))
    with tempfile.TemporaryDirectory() if place is None else nullcontext(place) as folder:
        settings = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": WIDTH,
                    "MLDYNO_STORE": str(Path(folder, "store.sqlite"))}  # fmt: skip
        strict = "set -e" if place is None else ""  # what is measured may end with 3, and says why
        done = subprocess.run(
            ["bash", "-c", f"{strict}\n{script}"], cwd=folder, env={**os.environ, **settings}, text=True,
            check=place is None, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout.replace(folder, ".").split(MARK)[1:]


def renewed(block: str, place: str | None) -> str:
    """A block with its commands' outputs of now."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    commands, before = zip(*(part.split("\n", 1) for part in parts), strict=True)
    lines = []
    for command, shown, output in zip(commands, before, outputs(list(commands), place), strict=True):
        old, new = shown.splitlines(), output.splitlines()
        if old[:1] == ["…"]:
            new = ["…", *new[1 - len(old) :]] if len(old) > 1 else old
        lines += [f"$ {command}", *(old if not old or "…" in old[1:] else new)]
    return "\n".join(lines) + "\n"


def renewed_page(text: str, kind: str) -> str:
    """A page with the outputs of now in its blocks of a kind."""
    with tempfile.TemporaryDirectory() as folder:
        place = folder if kind == "measured" else None
        blocks = re.compile(BLOCK.format(kind), re.DOTALL)
        return blocks.sub(lambda block: f"{block[1]}{renewed(block[2], place)}{block[3]}", text)


if __name__ == "__main__":
    kind, *names = sys.argv[1:] or ["run"]
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if names and page.name not in names:
            continue
        text = page.read_text(encoding="utf-8")
        new_text = renewed_page(text, kind)
        if new_text != text:
            page.write_text(new_text, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")
