"""Self-attention, hidden size 512, one head: as attention, in fewer and larger matmuls.

Train: forward and backward only, the squared error of a token against a random target. As in the
published m4-gpu comparison.
"""

from __future__ import annotations

from mldyno.workloads import _attention

WORKLOAD = _attention.workload("attention-1head", "Attention with one head", heads=1, version=1)
