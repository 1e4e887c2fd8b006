"""A smart plug that powers the machine, asked over HTTP: the only sensor of all of it (Shelly, Tasmota).

The user names it: MLDYNO_PLUG=http://192.168.1.20. Nothing else is asked: redirects are refused, proxies are not used.
Its power is read: its counter of energy has too few digits.
"""

from __future__ import annotations

import json
import math
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from http.client import HTTPException
from typing import Any

from mldyno.hardware import Closed, Found, Sensor, Surroundings, Unreadable

SETTING = "MLDYNO_PLUG"
TIMEOUT_S, LONGEST_ANSWER = 3.0, 1 << 16  # B
# What plugs are asked, and where the answer has the power in W.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Shelly": ("/rpc/Switch.GetStatus?id=0", ("apower",)),
    "Shelly of the first generation": ("/meter/0", ("power",)),
    "Tasmota": ("/cm?cmnd=Status%208", ("StatusSNS", "ENERGY", "Power")),
}


class Silent(Unreadable):
    """Nothing answers at the address; another question would not be answered either."""


def power_of(address: str, path: str, keys: tuple[str, ...]) -> float:
    """Return the power in W that a plug reports."""
    value: Any = answer_of(address.rstrip("/") + path)
    try:
        for key in keys:
            value = value[key]
        power = float(value)
        if not math.isfinite(power):
            raise ValueError(power)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"the plug's answer has no such number: {error}") from None
    return power


class Redirects(urllib.request.HTTPRedirectHandler):
    """Refuse every redirect: the plug must not choose another address."""

    def redirect_request(self, *answer: Any) -> None:
        raise Unreadable("the plug's answer can't be used: it redirects to another address, which is not asked")


NAMED_ONLY = urllib.request.build_opener(urllib.request.ProxyHandler({}), Redirects())


def answer_of(address: str) -> Mapping[str, Any]:
    """Return a plug's answer; raise Unreadable."""
    try:
        with NAMED_ONLY.open(address, timeout=TIMEOUT_S) as answer:
            content = json.loads(answer.read(LONGEST_ANSWER))
    except (urllib.error.HTTPError, ValueError, RecursionError) as error:
        raise Unreadable(f"the plug's answer can't be used: {error}") from None
    except (OSError, HTTPException) as error:
        raise Silent(f"the plug does not answer: {error}") from None
    if not isinstance(content, dict):
        raise Unreadable("the plug's answer is no object")
    return content


def find(around: Surroundings) -> Found:
    """Find the plug that the user names."""
    address = os.environ.get(SETTING)
    if not address:
        return Found()
    if not address.startswith(("http://", "https://")):
        return Found(closed=[Closed("plug", "system", f"{SETTING} is no address", "write http:// and the plug's")])
    reason = ""
    for name, (path, keys) in KINDS.items():
        plug = Sensor(name, "system", "sample", partial(power_of, address, path, keys), every_s=1.0)
        try:
            plug.read()
            return Found([plug])
        except Unreadable as error:
            reason = str(error)
            if isinstance(error, Silent):
                break
    return Found(closed=[Closed("plug", "system", reason, f"see that {SETTING} is its address, and that it measures")])


SENSORS = {"plug": find}
