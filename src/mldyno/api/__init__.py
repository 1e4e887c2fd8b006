"""One function per verb: what the command line calls, and what a notebook gets as `mldyno.run` and so on.

import mldyno
results = mldyno.run("mlp", device="cpu", placement=["device", "roundtrip"])
results.compare(by="placement")
"""

from __future__ import annotations

from mldyno.analysis.answers import Answers
from mldyno.api.examining import check, doctor, measure, selftest
from mldyno.api.reading import (
    compare,
    compare_along,
    history,
    in_several_runs,
    other_machines,
    placed,
    show,
    standings,
    table,
    this_machine,
    verdicts,
)
from mldyno.api.running import (
    command_plan,
    crossover,
    crossover_plan,
    dry_run,
    host,
    join,
    make_plan,
    max_batch,
    probe,
    quick_plan,
    run,
    run_plan,
    unfinished,
)
from mldyno.api.sharing import Removal, card, check_submissions, export, import_, remove, report, site, submit
from mldyno.results import Results
from mldyno.runner.forecast import Forecast, forecast
from mldyno.runner.probing import Attempt, Search
from mldyno.runner.quick import Chosen
from mldyno.selection import opened
from mldyno.tracking.tracker import Tracker, track

__all__ = [
    "Answers", "Attempt", "Chosen", "Forecast", "Removal", "Results", "Search", "Tracker", "card", "check",
    "check_submissions", "command_plan", "compare", "compare_along", "crossover", "crossover_plan", "doctor", "dry_run",
    "export", "forecast", "history", "host", "import_", "in_several_runs", "join", "make_plan", "max_batch", "measure",
    "opened", "other_machines", "placed", "probe", "quick_plan", "remove", "report", "run", "run_plan", "selftest",
    "show", "site", "standings", "submit", "table", "this_machine", "track", "unfinished", "verdicts",
]  # fmt: skip
