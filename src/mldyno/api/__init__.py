"""The functions behind the commands, and what a notebook gets as `mldyno.run` and so on.

import mldyno
results = mldyno.run("mlp", device="cpu", placement=["device", "roundtrip"])
results.compare(by="placement")

Rule: a function's file is imported when the function is first used, so that reading loads nothing that measures.
Which file defines a name is read from the files.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mldyno.api.examining import *  # noqa: F403
    from mldyno.api.fleet import *  # noqa: F403
    from mldyno.api.reading import *  # noqa: F403
    from mldyno.api.running import *  # noqa: F403
    from mldyno.api.sharing import *  # noqa: F403
    from mldyno.api.team import *  # noqa: F403
    from mldyno.tracking.tracker import track as track
else:

    def __getattr__(name):
        module = _modules().get(name)
        if module is None:
            raise AttributeError(f"module 'mldyno.api' has no attribute {name!r}")
        return getattr(import_module(module), name)


@cache
def _modules() -> dict[str, str]:
    """Return the module that defines each public function or class."""
    modules = {"track": "mldyno.tracking.tracker"}
    folder = os.path.dirname(__file__)
    for file in os.listdir(folder):
        if file.endswith(".py"):
            with open(os.path.join(folder, file), encoding="utf-8") as source:
                names = re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", source.read(), re.MULTILINE)
            modules |= dict.fromkeys(names, f"mldyno.api.{file[:-3]}")
    return modules
