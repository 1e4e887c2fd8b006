"""Other interpreters of Python, in which workers can run: what they are called in cases, and where they are.

A case names an interpreter by its version and the frameworks that it has, never by its path: so it means the same in
every record, and tells nothing of anybody's folders. Where it is, only this process knows, from what it was told.
Rules: standard library only. Only a path that the user gave, or trusts, reaches `name_of`, which starts that program.
"""

from __future__ import annotations

import re

from mldyno.errors import UsageError

OLDEST = (3, 10)
ANSWER_TIMEOUT_S = 60.0
LONGEST_NAME = 120  # characters
PACKAGES = ("torch", "tensorflow", "jax", "mlx", "onnxruntime", "openvino")
NAME = re.compile(r"3\.[0-9]+\.[0-9][0-9A-Za-z.+-]*")
"""Of an interpreter, as `name_of` gives it."""
ASK = f"""
import json, sys
from importlib import metadata
found = {{}}
for name in {PACKAGES}:
    for package in (name, name + "-cpu", name + "-gpu"):
        try:
            found.setdefault(name, metadata.version(package))
        except metadata.PackageNotFoundError:
            pass
print(json.dumps([list(sys.version_info[:3]), found]))
"""
_PATHS: dict[str, str] = {}
_VERSIONS: dict[str, tuple[str, dict[str, str]]] = {}  # of Python, and of each framework, by an interpreter's name


def name_of(text: str) -> str:
    """Ask the interpreter at a path what it is, and return its name, such as 3.11.7+jax0.10.2; keep a name as it is."""
    import shutil  # only for whoever names an interpreter: every command imports this module

    if NAME.fullmatch(text):
        return text
    path = shutil.which(text)
    if path is None:
        raise UsageError(f"there is no interpreter '{text}'; name the path of one, such as .venv/bin/python.")
    version, frameworks = _asked(path)
    if tuple(version) < OLDEST:
        is_, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        raise UsageError(f"{text} is Python {is_}; a worker needs {oldest} or newer.")
    own = ".".join(map(str, version))
    name = _name(own, *(f"{each}{frameworks[each]}" for each in sorted(frameworks)))
    _PATHS[name], _VERSIONS[name] = path, (own, frameworks)
    return name


def _name(*parts: str) -> str:
    return re.sub(r"[^0-9A-Za-z.+-]", "-", "+".join(parts))[:LONGEST_NAME]


def name_for(name: str, framework: str) -> str:
    """What an interpreter is called in the cases of a framework: without the others, where that tells it apart."""
    if name not in _VERSIONS:
        return name
    version, frameworks = _VERSIONS[name]
    short = _name(version, *([f"{framework}{frameworks[framework]}"] if framework in frameworks else []))
    if _PATHS.setdefault(short, _PATHS[name]) != _PATHS[name]:
        return name
    return short


def path_of(name: str) -> str | None:
    """Where an interpreter is; None where this process was not told."""
    return _PATHS.get(name)


def _asked(path: str) -> tuple[list[int], dict[str, str]]:
    """The version of an interpreter, and those of its frameworks."""
    import json
    import subprocess

    command = [path, "-I", "-c", ASK]
    try:
        said = subprocess.run(command, capture_output=True, timeout=ANSWER_TIMEOUT_S, check=True, text=True).stdout
        version, frameworks = json.loads(said)
        return [int(number) for number in version], {str(name): str(value) for name, value in frameworks.items()}
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        raise UsageError(f"{path} does not answer as an interpreter of Python 3 does; name another one.") from None
