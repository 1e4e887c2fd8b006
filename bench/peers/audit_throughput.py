"""Audit: the training throughput of optimum-benchmark against what its own latencies give.

From the root of the source tree: .peers/optimum/bin/python -m bench.peers.audit_throughput
"""

from __future__ import annotations

import os
import tempfile

from bench.peers import optimum

BATCH, STEPS, WARM_UP = 8, 30, 10


def main() -> None:
    """Train the small BERT for some steps, and print what the report says and what follows from it."""
    from optimum_benchmark import Benchmark, BenchmarkConfig, InlineConfig, TrainingConfig  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        scenario = TrainingConfig(
            max_steps=STEPS, warmup_steps=WARM_UP,
            dataset_shapes={"dataset_size": 512, "sequence_length": optimum.SEQ},
            training_arguments={"per_device_train_batch_size": BATCH, "disable_tqdm": True, "output_dir": folder},
        )  # fmt: skip
        report = Benchmark.launch(
            BenchmarkConfig(
                name="audit", launcher=InlineConfig(), scenario=scenario, backend=optimum.backend(), log_report=False
            )
        )
    said, latency = report.train.throughput.value, report.train.latency
    print(f"steps that were measured: {latency.count}, mean {latency.mean * 1e3:.2f} ms, batch {BATCH}")
    print(f"throughput in the report: {said:.0f} samples/s")
    print(f"batch over mean latency:  {BATCH / latency.mean:.0f} samples/s")
    print(f"ratio: {said * latency.mean / BATCH:.1f}")


if __name__ == "__main__":
    os.environ.update(optimum.OFFLINE)
    main()
