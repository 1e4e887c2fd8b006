"""Puts the simulated accelerator into any Python that has this folder on its PYTHONPATH."""

import os

if "MLDYNO_SIM" in os.environ:
    import simulated_device  # type: ignore[import-not-found]

    KEPT = simulated_device.install()
