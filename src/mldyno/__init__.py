"""mldyno: a dynamometer for deep-learning machines.

import mldyno
results = mldyno.run("mlp", device=["cpu"], precision=["fp32", "bf16"])
results.compare(by="precision")
mldyno.measure(step)

What is named here is loaded when it is first used, so that `import mldyno` costs nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
VERBS = ("run", "compare", "table", "crossover", "max_batch", "measure", "report")

if TYPE_CHECKING:
    from mldyno.api import compare, crossover, max_batch, measure, report, run, table

__all__ = ["__version__", "compare", "crossover", "max_batch", "measure", "report", "run", "table"]


class _Package(ModuleType):
    """This package: its verbs are functions, also `measure`, which is the name of a folder too."""

    def __getattr__(self, name: str) -> Any:
        if name not in VERBS:
            raise AttributeError(f"module 'mldyno' has no attribute {name!r}")
        from importlib import import_module  # by its name: whoever asks this package for its version needs no api

        return getattr(import_module("mldyno.api"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "measure" and isinstance(value, ModuleType):  # the import system, which puts the folder here
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *VERBS})


sys.modules[__name__].__class__ = _Package
