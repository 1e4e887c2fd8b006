"""Run the examples of the docs: every block under `<!-- run -->`, and put what its commands print into the page.

With `measured`, run the blocks under `<!-- measured -->` instead: they measure for real, and those of a page share a
store. tests/test_docs.py compares the blocks under `<!-- run -->` with what they print, with numbers masked.

A command without an output in the page stays without. Of one whose output begins with `…`, as many of its last
lines are shown as before. An output with `…` further down stays as it is, if that is still printed.
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
CUT = "…"  # a line in place of lines that the page omits
MARK = "\x1e"  # separates the outputs of a block's commands
WIDTH = "100"  # columns of a terminal, as in the pages
MACHINE = "AMD EPYC, 2 cores, 24 GB"  # in examples that measure nothing, whatever machine runs them
BIN = Path(sys.executable).parent  # where the command `mldyno` is
VARIABLE = (  # what differs from one run or machine to the next, and what is compared instead
    (r"\b(\d{8}T\d{6}-[0-9a-f]{6}|[0-9a-f]{8,64})\b", "#"),  # ids and hashes
    (r"\b\d{4}-\d\d-\d\d([T ][\d:.]+Z?)?", "#"),  # dates
    (r"\d[\d.,]*( ?([numk]s|µs|s|min|h|[KMGTkmg]i?B|B|[kMGT]?Hz|[mk]?[WJ])\b)?", "#"),  # numbers with their units
    (r"#( ?#)+", "#"),  # 1 min 20 s
    (r"[─-]{3,}", ""),  # rules below the heads of tables
    (r", virtual machine,", ","),
)


def pages() -> list[Path]:
    """Return the pages that may have examples."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, kind: str = "run") -> list[str]:
    """Return the examples of a kind in a page, each with its commands and their outputs."""
    return [block for _, block, _ in re.findall(BLOCK.format(kind), text, re.DOTALL)]


def masked(block: str) -> list[str]:
    """Return the words of an example without what differs from run to run; longer numbers wrap lines elsewhere."""
    block = " ".join(block.split())
    for pattern, mask in VARIABLE:
        block = re.sub(pattern, mask, block)
    return block.split()


def outputs(commands: list[str], place: str | None) -> list[str]:
    """Return what each of these commands prints, run in one shell in a folder; an empty one if None."""
    script = "\n".join(part for command in commands for part in (f"printf '{MARK}'", command))
    with tempfile.TemporaryDirectory() if place is None else nullcontext(place) as folder:
        settings = {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": WIDTH,
                    "MLDYNO_STORE": str(Path(folder, "store.sqlite")),
                    **({"MLDYNO_MACHINE": MACHINE} if place is None else {})}  # fmt: skip
        strict = "set -e" if place is None else ""  # what is measured may end with 3, and says why
        done = subprocess.run(
            ["bash", "-c", f"{strict}\n{script}"], cwd=folder, env={**os.environ, **settings}, text=True,
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if place is None and done.returncode:
            raise RuntimeError(f"exit code {done.returncode} of {commands}:\n{done.stdout}")
        return done.stdout.replace(folder, ".").split(MARK)[1:]


def renewed(block: str, place: str | None = None) -> str:
    """Return an example with what its commands print now."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    commands, before = zip(*(part.split("\n", 1) for part in parts), strict=True)
    lines = []
    for command, shown, output in zip(commands, before, outputs(list(commands), place), strict=True):
        old, new = shown.splitlines(), output.splitlines()
        if old[:1] == [CUT] and CUT not in old[1:]:
            new = [CUT, *new[1 - len(old) :]] if len(old) > 1 else old
        as_before = not old or (CUT in old[1:] and (place is not None or _shows(old, output)))
        lines += [f"$ {command}", *(old if as_before else new)]
    return "\n".join(lines) + "\n"


def _shows(shown: list[str], output: str) -> bool:
    """Return whether lines of a page, some of them `…`, are an output with parts omitted."""
    words = (r"(\S+ )*" if word == CUT else re.escape(f"{word} ") for word in masked("\n".join(shown)))
    return re.fullmatch("".join(words), "".join(f"{word} " for word in masked(output))) is not None


def renewed_page(text: str, kind: str) -> str:
    """Return a page with its examples of a kind renewed."""
    with tempfile.TemporaryDirectory() as folder:
        place = folder if kind == "measured" else None
        pattern = re.compile(BLOCK.format(kind), re.DOTALL)
        return pattern.sub(lambda block: f"{block[1]}{renewed(block[2], place)}{block[3]}", text)


if __name__ == "__main__":
    kind, *names = sys.argv[1:] or ["run"]
    for page in pages():
        if names and page.name not in names:
            continue
        text = page.read_text(encoding="utf-8")
        new_text = renewed_page(text, kind)
        if new_text != text:
            page.write_text(new_text, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")
