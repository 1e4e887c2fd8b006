"""BERT-base (cased) with a classifier of 2 labels, 108 million parameters.

12 layers, hidden size 768, 12 heads, feed-forward part 3072, vocabulary 28,996, 512 positions, dropout 0.1
in training. Train: Adam 1e-4, cross-entropy. As in the published apple-silicon-bert comparison.
"""

from __future__ import annotations

from mldyno.workloads import _bert

SHAPE = _bert.Shape(layers=12, width=768, heads=12, inner=3072, vocabulary=28_996)
WORKLOAD = _bert.workload("bert-base", "BERT-base", SHAPE, version=1, batch=16, seq=128, params=108_311_810)
