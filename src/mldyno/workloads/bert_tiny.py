"""BERT of 2 layers, hidden size 128, with a classifier: attention in small kernels.

2 heads, feed-forward part 512, vocabulary 30,522, 2 labels. Train: Adam 1e-4, cross-entropy.
"""

from __future__ import annotations

from mldyno.workloads import _bert

SHAPE = _bert.Shape(layers=2, width=128, heads=2, inner=512, vocabulary=30_522)
WORKLOAD = _bert.workload("bert-tiny", "BERT-tiny", SHAPE, version=1, batch=8, seq=64, params=4_386_178)
