"""What a run tells whoever watches it. Watching is optional and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.plan import Plan
from mldyno.records import Case, Pairing, Record


class Listener:
    """Hears of a run as it goes on; every method may be left as it is."""

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]]) -> None:
        """A run begins, with these cases and rounds to do."""

    def fetching(self, what: str, done: int, total: int | None) -> None:
        """A data set is being fetched or made: so many bytes of it are there."""

    def case_started(self, case: Case, number: int) -> None:
        """A case is being set up in round `number`."""

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        """Cases are being measured against each other."""

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """A step takes so many s at present, known to a relative half-width, after so many s of measuring."""

    def case_ended(self, record: Record) -> None:
        """A record is in the store."""

    def end(self) -> None:
        """The run is over, in whatever way."""
