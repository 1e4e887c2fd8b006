"""BERT-large (cased) with a classifier of 2 labels, 334 million parameters.

24 layers, hidden size 1024, 16 heads, feed-forward part 4096, vocabulary 28,996, 512 positions, dropout 0.1
in training. Train: Adam 1e-4, cross-entropy. As in the published apple-silicon-bert comparison.
"""

from __future__ import annotations

from mldyno.workloads import _bert

SHAPE = _bert.Shape(layers=24, width=1024, heads=16, inner=4096, vocabulary=28_996)
WORKLOAD = _bert.workload("bert-large", "BERT-large", SHAPE, version=1, batch=16, seq=128, params=333_581_314)
