"""Suites: those that ship with the product, one TOML file each, and a user's own, which `suites.reader` reads."""

from __future__ import annotations

import os

FOLDER = os.path.dirname(__file__)
RENAMED = {"roof": "roofline"}  # suites that had another name; files that include them are read for ever


def names() -> list[str]:
    """Return the names of the suites that ship with the product."""
    return sorted(name[: -len(".toml")] for name in os.listdir(FOLDER) if name.endswith(".toml"))


def title(name: str) -> str:
    """Return the title of a shipped suite: the first comment of its file."""
    with open(os.path.join(FOLDER, f"{name}.toml"), encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip()


def is_suite(word: str) -> bool:
    """Return whether a word is the name of a shipped suite, current or renamed, or the path of any."""
    return word.endswith(".toml") or RENAMED.get(word, word) in names()
