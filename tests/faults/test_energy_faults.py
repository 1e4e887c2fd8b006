"""A worker that does not survive the measuring of energy: the time that was measured before it is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.conftest import wait_for
from tests.hardware.simulated import ONE_PACKAGE, PACKAGE, tree

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

RUN = ("run", "mlp", "--framework", "numpy", "--mode", "infer", "--batch", "1", "--budget", "0.3s", "--repeats", "1")


def has_reader(pipe: Path) -> bool:
    """Whether a process reads from a named pipe; it is left open, so that the reader waits for ever."""
    try:
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # ENXIO: nobody does
        return False
    return True


def test_a_worker_killed_while_energy_is_measured_costs_the_energy_only(dyno: Dyno, tmp_path: Path) -> None:
    sensor = tree(tmp_path / "sys", ONE_PACKAGE) / PACKAGE
    sensor.unlink()
    os.mkfifo(sensor)
    process = dyno.start(*RUN, "--energy", MLDYNO_SYSFS=str(tmp_path / "sys"))
    wait_for(lambda: has_reader(sensor), 60.0, "a look at the sensor")
    (worker,) = (each for each in dyno.living() if "worker/start.py" in " ".join(each.cmdline()))
    worker.kill()
    done = dyno.finish(process)
    (record,) = dyno.records()
    assert done.code == 0
    assert record.status == "ok"
    assert record.values("step_time")
    assert "energy-lost" in [warning.code for warning in record.warnings]
