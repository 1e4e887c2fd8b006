"""Puts the simulated accelerator into any Python that has this folder on its PYTHONPATH."""

import os
from contextlib import suppress

if "MLDYNO_SIM" in os.environ:
    import simulated_device  # type: ignore[import-not-found]

    simulated_device.install()
    with suppress(ImportError):  # in a worker, which asks for no kinds of devices
        from mldyno import axes

        axes.DEVICE_KINDS += ("sim",)
