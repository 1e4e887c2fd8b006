"""Self-attention, hidden size 512, 8 heads: how its cost grows with the length of a sequence.

Train: forward and backward only, the squared error of a token against a random target. As in the
published m4-gpu comparison, over sequences of 32 to 1024.
"""

from __future__ import annotations

from mldyno.workloads import _attention

WORKLOAD = _attention.workload("attention", "Attention", heads=8, version=1)
