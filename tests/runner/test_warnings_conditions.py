"""A state of the machine is judged once: a warning and a finding about it say the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mldyno.doctor.findings import of as findings
from mldyno.doctor.symptoms import Checkup, Facts
from mldyno.records import Case, Machine, Series
from mldyno.runner.warnings import Evidence, State, conditions, of_measurement

PLAIN = Evidence(Case("mlp", batch=8), [], {}, Machine("m", cores=4, power="mains"), 1)
BOTH: list[tuple[str, Evidence, dict[str, Any]]] = [
    ("on-battery", replace(PLAIN, machine=Machine("m", power="battery")), {"power": "battery"}),
    ("low-power", replace(PLAIN, machine=Machine("m", low_power=True)), {"low_power": True}),
    ("throttled", replace(PLAIN, series=[Series("speed_limit", "1", (0.6,), stage="process")]), {"speed_limit": 0.6}),
    ("niced", replace(PLAIN, facts={"niceness": 15}), {"niceness": 15}),
    ("few-cores", replace(PLAIN, facts={"cores_allowed": 1, "cores_present": 4}), {"cores": 1, "cores_present": 4}),
    ("rosetta", replace(PLAIN, facts={"translated": True}), {"translated": True}),
]


@pytest.mark.parametrize(("code", "evidence", "facts"), BOTH)
def test_a_warning_and_a_finding_say_the_same(code: str, evidence: Evidence, facts: dict[str, Any]) -> None:
    (warning,) = [warning for warning in of_measurement(evidence) if warning.code == code]
    (finding,) = [finding for finding in findings(Checkup(facts=Facts(**facts))) if finding.code == code]
    assert (warning.message, warning.hint) == (finding.message, finding.cure)


def test_a_quiet_machine_has_no_condition() -> None:
    state = State("mains", False, speed_limit=1.0, swapped_meanwhile=0.0, swap_used=0, memory=16 << 30)
    assert conditions(state) == {}
    assert conditions(State()) == {}


@pytest.mark.parametrize(("used", "found"), [(1 << 30, False), (2 << 30, True)])
def test_swap_counts_from_a_tenth_of_the_memory_on(used: int, found: bool) -> None:
    assert ("swapped" in conditions(State(swap_used=used, memory=16 << 30))) is found
