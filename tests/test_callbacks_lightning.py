"""Lightning's own Trainer, with the callback."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tracking.programs import ran, stored, written

from mldyno.store import Store

PROGRAM = """
    import torch
    import {package} as lightning
    from torch.utils.data import DataLoader, TensorDataset

    from mldyno.callbacks import LightningTracker


    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(16, 2)

        def training_step(self, batch, index):
            x, y = batch
            return torch.nn.functional.cross_entropy(self.layer(x), y)

        def validation_step(self, batch, index):
            self.training_step(batch, index)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)


    loader = DataLoader(TensorDataset(torch.randn(160, 16), torch.randint(0, 2, (160,))), batch_size=8)
    tracker = LightningTracker(name="lightning")
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, callbacks=[tracker], logger=False, enable_progress_bar=False,
        enable_model_summary=False, {settings}
    )
    trainer.fit(Model(), loader, loader)
"""


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_the_trainers_steps_are_tracked_and_validation_stands_apart(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ran(str(written(tmp_path, PROGRAM.replace("{package}", package).replace("{settings}", ""))))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mldyno: lightning: ") == 1
    (record,) = stored(store)
    assert record.case.id == "lightning/tracked/cpu"
    assert record.fact("items_per_step") == 8
    values = [part for part in record.series if part.metric == "step_time"]
    assert sum(part.block * len(part.values) for part in values) <= 60
    assert len(record.values("apart_time", "apart")) == 2  # between three epochs
    assert sum(record.values("data_wait", None)) > 0


def test_gradients_that_are_gathered_and_validation_within_an_epoch(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = "accumulate_grad_batches=2, val_check_interval=5, num_sanity_val_steps=2"
    program = PROGRAM.replace("{package}", "lightning.pytorch").replace("{settings}", settings)
    done = ran(str(written(tmp_path, program)))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mldyno: lightning: ") == 1
    (record,) = stored(store)
    assert record.fact("items_per_step") == 8, "a step is a batch, however many of them make an update"
    values = [part for part in record.series if part.metric == "step_time"]
    assert 30 <= sum(part.block * len(part.values) for part in values) <= 60
    pauses = record.values("apart_time", "apart")
    assert len(pauses) == 11, "four validations in each of three epochs; the last one is followed by no step"
    assert "; 11 pauses for other work, " in done.stderr
