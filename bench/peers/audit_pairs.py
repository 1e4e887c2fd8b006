"""Audit: verdicts on identical code, run again and again, of pyperf and of mldyno.

From the root of the source tree:
.peers/pyperf/bin/python -m bench.peers.audit_pairs pyperf
.venv/bin/python -m bench.peers.audit_pairs mldyno
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

RUNS = 10
STATEMENT = ("-s", "x = list(range(1000))", "sum(x)")
NO_CHANGE = ("Not significant", "hidden because not significant")
CASE = ("mlp", "--mode", "infer", "--threads", "1")  # on a CPU, placements device and host are the same work


def pyperf(folder: Path) -> None:
    """Time one statement with pyperf's defaults, several times, and let it compare the runs."""
    files = [folder / f"run-{number}.json" for number in range(1, RUNS + 1)]
    for file in files:
        _said("-m", "pyperf", "timeit", "--quiet", "--name", "sum", "-o", str(file), *STATEMENT)
    neighbours = [_verdict(*pair) for pair in itertools.pairwise(files)]
    every = [_verdict(*pair) for pair in itertools.combinations(files, 2)]
    print(f"{RUNS} runs of identical code, pyperf's defaults")
    for number, said in enumerate(neighbours, start=1):
        print(f"run {number} against run {number + 1}: {said or 'not significant'}")
    count = sum(map(bool, neighbours))
    print(f"called different: {count} of {len(neighbours)} neighbours, {sum(map(bool, every))} of {len(every)} pairs")


def _verdict(first: Path, second: Path) -> str:
    """What compare_to says of the two, or nothing where it sees no significant difference."""
    said = _said("-m", "pyperf", "compare_to", str(first), str(second)).strip()
    return "" if any(words in said for words in NO_CHANGE) else said.splitlines()[-1]


def mldyno(folder: Path) -> None:
    """Let mldyno compare two cases that do the same, several times."""
    verdicts = []
    for number in range(1, RUNS + 1):
        store = ("--store", str(folder / f"run-{number}.sqlite"))
        _said("-m", "mldyno", "run", *CASE, "--placement", "device,host", "--budget", "5s", "--json", *store)
        found = json.loads(_said("-m", "mldyno", "compare", "mlp", "--by", "placement", "--json", *store))
        paired = [one for one in found["comparisons"] if one["how"].startswith("paired")]
        verdicts += [one["verdict"] for one in paired]
        print(f"run {number}: {', '.join(_shown(one) for one in paired) or 'not compared'}")
    print(f"called different: {sum(one in ('faster', 'slower') for one in verdicts)} of {len(verdicts)}")


def _shown(one: dict[str, object]) -> str:
    low, high, ratio = one["low"], one["high"], one["ratio"]
    if not (isinstance(low, float) and isinstance(high, float) and isinstance(ratio, float)):
        return str(one["verdict"])
    return f"{ratio:.3f} ({low:.3f} to {high:.3f}), {one['verdict']}"


def _said(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: mldyno's, a case without a number
        raise RuntimeError(done.stderr)
    return done.stdout


def main(words: Sequence[str]) -> None:
    """The audit of the tool that is named."""
    audit = {"pyperf": pyperf, "mldyno": mldyno}[words[0]]
    with tempfile.TemporaryDirectory(prefix="mldyno-audit-") as folder:
        audit(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
