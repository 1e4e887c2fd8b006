"""What a change of the user's own code did, in words; and which of its versions is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mldyno.analysis.comparisons import DELTA, Comparison
from mldyno.analysis.tables import Key, Table
from mldyno.sources import NOW, Source
from mldyno.units import show_percent
from mldyno.views.sentences import NO_CLEAR_DIFFERENCE, factor, span
from mldyno.views.titles import case_title

STEPS = {"train": "a training step", "infer": "an inference step"}


def change_sentence(comparison: Comparison) -> str:
    """The newer version of the code against the older: your change made a training step 1.08x (1.06-1.10) slower."""
    case, older = comparison.other.case, comparison.base.case.workload
    step = STEPS.get(str(case.mode), "a step")
    if comparison.verdict == "equivalent":
        says = f"your change left {step} as fast as it was (within {show_percent(DELTA)})"
    elif comparison.verdict == "inconclusive":
        known = f" ({span(comparison)})" if comparison.low is not None else ""
        says = f"your change made {NO_CLEAR_DIFFERENCE} to {step}{known}"
    else:
        says = f"your change made {step} {factor(comparison)} {comparison.verdict}"
    more = f"; {comparison.advice}" if comparison.advice else ""
    return (
        f"{says} [{case_title(case, ('framework', 'mode'))} on {case.device}, against {older}; {comparison.how}{more}]"
    )


def version_titles(sources: Sequence[Source]) -> dict[str, str]:
    """What the versions of a file are called beside each other, by their workloads: the older one first."""
    versions = sorted((source for source in sources if source.version), key=lambda source: source.version == NOW)
    return {source.name: source.version_title for source in versions}


def with_versions(table: Table, titles: Mapping[str, str]) -> Table:
    """A table whose rows are called and ordered as the versions are."""
    place, order = table.rows.index("workload"), list(titles)

    def titled(key: Key) -> Key:
        return (*key[:place], titles[key[place]], *key[place + 1 :])

    rows = sorted(table.row_keys, key=lambda key: order.index(key[place]))
    cells = {(titled(row), column): cell for (row, column), cell in table.cells.items()}
    return replace(table, row_keys=[titled(row) for row in rows], cells=cells)


def legend(titles: Mapping[str, str]) -> str:
    """By which names the versions are stored."""
    return "; ".join(f"{title} is {name}" for name, title in titles.items())
