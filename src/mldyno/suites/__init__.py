"""The suites that ship with the product, one TOML file each, and the reader for a user's own."""

from __future__ import annotations

import os
from typing import Any

from mldyno.errors import MldynoError, UsageError, unknown

FOLDER = os.path.dirname(__file__)
KEYS = ("cases", "budget", "target", "repeats")


def names() -> list[str]:
    """The suites that ship with the product."""
    return sorted(name[: -len(".toml")] for name in os.listdir(FOLDER) if name.endswith(".toml"))


def title(name: str) -> str:
    """What a shipped suite is: the comment that its file begins with."""
    with open(os.path.join(FOLDER, f"{name}.toml"), encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip()


def read(name: str) -> dict[str, Any]:
    """A suite by its name, or by the path of a TOML file; its keys are checked."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    path = name if name.endswith(".toml") else os.path.join(FOLDER, f"{name}.toml")
    file = os.path.basename(path)
    try:
        with open(path, "rb") as source:
            content = tomllib.load(source)
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MldynoError(f"{path}: not TOML: {error}.") from None
    for key in content:
        if key not in KEYS:
            raise unknown(f"key in suite {file}", key, KEYS)
    cases = content.get("cases")
    if not isinstance(cases, list) or not cases or not all(isinstance(one, dict) for one in cases):
        raise UsageError(f"suite {file}: it needs at least one [[cases]] table.")
    return content
