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
        from importlib import import_module, util  # by name: whoever asks this package for its version needs no api

        if name not in __all__:
            # A module of this package, such as in `from mldyno import axes`, is no word of the api.
            elsewhere = name.startswith("_") or util.find_spec(f"mldyno.{name}") is not None
            public = not elsewhere and hasattr(import_module("mldyno.api"), name)
            hint = f"; `from mldyno import api` has it: api.{name}" if public else ""
            raise AttributeError(f"module 'mldyno' has no attribute {name!r}{hint}")
        # What runs within a user's training loads nothing that only measures or compares.
        return getattr(import_module("mldyno.tracking.tracker" if name == "track" else "mldyno.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)  # and not the modules that were imported from it meanwhile
