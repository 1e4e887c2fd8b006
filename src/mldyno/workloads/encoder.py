"""Transformer encoder of 6 layers, hidden size 512, that classifies sequences of one length.

Vocabulary 10,000, sinusoidal positions, 8 heads, feed-forward part 2048 with ReLU, post-norm, dropout
0.1 in training, mean over the words, 10 labels; no mask. Train: Adam 1e-4, cross-entropy. As in the
published m4-gpu comparison.
"""

from __future__ import annotations

from mldyno.workloads import _encoder

WORKLOAD = _encoder.workload("encoder", "Transformer encoder", version=1, ragged=False)
