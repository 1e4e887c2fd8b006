"""`mlx.core` of a machine with a GPU: each device is a stream of the CPU, and the GPU is the default, as on a Mac.

A stream has a thread, whose CPU time shows where work was really done.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import psutil


def threads() -> dict[int, float]:
    """The CPU time in s of each thread of this process."""
    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}


class PretendedGpu:
    """All that `mlx.core` has, with a GPU."""

    def __init__(self) -> None:
        self.streams: dict[Any, Any] = {}
        self.thread_ids: dict[str, int] = {}
        self.metal = SimpleNamespace(is_available=lambda: True)
        for device, name in ((mx.cpu, "cpu"), (mx.gpu, "mps")):
            before = {*threads()}
            self.streams[device] = stream = mx.new_stream(mx.cpu)
            mx.synchronize(stream)
            (self.thread_ids[name],) = {*threads()} - before
        self.set_default_device(mx.gpu)

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)

    def worked(self) -> dict[str, float]:
        """The CPU time in s of each device so far."""
        now = threads()
        return {name: now[thread] for name, thread in self.thread_ids.items()}

    def default_stream(self, device: Any) -> Any:
        return self.streams[getattr(device, "type", device)]

    def stream(self, place: Any) -> Any:
        return mx.stream(place if isinstance(place, mx.Stream) else self.default_stream(place))

    def default_device(self) -> Any:
        current = mx.default_stream(mx.cpu)
        return mx.Device(next(device for device, stream in self.streams.items() if stream == current))

    def set_default_device(self, device: Any) -> None:
        mx.set_default_stream(self.default_stream(device))

    def synchronize(self, stream: Any = None) -> None:
        mx.synchronize(mx.default_stream(mx.cpu) if stream is None else stream)

    def device_info(self, device: Any) -> dict[str, Any]:
        return {"device_name": "a pretended GPU", "max_recommended_working_set_size": 1 << 30}
