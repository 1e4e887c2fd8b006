"""Hugging Face's own Trainer, with the callback."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tracking.programs import ran, stored, written

from mldyno.store import Store

PROGRAM = """
    import torch
    from transformers import Trainer, TrainingArguments

    from mldyno.callbacks import TransformersTracker


    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(16, 2)

        def forward(self, x, labels):
            logits = self.layer(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


    data = [{"x": torch.randn(16), "labels": torch.tensor(place % 2)} for place in range(160)]
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=3, report_to=[],
        disable_tqdm=True, use_cpu=True, save_strategy="steps", save_steps=15, eval_strategy="steps", eval_steps=15,
        logging_steps=1000,
    )
    tracker = TransformersTracker(name="fine-tuning", item="text")
    Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[tracker]).train()
"""


def test_the_trainers_steps_are_tracked_and_evaluation_and_saving_stand_apart(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ran(str(written(tmp_path, PROGRAM)))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mldyno: fine-tuning: ") == 1
    (record,) = stored(store)
    assert record.case.id == "fine-tuning/tracked/cpu"
    assert (record.fact("items_per_step"), record.fact("item")) == (8, "text")
    values = [part for part in record.series if part.metric == "step_time"]
    assert sum(part.block * len(part.values) for part in values) <= 60
    assert len(record.values("apart_time", "apart")) == 5  # steps 15, 30, 45 and the ends of two epochs
    assert sum(record.values("data_wait", None)) > 0
    assert {"torch", "transformers", "accelerate"} <= set(record.software.versions)
