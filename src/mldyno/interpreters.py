"""Other Python interpreters for workers: their names in cases, and their paths.

A case names an interpreter by its version and frameworks, never by its path: the name means the same in every record,
and reveals no folder. Only this process knows the path.
Rules: standard library only. `name_of` starts a program, so it gets only paths that the user gave or trusts.
"""

from __future__ import annotations

import re

from mldyno.axes import INTERPRETER_NAME
from mldyno.errors import UsageError

OLDEST = (3, 10)
ANSWER_TIMEOUT_S = 60.0
LONGEST_INTERPRETER_NAME = 120  # characters
PACKAGES = ("torch", "tensorflow", "jax", "mlx", "onnxruntime", "openvino")
QUESTION = f"""
import json, sys
from importlib import metadata
versions = {{}}
for name in {PACKAGES}:
    for package in (name, name + "-cpu", name + "-gpu"):
        try:
            versions.setdefault(name, metadata.version(package))
        except metadata.PackageNotFoundError:
            pass
print(json.dumps([list(sys.version_info[:3]), versions]))
"""
_PATHS: dict[str, str] = {}
_VERSIONS: dict[str, tuple[str, dict[str, str]]] = {}  # of Python and of each framework, by an interpreter's name


def name_of(text: str) -> str:
    """Return the name of the interpreter at a path, such as 3.11.7+jax0.10.2, by starting it; or the name given."""
    import shutil  # imported late: every command imports this module

    if INTERPRETER_NAME.fullmatch(text):
        return text
    path = shutil.which(text)
    if path is None:
        raise UsageError(f"there is no interpreter '{text}'; name the path of one, such as .venv/bin/python.")
    version, frameworks = _ask(path)
    if tuple(version) < OLDEST:
        shown, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        raise UsageError(f"{text} is Python {shown}; a worker needs {oldest} or newer.")
    python = ".".join(map(str, version))
    name = _name(python, *(f"{framework}{frameworks[framework]}" for framework in sorted(frameworks)))
    _PATHS[name], _VERSIONS[name] = path, (python, frameworks)
    return name


def _name(*parts: str) -> str:
    return re.sub(r"[^0-9A-Za-z.+-]", "-", "+".join(parts))[:LONGEST_INTERPRETER_NAME]


def name_for(name: str, framework: str) -> str:
    """Return the name of an interpreter in cases of a framework: without other frameworks, if that is unique."""
    if name not in _VERSIONS:
        return name
    version, frameworks = _VERSIONS[name]
    short = _name(version, *([f"{framework}{frameworks[framework]}"] if framework in frameworks else []))
    if _PATHS.setdefault(short, _PATHS[name]) != _PATHS[name]:
        return name
    return short


def path_of(name: str) -> str | None:
    """Return the path of an interpreter; None if unknown."""
    return _PATHS.get(name)


def _ask(path: str) -> tuple[list[int], dict[str, str]]:
    """Return the version of an interpreter, and those of its frameworks."""
    import json
    import subprocess

    command = [path, "-I", "-c", QUESTION]
    try:
        said = subprocess.run(command, capture_output=True, timeout=ANSWER_TIMEOUT_S, check=True, text=True).stdout
        version, frameworks = json.loads(said)
        return [int(number) for number in version], {str(name): str(value) for name, value in frameworks.items()}
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        raise UsageError(f"{path} does not answer as an interpreter of Python 3 does; name another one.") from None
