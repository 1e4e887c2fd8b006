"""Keras's own fit, with the callback, on each of its backends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tracking.programs import ran, stored, written

from mldyno.store import Store

PROGRAM = """
    import keras
    import numpy

    from mldyno.callbacks import KerasTracker

    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = numpy.random.rand(160, 16), numpy.random.randint(0, 2, 160)
    tracker = KerasTracker(name="keras", items=8, item="row")
    model.fit(x, y, batch_size=8, epochs=3, validation_split=0.1, callbacks=[tracker], verbose=0)
"""


@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_the_steps_of_fit_are_tracked_and_validation_stands_apart(store: Store, tmp_path: Path, backend: str) -> None:
    done = ran(str(written(tmp_path, PROGRAM)), KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mldyno: keras: ") == 1
    (record,) = stored(store)
    assert record.case.id == "keras/tracked/cpu"
    assert (record.fact("items_per_step"), record.fact("item")) == (8, "row")
    values = [part for part in record.series if part.metric == "step_time"]
    assert sum(part.block * len(part.values) for part in values) <= 54
    assert len(record.values("apart_time", "apart")) == 2  # between three epochs
    assert any(record.values("data_wait", None)) == (backend == "torch"), "others fetch within the step"
    assert {"keras", backend} <= set(record.software.versions)
