"""The one clock: the host's monotonic high-resolution counter, in ns."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]

now: Clock = time.perf_counter_ns
