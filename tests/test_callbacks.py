"""A callback's package is imported when the callback is named, and none before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mldyno.callbacks


def test_naming_none_imports_none() -> None:
    code = "import sys, mldyno.callbacks; print([n for n in ('keras', 'torch', 'transformers') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_unknown_one_is_no_attribute() -> None:
    assert {"KerasTracker", "LightningTracker", "TransformersTracker"} <= set(dir(mldyno.callbacks))
    with pytest.raises(AttributeError, match="no attribute 'FluxTracker'"):
        _ = mldyno.callbacks.FluxTracker
