"""Builds all pages as a site with search: copies them, and what they link to, into one folder, and runs MkDocs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("*.md", "LICENSE", "docs/**/*", "bench/**/*.md", "bench/**/*.py", "tests/**/*.py", ".github/**/*")


def build(folder: Path) -> Path:
    """Build the site in a folder; return where its first page is. Raise where a link or the list of pages is wrong."""
    pages, site = folder / "pages", folder / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    for path in (path for part in PARTS for path in ROOT.glob(part) if path.is_file()):
        copy = pages / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (folder / "mkdocs.yml").write_text(settings.replace("build/", ""), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", "mkdocs.yml"]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return site / "index.html"


if __name__ == "__main__":
    (ROOT / "build").mkdir(exist_ok=True)
    sys.stdout.write(f"{build(ROOT / 'build')}\n")
