"""This machine, as a host.

For trying a hosts file out, and for a machine that is a member of its own fleet.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mldyno.engines import Engine, Host


class Local(Engine):
    """A process here."""

    python = sys.executable

    def hosts(self, wanted: str) -> list[Host]:
        return [Host(wanted or "local", "local", "")]

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        return [os.path.expanduser(words[0]), *words[1:]]


ENGINE = Local
