"""What of a case could not be checked, since its framework gives no means to: a record says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mldyno.frameworks import Framework, Program
from mldyno.records import Case, Checks


def unchecked(
    case: Case, framework: Framework, program: Program, facts: Mapping[str, Any], checks: Checks
) -> dict[str, str]:
    """The fact `not_checked`, where something was not.

    In fake time nothing is computed; a process that ran end to end shows by its exit code that it did its work.
    """
    if framework.clock is not None or facts.get("end_to_end"):
        return {}
    is_reference = case.device == "cpu" and case.precision in ("fp32", None) and not case.compile
    missing = {
        "parameters": program.params is None,
        "learning": case.mode == "train" and checks.learned is None,
        "agreement with the CPU": not is_reference and checks.agrees is None,
        "precision": case.precision not in ("fp32", None) and type(program).precision_flaw is Program.precision_flaw,
        "device": program.actual_device() is None,
        "peak": bool(facts["flops_per_step"]) and facts.get("peak_flops") is None,
    }
    names = [name for name, is_missing in missing.items() if is_missing]
    return {"not_checked": ", ".join(names)} if names else {}
