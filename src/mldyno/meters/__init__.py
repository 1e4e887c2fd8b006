"""Meters: what is observed besides time, one file each, each holding one `METER` class.

A meter is started when a case is open and warm, and gives its series when the case is closed. It
must cost nothing while the case is measured.
"""

from __future__ import annotations

from typing import Protocol

from mldyno.records import Series


class Meter(Protocol):
    """Observes one thing while a case is measured."""

    def start(self) -> None:
        """Begin to observe."""

    def stop(self) -> list[Series]:
        """End, and give what was seen, in SI base units."""
