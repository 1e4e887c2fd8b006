"""A smart plug in front of the machine, asked over HTTP: the only one that sees all of it (Shelly, Tasmota).

The user names it: MLDYNO_PLUG=http://192.168.1.20. Nothing else is asked: redirects are refused, proxies are not used.
Its counter of energy is used where it has a digit fine enough, else its power.
"""

from __future__ import annotations

import json
import math
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from mldyno.hardware import Closed, Found, Method, Sensor, Surroundings, Unreadable

SETTING = "MLDYNO_PLUG"
TIMEOUT_S, LONGEST_ANSWER = 3.0, 1 << 16
WATT_HOUR = 3600.0


@dataclass(frozen=True)
class Kind:
    """What a plug is asked, and where its power in W and its energy in J stand in the answer."""

    path: str
    power: Callable[[Mapping[str, Any]], float]
    energy: Callable[[Mapping[str, Any]], float]


KINDS = {
    "Shelly": Kind("/rpc/Switch.GetStatus?id=0", lambda said: float(said["apower"]),
                   lambda said: float(said["aenergy"]["total"]) * WATT_HOUR),
    "Shelly of the first generation": Kind("/meter/0", lambda said: float(said["power"]),
                                           lambda said: float(said["total"]) * 60),
    "Tasmota": Kind("/cm?cmnd=Status%208", lambda said: float(said["StatusSNS"]["ENERGY"]["Power"]),
                    lambda said: float(said["StatusSNS"]["ENERGY"]["Total"]) * 1000 * WATT_HOUR),
}  # fmt: skip


class Silent(Unreadable):
    """Nothing answers at the address; another question would not be answered either."""


class Plug(Sensor):
    """One plug."""

    scope, every_s = "system", 1.0

    def __init__(self, address: str, name: str, kind: Kind, method: Method) -> None:
        self.address, self.name, self.kind, self.method = address.rstrip("/"), name, kind, method

    def read(self) -> float:
        """Energy in J, or power in W."""
        find = self.kind.energy if self.method == "counter" else self.kind.power
        try:
            number = find(asked(self.address + self.kind.path))
        except (KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"the plug's answer has no such number: {error}") from None
        if not math.isfinite(number):
            raise Unreadable(f"the plug's answer has no such number: {number}")
        return number


class Redirects(urllib.request.HTTPRedirectHandler):
    """Refuses every redirect: whoever answers at the address can't choose another one."""

    def redirect_request(self, *answer: Any) -> None:
        """Raise Unreadable."""
        raise Unreadable("the plug's answer can't be used: it redirects to another address, which is not asked")


NAMED_ONLY = urllib.request.build_opener(urllib.request.ProxyHandler({}), Redirects())


def asked(address: str) -> Mapping[str, Any]:
    """A plug's answer; raises Unreadable."""
    try:
        with NAMED_ONLY.open(address, timeout=TIMEOUT_S) as answer:
            said = json.loads(answer.read(LONGEST_ANSWER))
    except (urllib.error.HTTPError, ValueError, RecursionError) as error:
        raise Unreadable(f"the plug's answer can't be used: {error}") from None
    except (OSError, HTTPException) as error:
        raise Silent(f"the plug does not answer: {error}") from None
    if not isinstance(said, dict):
        raise Unreadable("the plug's answer is no object")
    return said


def find(around: Surroundings) -> Found:
    """The plug that the user names."""
    address = os.environ.get(SETTING)
    if not address:
        return Found()
    if not address.startswith(("http://", "https://")):
        return Found(closed=[Closed("plug", "system", f"{SETTING} is no address", "write http:// and the plug's")])
    reason = ""
    for name, kind in KINDS.items():
        plug = Plug(address, name, kind, "sample")
        try:
            plug.read()
        except Unreadable as error:
            reason = str(error)
            if isinstance(error, Silent):
                break
            continue
        return Found([plug])
    return Found(closed=[Closed("plug", "system", reason, f"see that {SETTING} is its address, and that it measures")])


SENSORS = {"plug": find}
