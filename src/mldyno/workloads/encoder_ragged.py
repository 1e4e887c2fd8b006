"""Transformer encoder of 6 layers, hidden size 512, that classifies sequences of many lengths.

As encoder, but sequences have 8 words to as many as there is room for; they are padded, and padding
is masked in attention and in the mean. Padding counts as tokens, since it is worked through.
Train: Adam 1e-4, cross-entropy. As in the published m4-gpu comparison.
"""

from __future__ import annotations

from mldyno.workloads import _encoder

WORKLOAD = _encoder.workload("encoder-ragged", "Transformer encoder, ragged", version=1, ragged=True)
