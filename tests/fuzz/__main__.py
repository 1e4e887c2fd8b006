"""`make fuzz`: changed records for ten minutes; what can't be read is kept in `corpus/`, for `make test`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.hunt import BATCH, as_a_test, at_fault, batch_of
from tests.fuzz.mutations import seeds

from mldyno.records import content_id

CORPUS = Path(__file__).parent / "corpus"
FEWEST_RECORDS = 5000


def main() -> int:
    """Hunt until the time is over and enough records were tried; the exit code is 1 where some can't be read."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--records", type=int, default=FEWEST_RECORDS, help="the fewest to read")
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    chosen = options.parse_args()
    print(f"seed {chosen.seed}; again with: make fuzz SEED={chosen.seed}", flush=True)
    ends, tried, taken, faults = time.monotonic() + chosen.seconds, 0, 0, 0
    originals = seeds()
    with tempfile.TemporaryDirectory() as folder, as_a_test():
        while time.monotonic() < ends or taken < chosen.records:
            batch = batch_of(chosen.seed * BATCH + tried, originals)
            tried, taken = tried + BATCH, taken + len(batch.taken)
            if culprits := at_fault(batch.taken, Path(folder)):
                faults += 1
                _keep(*culprits)
            if tried % (10 * BATCH) == 0:
                print(f"{tried:,} records tried, {taken:,} taken and read, {faults} faults", flush=True)
    print(f"{tried:,} records tried, {taken:,} taken and read in every way, {tried - taken:,} refused; {faults} faults")
    return 1 if faults else 0


def _keep(texts: list[str], error: Exception) -> None:
    path = CORPUS / f"{content_id({'texts': texts})[:8]}.jsonl"
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    traceback.print_exception(error)
    print(f"kept as {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
