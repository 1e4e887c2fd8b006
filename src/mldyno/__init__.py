"""mldyno: a dynamometer for deep-learning machines.

import mldyno
results = mldyno.run("mlp", device=["cpu"], precision=["fp32", "bf16"])
results.compare(by="precision")
mldyno.measure(step)
for batch in mldyno.track(loader): ...
mldyno.quick()

What is named here is loaded when it is first used, so that `import mldyno` costs nothing.
"""

import typing as _typing

__version__ = "0.2.0"

__all__ = [  # noqa: F405
    "__version__", "check", "compare", "crossover", "max_batch", "measure", "quick", "report", "run", "table", "track",
]  # fmt: skip

if _typing.TYPE_CHECKING:
    from mldyno.api import *  # noqa: F403
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'mldyno' has no attribute {name!r}")
        from importlib import import_module  # by its name: whoever asks this package for its version needs no api

        # What runs within a user's training loads nothing that only measures or compares.
        return getattr(import_module("mldyno.tracking.tracker" if name == "track" else "mldyno.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)  # and not the modules that were imported from it meanwhile
